"""Argument parsers, printed tables and exit statuses of the commands of studies and benchmarks."""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from typing import NoReturn

from rich.table import Table


def parser_of(doc: str | None, quick: str = "") -> ArgumentParser:
    """Return an argument parser whose help shows a command's docstring without reformatting."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def table_of(
    columns: Sequence[str], title: str | None = None, words: Sequence[str] = (), rows: Iterable[Sequence[str]] = ()
) -> Table:
    """Return a table for printing on the console."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    for row in rows:
        table.add_row(*row)
    return table


def exit_with(problems: Sequence[str], fine: str) -> NoReturn:
    """Print `problems` and exit with status 1, or print `fine` and exit with status 0 if there are none."""
    print("\n".join(problems) or fine)
    sys.exit(1 if problems else 0)
