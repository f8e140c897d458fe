"""Signs that long work goes on, and none where nobody looks."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from experiments import talk

SECONDS_UNTIL_LINES, SECONDS_BETWEEN_LINES = 5.0, 15.0
"""When the first line is printed, and how often others are, where standard error is no terminal."""

SECONDS_UNTIL_A_LINE = 2.0  # after so long work without rounds says what it is, where standard error is no terminal

_Show = Callable[[int, str], None]  # told how many more world-rounds are done, and what goes on

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
    """Show on standard error how far a run is and how much time is left: a bar, or lines where that is no terminal."""
    with _display(total) as show:
        show(0, "starting the clients")
        yield lambda done: show(done, "playing")


@contextmanager
def no_runs_progress(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show nothing over several runs."""
    yield lambda name: lambda done: None


@contextmanager
def runs_progress_bar(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show the same over several runs, with the name of the present one."""
    with _display(total) as show:
        show(0, "starting")

        def begin(name: str) -> Callable[[int], None]:
            show(0, name)
            return lambda done: show(done, name)

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


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """Show on standard error that work of unknown length goes on; if that is no terminal, a line if it takes long."""
    talk.LOG.info(what)
    console = Console(stderr=True, markup=False)
    if talk.is_quiet():
        yield
    elif console.is_terminal:
        with console.status(what):
            yield
    else:
        line = threading.Timer(SECONDS_UNTIL_A_LINE, print, (what,), {"file": sys.stderr, "flush": True})
        line.daemon = True
        line.start()
        try:
            yield
        finally:
            line.cancel()


def _display(total: int) -> AbstractContextManager[_Show]:
    if talk.is_quiet():
        return nullcontext(lambda done, what: None)
    return _bar(total) if Console(stderr=True).is_terminal else _lines(total)


@contextmanager
def _bar(total: int) -> Iterator[_Show]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("world-rounds,"),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, what: bar.update(task, advance=done, description=what)


@contextmanager
def _lines(total: int) -> Iterator[_Show]:
    """Print a line every so often: a log has no place for a bar that is drawn over itself."""
    begun, reached = time.monotonic(), 0
    due, first = begun + SECONDS_UNTIL_LINES, (begun, 0)

    def show(done: int, what: str) -> None:
        nonlocal due, first, reached
        now = time.monotonic()
        if done and not reached:  # until then clients were starting, which tells nothing of the rounds to come
            first = (now, done)
        reached += done
        if now < due:
            return
        due = now + SECONDS_BETWEEN_LINES
        since, before = first
        left = (
            f", about {(now - since) / (reached - before) * (total - reached):.0f} s left" if reached > before else ""
        )
        gone = f"{now - begun:.0f} s gone{left}"
        print(f"{what}: {reached:,} of {total:,} world-rounds, {gone}", file=sys.stderr, flush=True)

    yield show
