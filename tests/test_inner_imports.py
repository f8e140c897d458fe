"""Modules import at their top: what stands inside functions costs readers more than it saves."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fl_audit.cli import lazy_imports
from fl_audit.cli.main import Commands, app

ROOT = Path(__file__).parents[1]
MOST = 22
"""Imports inside functions; the number may only fall."""


def _sources() -> Iterator[Path]:
    for place in ("clients", "server", "strategies", "experiments"):
        yield from (ROOT / place).rglob("*.py")
    for path in (ROOT / "fl_audit").iterdir():
        if not path.is_symlink():
            yield from path.rglob("*.py") if path.is_dir() else [path] if path.suffix == ".py" else []


def _inner_imports(path: Path) -> set[int]:
    """Return the lines of a module on which something is imported inside a function."""
    text = path.read_text()
    # Most files import at their top alone, and parsing is what takes long.
    tree = ast.parse(text if re.search(r"^ +(from \S+ )?import ", text, re.MULTILINE) else "")
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return {
        one.lineno
        for function in functions
        for one in ast.walk(function)
        if isinstance(one, ast.Import | ast.ImportFrom)
    }


def test_imports_inside_functions_become_no_more() -> None:
    found = {path: len(lines) for path in _sources() if (lines := _inner_imports(path))}
    assert len(found) > 10, "sources are found"
    assert sum(found.values()) <= MOST, sorted((count, str(path)) for path, count in found.items())[-10:]


def test_each_import_inside_a_function_has_its_reason_beside_it() -> None:
    """In a comment on its line, or on one of the lines above it in the same block."""
    silent = []
    for path in _sources():
        lines = path.read_text().splitlines()
        for number in _inner_imports(path):
            above = takewhile(lambda line: line.strip() and not line.endswith(":"), reversed(lines[: number - 1]))
            if not any("  # " in line or line.lstrip().startswith("# ") for line in (lines[number - 1], *above)):
                silent.append(f"{path.relative_to(ROOT)}:{number}")
    assert silent == []


LATE = [path for path in _sources() if path.name == "lazy_imports.py" and path.parent.name != "fl_audit"]


@pytest.mark.parametrize("path", LATE, ids=lambda path: path.parent.name)
def test_modules_that_are_imported_late_are_those_that_type_checkers_see(path: Path) -> None:
    (places,) = (
        ast.literal_eval(one.value)
        for one in ast.parse(path.read_text()).body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "PLACES"
    )
    seen = [
        f"{one.module}.{name.name}"
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.ImportFrom) and one.module != "fl_audit.lazy_imports"
        for name in one.names
        if name.asname
    ]
    assert sorted(places) == sorted(seen)
    assert len({place.rpartition(".")[2] for place in places}) == len(places)
    assert all(find_spec(module) is not None for module in places)


def test_a_late_module_is_the_module_itself_and_an_unknown_one_is_an_error() -> None:
    assert lazy_imports.figure_files is import_module("fl_audit.cli.figures.figure_files")
    with pytest.raises(AttributeError, match="no attribute 'misspelt'"):
        lazy_imports.misspelt  # type: ignore[attr-defined]  # noqa: B018


LATE_NAMES = [
    path
    for path in _sources()
    if path.name == "__init__.py" and "\ndef __getattr__(" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", LATE_NAMES, ids=lambda path: path.parent.name)
def test_every_name_that_a_package_imports_late_is_what_type_checkers_see(path: Path) -> None:
    """A name of the table that no type checker sees, or the other way round, fails only when a user imports it."""
    below = path.parent.relative_to(ROOT).parts
    package = import_module(".".join(below if below[0] == "fl_audit" else ("fl_audit", *below)))
    (for_checkers,) = (
        one
        for one in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"
    )
    seen = {
        name.name: str(one.module) for one in for_checkers.body if isinstance(one, ast.ImportFrom) for name in one.names
    }
    for name, module in seen.items():
        assert getattr(package, name) is getattr(import_module(module), name)
    listed = {
        name for names in package._NAMES.values() for name in (names.split() if isinstance(names, str) else names)
    }
    assert listed == set(seen)


def test_the_list_of_commands_says_what_their_own_help_begins_with() -> None:
    program, listed = get_command(app), CliRunner().invoke(app, ["--help"]).stdout
    words = " ".join(listed.split())
    for name in Commands.places:
        command = program.commands[name]  # type: ignore[attr-defined]
        assert f"  {name} " in listed
        assert " ".join((name, *(command.help or "").partition("\n")[0].split())) in words
