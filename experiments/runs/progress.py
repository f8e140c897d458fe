"""Progress displays of long tasks on standard error; they are off if the verbosity is quiet."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fl_audit.experiments import verbosity
from fl_audit.experiments.terminal import console as console_for

SECONDS_UNTIL_A_LINE, SECONDS_BETWEEN_LINES = 2.0, 10.0
"""Seconds until the first line on the work, and between later lines, where standard error is no terminal."""
_SECONDS_BETWEEN_LINES_HEARD = 1.0
"""Seconds between lines for a function that replaces each line by the next, and is called at once."""

_Show = Callable[[int, str], None]
"""A function that takes the number of further finished trial-rounds, and the present activity."""

Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""A function that opens a display of some trial-rounds; the block gets a function for the number of finished ones."""

RunsProgress = Callable[[int], AbstractContextManager[Callable[[str], Callable[[int], None]]]]
"""A function that opens a display over several runs; the block gets one that names the next run and shows it."""


def no_progress(total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Return a context manager in place of `progress_bar` that shows nothing."""
    return nullcontext(lambda done: None)


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """Show progress and remaining time of a run on standard error: a bar on a terminal, otherwise lines."""
    with _display(total) as show:
        show(0, "starting the clients")
        yield lambda done: show(done, "playing")


@contextmanager
def steps_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a task in steps; the block calls the yielded function with the number of new steps.

    Parameters
    ----------
    what
        Name of the task for the display.
    total
        Largest number of steps.
    """
    with _display(total, "steps") as show:
        show(0, what)
        yield lambda done: show(done, what)


def no_runs_progress(total: int) -> AbstractContextManager[Callable[[str], Callable[[int], None]]]:
    """Return a context manager in place of `runs_progress_bar` that shows nothing."""
    return nullcontext(lambda name: lambda done: None)


@contextmanager
def runs_progress_bar(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show the progress of several runs with the name of the current one; the yielded function begins a run."""
    with _display(total) as show:
        show(0, "starting")

        def begin(name: str) -> Callable[[int], None]:
            show(0, name)
            return lambda done: show(done, name)

        yield begin


def part_of(on_round: Callable[[int], None], planned: int) -> Progress:
    """Return a progress display of one run that reports to the display of several runs.

    If a run is continued, the part that was finished before is reported when the run begins.

    Parameters
    ----------
    on_round
        Function that is called with the number of newly finished trial-rounds.
    planned
        Number of trial-rounds in the run.
    """

    def begin(pending: int) -> AbstractContextManager[Callable[[int], None]]:
        on_round(planned - pending)
        return nullcontext(on_round)

    return begin


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """Show on standard error that a task of unknown length is going on: a spinner on a terminal, otherwise lines."""
    verbosity.LOG.info(what)
    console = console_for(stderr=True)
    if verbosity.is_quiet():
        yield
    elif console.is_terminal and not verbosity.is_heard():
        with console.status(what):
            yield
    else:
        begun = time.monotonic()

        def line() -> str:
            gone = time.monotonic() - begun
            return what if gone < SECONDS_BETWEEN_LINES else f"{what}: {gone:.0f} s gone"

        with _said_again(line):
            yield


@contextmanager
def _said_again(line: Callable[[], str]) -> Iterator[None]:
    """Print the result of `line` to standard error at regular intervals until the block ends."""
    over, is_heard = threading.Event(), verbosity.is_heard()
    first, between = SECONDS_UNTIL_A_LINE, SECONDS_BETWEEN_LINES
    if is_heard:
        verbosity.say(line())
        first = between = _SECONDS_BETWEEN_LINES_HEARD

    def tell() -> None:
        wait = first
        while not over.wait(wait):
            verbosity.say(line())
            wait = between

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()
        if is_heard:
            verbosity.say(line())


def _display(total: int, of: str = "trial-rounds") -> AbstractContextManager[_Show]:
    if verbosity.is_quiet():
        return nullcontext(lambda done, what: None)
    is_drawn = console_for(stderr=True).is_terminal and not verbosity.is_heard()
    return _bar(total, of) if is_drawn else _lines(total, of)


@contextmanager
def _bar(total: int, of: str) -> Iterator[_Show]:
    reached = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(f"{of},")
    times = TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left")
    with Bar(*reached, *times, console=console_for(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, what: bar.update(task, advance=done, description=what)


@contextmanager
def _lines(total: int, of: str) -> Iterator[_Show]:
    """Print the progress as a line at regular intervals, for logs and other outputs that cannot redraw a bar."""
    begun, reached, doing = time.monotonic(), 0, ""
    first = (begun, 0)

    def show(done: int, what: str) -> None:
        nonlocal first, reached, doing
        if done and not reached:  # until then clients were starting, which tells nothing of the rounds to come
            first = (time.monotonic(), done)
        reached, doing = reached + done, what

    def line() -> str:
        (since, before), now, left = first, time.monotonic(), ""
        if reached > before:
            left = f", about {(now - since) / (reached - before) * (total - reached):.0f} s left"
        return f"{doing}: {reached:,} of {total:,} {of}, {now - begun:.0f} s gone{left}"

    with _said_again(line):
        yield show
