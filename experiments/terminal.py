"""Consoles for tables and progress, in which nothing that data or file names hold acts on the terminal."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fl_audit.experiments.talk import plain


class PlainConsole(Console):
    """A console of rich that writes control characters in what is printed as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """Return a console for standard output, or for standard error; brackets in what is printed are no markup."""
    return PlainConsole(stderr=stderr, markup=False)
