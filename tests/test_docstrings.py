"""The examples of docstrings say what comes out."""

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import generated
import pytest

import fl_audit
from tests import validation

# The apps of examples start federations where they are imported.
APART = "fl_audit.experiments.examples."
ROOT = Path(__file__).parents[1]
SOURCES = ("fl_audit", "clients", "server", "strategies", "experiments", "tests", "docs")
# Docstrings of modules, classes, functions and fields, found without parsing the sources, which takes seconds.
RELATIVE = re.compile(
    r'^\s*[rR]?"""(?:What|Whatever|Who|Whoever|Whom|Whose|Which|Whichever|Where|Wherever|How|That|Those)\b.*', re.M
)

DOCSTRING = re.compile(r'"""(.*?)"""', re.S)
PARAMETERS = re.compile(r"^ *Parameters\n *-+\n(.*?)(?=^ *\w+\n *-+\n|\Z)", re.M | re.S)
# An entry of a section with several names in one line, and its text, which stands deeper.
MERGED = re.compile(r"^( *)((?:\*{0,2}\w+, )+\*{0,2}\w+)(?: : .*)?\n((?:\1 {4,}.*\n)+)", re.M)
MERGED_FIELDS = re.compile(r"^ *# `\w+`(?:(?:, | and )`\w+`)+: .*", re.M)


def modules() -> Iterator[str]:
    for package in (fl_audit, validation):
        found = (one.name for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
        yield from (name for name in found if not name.rpartition(".")[2].startswith("test_"))


def test_examples_of_docstrings_hold(capsys: pytest.CaptureFixture[str]) -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for name in modules():
        if name.startswith(APART) or name.endswith("__main__"):
            continue
        # `testmod` would also set the stage for each of the thousands of docstrings without examples.
        for found in [one for one in finder.find(importlib.import_module(name)) if one.examples]:
            runner.run(found)
    assert not runner.failures, capsys.readouterr().out
    assert runner.tries > 150


def is_command(function: object) -> bool:
    """Whether a function is a command, or takes its options as one does."""
    return "typer" in str(inspect.signature(function)).lower()  # type: ignore[arg-type]


def undocumented(module: ModuleType) -> Iterator[str]:
    """Yield the public functions of two and more parameters whose docstring has no section on them.

    That the sections which there are name every parameter is checked by the linter, which asks for none. What a method
    of a base class takes is documented there, what Flower hands to every app by Flower, and options by their help.
    """
    classes = [one for name, one in vars(module).items() if inspect.isclass(one) and not name.startswith("_")]
    for owner in [module, *(one for one in classes if one.__module__ == module.__name__)]:
        above = owner.__mro__[1:] if inspect.isclass(owner) else ()
        for name, found in vars(owner).items():
            function = getattr(found, "__func__", inspect.unwrap(found) if callable(found) else found)
            if (
                not inspect.isfunction(function)
                or "<" in function.__name__
                or function.__module__ != module.__name__
                or name.startswith("_")
            ):
                continue
            taken = [one for one in inspect.signature(function).parameters if one not in ("self", "cls")]
            named = [one for one in taken if not one.startswith("_")]
            if named == ["message", "context"] or named == ["grid", "context"] or is_command(function):
                continue
            is_documented = "Parameters\n" in (function.__doc__ or "") or any(hasattr(base, name) for base in above)
            if len(named) > 1 and not is_documented:
                yield f"{function.__module__}.{function.__qualname__}"


def reference_modules() -> set[str]:
    """Return the names of the modules that pages of the reference show."""
    pages = (ROOT / "docs" / "reference" / "modules").glob("*.md")
    texts = [generated.complete_page(page.read_text(encoding="utf-8"), page.parent) for page in pages]
    return {name for text in texts for name in re.findall(r"^::: (\S+)", text, re.M)}


def test_functions_of_the_reference_document_their_parameters() -> None:
    shown = reference_modules()
    names = [name for name in modules() if name in shown]
    assert len(names) > 40
    assert not [function for name in names for function in undocumented(importlib.import_module(name))]


def own_sources() -> list[str]:
    """Return the source files that are no links, relative to the root of the repository."""
    paths = [path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))]
    own = [path for path in paths if not any(parent.is_symlink() for parent in path.parents)]
    return [path.relative_to(ROOT).as_posix() for path in own]


def relative_beginnings(path: Path) -> list[str]:
    """Return the first lines of docstrings in a file that begin with a relative clause instead of a noun or a verb."""
    return [line.strip() for line in RELATIVE.findall(path.read_text(encoding="utf-8"))]


def test_no_docstring_begins_with_a_relative_clause(tmp_path: Path) -> None:
    riddle = tmp_path / "riddle.py"
    riddle.write_text('def f():\n    """What is returned."""\n\n\ndef g():\n    """Return a result."""\n')
    assert relative_beginnings(riddle) == ['"""What is returned."""']
    names = own_sources()
    found = {name: lines for name in names if (lines := relative_beginnings(ROOT / name))}
    assert len(names) > 800
    assert found == {}


def merged_entries(path: Path) -> list[str]:
    """Return the names of entries of Parameters, and of comments on fields, that leave readers to match by order.

    Parameters may share an entry whose text names each of them in backticks, or begins with "Both" or "Each".
    """
    text = path.read_text(encoding="utf-8")
    sections = [section for docstring in DOCSTRING.findall(text) for section in PARAMETERS.findall(f"{docstring}\n")]
    entries = [(names, said.strip()) for section in sections for _, names, said in MERGED.findall(section)]
    unmatched = [
        names
        for names, said in entries
        if not said.startswith(("Both ", "Each "))
        and not all(f"`{one.strip('*')}`" in said for one in names.split(", "))
    ]
    return [*unmatched, *(comment.strip() for comment in MERGED_FIELDS.findall(text))]


def test_every_parameter_has_an_entry_of_its_own(tmp_path: Path) -> None:
    riddle = tmp_path / "riddle.py"
    entries = ["left, right", "    The first; and its other.", "low, high", "    `low` is at most `high`.", "one, two"]
    section = [
        "Parameters",
        "----------",
        *entries,
        "    Both are finite.",
        "",
        "Returns",
        "-------",
        "a, b",
        "    Both.",
    ]
    lines = ['"""Return a sum.', "", *section, '"""', "# `a`, `b`: two."]
    riddle.write_text("".join(f"    {line}\n" for line in lines))
    assert merged_entries(riddle) == ["left, right", "# `a`, `b`: two."]
    found = {name: merged for name in own_sources() if (merged := merged_entries(ROOT / name))}
    assert found == {}
