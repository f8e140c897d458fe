"""Declarations of command-line options and arguments."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo


def option(
    metavar: str | None, said: str, among: Iterable[str] = (), names: tuple[str, ...] = (), **more: Any
) -> OptionInfo:
    """Return a command-line option that takes a value.

    `names`: If empty, typer makes `--data-dir` from a parameter `data_dir`.
    """
    return typer.Option(..., *names, metavar=metavar, help=said, **_completed(among), **more)


def switch(name: str, said: str, **more: Any) -> OptionInfo:
    """Return a boolean command-line option, which takes no value."""
    return typer.Option(name, help=said, **more)


def argument(metavar: str, said: str, among: Iterable[str] = (), **more: Any) -> ArgumentInfo:
    """Return a positional command-line argument."""
    return typer.Argument(metavar=metavar, help=said, **_completed(among), **more)


def _completed(among: Iterable[str]) -> dict[str, Any]:
    if not (words := list(among)):
        return {}
    return {"autocompletion": lambda incomplete: [word for word in words if word.startswith(incomplete)]}
