"""Tables and consoles that escape control characters, so that data and file names cannot control the terminal."""

from collections.abc import Container, Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from fl_audit.runs.verbosity import plain


class EscapingConsole(Console):
    """A console of the library rich that escapes control characters in its output."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield an output of rich as segments (pieces of styled text), with escaped control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """Return a console of the library rich that shows square brackets as they are, and escapes control characters.

    The console writes to standard output, or with `stderr` to standard error.
    """
    return EscapingConsole(stderr=stderr, markup=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    numbers: Container[int] = (),
    notes: Iterable[str] = (),
) -> None:
    """Print a table to standard output, with notes below it."""
    table = Table(title=title)
    for index, column in enumerate(columns):
        # A name that does not fit is folded: one that was cut cannot be copied into the next command.
        table.add_column(column, justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    target_console = console()
    target_console.print(table)
    for note in notes:
        target_console.print(note, highlight=False)
