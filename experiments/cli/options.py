"""Options that several commands have, with the values that a shell completes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from experiments.names import Engine
from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError


class PlainCommand(TyperCommand):
    """A command whose help is plain text: typer escapes brackets as if it were markup."""

    def get_help(self, ctx: typer.Context) -> str:  # type: ignore[override]
        """Return the help."""
        return _unescaped(super().get_help(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose help is plain text, for the same reason."""

    def get_help(self, ctx: typer.Context) -> str:  # type: ignore[override]
        """Return the help."""
        return _unescaped(super().get_help(ctx))


def _unescaped(text: str) -> str:
    return text.replace("\\[", "[")


def among(choices: Iterable[str]) -> Callable[[str], list[str]]:
    """Return what completes a value that is one of some words."""
    words = list(choices)
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Return the settings, or the values of one, that a `section.key=value` may go on with."""
    from experiments.runs.config.described import settings

    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{one.key}=" for one in settings() if one.key.startswith(key)]
    words = next((one.choices or () for one in settings() if one.key == key), ())
    return [f"{key}={word}" for word in words if word.startswith(value)]


def require_engine(engine: str) -> Engine:
    """Return the engine of a name.

    Raises
    ------
    InputError
        If there is none.
    """
    if engine not in list(Engine):
        raise InputError(f"--engine {engine!r}: accepted are {' and '.join(Engine)}")
    return Engine(engine)


ConfigArgument = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of the run.")]
DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a run.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Replace a setting of the file; may be repeated.",
        autocompletion=complete_setting,
    ),
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine", metavar="ray|local", help="Flower's runtime on Ray, or this process.", autocompletion=among(Engine)
    ),
]
AddressOption = Annotated[
    str | None, typer.Option("--ray-address", metavar="ADDRESS", help="Address of a running Ray cluster (HOST:PORT).")
]
DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Data directory.  [default: FL_AUDIT_DATA]")
]
ADJACENCY_HELP = f"How neighbours differ: one of {', '.join(Adjacency)}."
AdjacencyOption = Annotated[
    str, typer.Option("--adjacency", metavar="NAME", help=ADJACENCY_HELP, autocompletion=among(Adjacency))
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
