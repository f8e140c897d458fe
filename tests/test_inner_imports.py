"""Modules import at their top: what stands inside functions costs readers more than it saves."""

import ast
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from fl_audit.experiments.cli.main import Commands, app

ROOT = Path(__file__).parents[1]
MOST = 109
"""Imports inside functions; the number may only fall."""


def _sources() -> Iterator[Path]:
    for place in ("clients", "server", "strategies", "experiments"):
        yield from (ROOT / place).rglob("*.py")
    for path in (ROOT / "fl_audit").iterdir():
        if not path.is_symlink():
            yield from path.rglob("*.py") if path.is_dir() else [path] if path.suffix == ".py" else []


def _inner_imports(path: Path) -> set[int]:
    """Return the lines of a module on which something is imported inside a function."""
    functions = (
        one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    )
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


def test_the_list_of_commands_says_what_their_own_help_begins_with() -> None:
    program, listed = get_command(app), CliRunner().invoke(app, ["--help"]).stdout
    for name, (_, said) in Commands.places.items():
        command = program.commands[name]  # type: ignore[attr-defined]
        assert (command.help or "").partition("\n")[0] == said, name
        assert f"  {name} " in listed
