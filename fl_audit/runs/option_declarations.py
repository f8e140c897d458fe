"""Declarations of command-line options and arguments."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo


def option(
    metavar: str | None, said: str, among: Iterable[str] = (), names: tuple[str, ...] = (), **more: Any
) -> OptionInfo:
    """Return a command-line option that takes a value.

    Parameters
    ----------
    metavar
        Placeholder for the value in the help, such as "FILE"; None for typer's own.
    said
        Explanation in the help.
    among
        Values that shell completion offers.
    names
        Names of the option, such as "--set". If empty, typer makes `--data-dir` from a parameter `data_dir`.
    more
        Further arguments of `typer.Option`.
    """
    return typer.Option(..., *names, metavar=metavar, help=said, **_completed(among), **more)


def switch(name: str, said: str) -> OptionInfo:
    """Return a boolean command-line option, which takes no value.

    Parameters
    ----------
    name
        Name of the option, such as "--json".
    said
        Explanation in the help.
    """
    return typer.Option(name, help=said)


def argument(metavar: str, said: str, among: Iterable[str] = (), **more: Any) -> ArgumentInfo:
    """Return a positional command-line argument.

    Parameters
    ----------
    metavar
        Name in the help, such as "DIR".
    said
        Explanation in the help.
    among
        Values that shell completion offers.
    more
        Further arguments of `typer.Argument`.
    """
    return typer.Argument(metavar=metavar, help=said, **_completed(among), **more)


def _completed(among: Iterable[str]) -> dict[str, Any]:
    if not (words := list(among)):
        return {}
    return {"autocompletion": lambda incomplete: [word for word in words if word.startswith(incomplete)]}
