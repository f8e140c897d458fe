"""Signs that long work goes on, and none where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Opens a display of so many world-rounds; the block gets a function that is told how many are done."""


RunsProgress = Callable[[int], AbstractContextManager[Callable[[str], Callable[[int], None]]]]
"""Opens a display over several runs; the block gets a function that names the next run and returns its display."""


@contextmanager
def no_progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show nothing."""
    yield lambda done: None


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, with the time that is left."""
    with _bar() as bar:
        task = bar.add_task("starting the clients", total=total)

        def on_round(done: int) -> None:
            bar.update(task, advance=done, description="playing")

        yield on_round


@contextmanager
def no_runs_progress(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show nothing over several runs."""
    yield lambda name: lambda done: None


@contextmanager
def runs_progress_bar(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show one bar over several runs on standard error, with the name of the present one and the time that is left."""
    with _bar() as bar:
        task = bar.add_task("starting", total=total)

        def begin(name: str) -> Callable[[int], None]:
            bar.update(task, description=name)
            return lambda done: bar.update(task, advance=done)

        yield begin


def part_of(on_round: Callable[[int], None], planned: int) -> Progress:
    """Return the progress display of one run within that of several runs.

    What an earlier attempt has finished is counted when the run begins.

    Parameters
    ----------
    on_round
        Told how many world-rounds are done.
    planned
        World-rounds of the run.
    """

    def begin(pending: int) -> AbstractContextManager[Callable[[int], None]]:
        on_round(planned - pending)
        return nullcontext(on_round)

    return begin


def _bar() -> Bar:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("world-rounds,"),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    return Bar(*columns, console=Console(stderr=True))


def at_work(what: str) -> AbstractContextManager[object]:
    """Show on standard error, if it is a terminal, that work of unknown length goes on."""
    return Console(stderr=True).status(what)
