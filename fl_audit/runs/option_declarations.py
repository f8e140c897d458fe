"""Declarations of command-line options and arguments."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo


def option(
    metavar: str | None, help_text: str, among: Iterable[str] = (), names: tuple[str, ...] = (), **details: Any
) -> OptionInfo:
    """Return a command-line option that takes a value.

    `names`: If empty, typer makes `--data-dir` from a parameter `data_dir`.
    """
    return typer.Option(..., *names, metavar=metavar, help=help_text, **_completed(among), **details)


def switch(name: str, help_text: str, **details: Any) -> OptionInfo:
    """Return a boolean command-line option, which takes no value."""
    return typer.Option(name, help=help_text, **details)


def argument(metavar: str, help_text: str, among: Iterable[str] = (), **details: Any) -> ArgumentInfo:
    """Return a positional command-line argument."""
    return typer.Argument(metavar=metavar, help=help_text, **_completed(among), **details)


def _completed(among: Iterable[str]) -> dict[str, Any]:
    if not (words := list(among)):
        return {}
    return {"autocompletion": lambda incomplete: [word for word in words if word.startswith(incomplete)]}
