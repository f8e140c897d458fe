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


def modules() -> Iterator[str]:
    for package in (fl_audit, validation):
        module_names = (
            module_info.name for module_info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        )
        yield from (name for name in module_names if not name.rpartition(".")[2].startswith("test_"))


def test_examples_of_docstrings_hold(capsys: pytest.CaptureFixture[str]) -> None:
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner()
    for name in modules():
        if name.startswith(APART) or name.endswith("__main__"):
            continue
        # `testmod` would also set the stage for each of the thousands of docstrings without examples.
        for doc_test in [candidate for candidate in finder.find(importlib.import_module(name)) if candidate.examples]:
            runner.run(doc_test)
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
    classes = [item for name, item in vars(module).items() if inspect.isclass(item) and not name.startswith("_")]
    for owner in [module, *(item for item in classes if item.__module__ == module.__name__)]:
        above = owner.__mro__[1:] if inspect.isclass(owner) else ()
        for name, attribute in vars(owner).items():
            function = getattr(attribute, "__func__", inspect.unwrap(attribute) if callable(attribute) else attribute)
            if (
                not inspect.isfunction(function)
                or "<" in function.__name__
                or function.__module__ != module.__name__
                or name.startswith("_")
            ):
                continue
            parameters = [item for item in inspect.signature(function).parameters if item not in ("self", "cls")]
            public_parameters = [item for item in parameters if not item.startswith("_")]
            if (
                public_parameters == ["message", "context"]
                or public_parameters == ["grid", "context"]
                or is_command(function)
            ):
                continue
            is_documented = "Parameters\n" in (function.__doc__ or "") or any(hasattr(base, name) for base in above)
            if len(public_parameters) > 1 and not is_documented:
                yield f"{function.__module__}.{function.__qualname__}"


def reference_modules() -> set[str]:
    """Return the names of the modules that pages of the reference show."""
    pages = (ROOT / "docs" / "reference" / "modules").glob("*.md")
    texts = [generated.complete_page(page.read_text(encoding="utf-8"), page.parent) for page in pages]
    return {name for text in texts for name in re.findall(r"^::: (\S+)", text, re.M)}


def test_functions_of_the_reference_document_their_parameters() -> None:
    documented_modules = reference_modules()
    names = [name for name in modules() if name in documented_modules]
    assert len(names) > 40
    assert not [function for name in names for function in undocumented(importlib.import_module(name))]
