"""Displays of the progress of long tasks on standard error, which show nothing with the verbosity "quiet".

Progress is counted in trial-rounds: one trial-round is one round of one trial.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fl_audit.runs import verbosity
from fl_audit.runs.terminal import console as console_for

SECONDS_UNTIL_A_LINE = 2.0
SECONDS_BETWEEN_LINES = 10.0
"""Seconds until the first line on the work, and between later lines, where standard error is no terminal."""
_SECONDS_BETWEEN_LINES_HEARD = 1.0
"""Seconds between lines for a function that replaces each line by the next, and is called at once."""

_Show = Callable[[int, str], None]
"""A function that takes the number of newly finished trial-rounds (rounds of trials), and the present activity."""

Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""A display: takes a number of trial-rounds, and gives its block a function for newly finished ones."""

RunsProgress = Callable[[int], AbstractContextManager[Callable[[str], Callable[[int], None]]]]
"""A display of several runs: gives its block a function that takes a run's name and returns one for its progress."""


def no_progress(total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Return a context manager that takes the place of `progress_bar` and shows nothing; `total` is not used."""
    return nullcontext(lambda done: None)


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a run of `total` trial-rounds: as a bar on a terminal, otherwise as lines at intervals.

    The `with` block receives a function, and calls it with the number of newly finished trial-rounds.
    """
    with _display(total, "starting the clients") as show:
        yield lambda done: show(done, "playing")


@contextmanager
def steps_bar(subject: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a task that consists of steps: as a bar on a terminal, otherwise as lines at intervals.

    The `with` block receives a function, and calls it with the number of newly finished steps.
    """
    with _display(total, subject, "steps") as show:
        yield lambda done: show(done, subject)


def no_runs_progress(total: int) -> AbstractContextManager[Callable[[str], Callable[[int], None]]]:
    """Return a context manager that takes the place of `runs_progress_bar` and shows nothing; `total` is not used."""
    return nullcontext(lambda name: lambda done: None)


@contextmanager
def runs_progress_bar(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show a common progress bar for several runs, with the name of the current run.

    A trial-round is one round of one trial, and `total` is their number in all runs. The `with` block receives a
    function, and calls it with the name of each run that begins. That call returns a second function, which the run
    calls with the number of newly finished trial-rounds.
    """
    with _display(total, "starting") as show:

        def begin(name: str) -> Callable[[int], None]:
            show(0, name)
            return lambda done: show(done, name)

        yield begin


def progress_of_part(on_round: Callable[[int], None], planned: int) -> Progress:
    """Return a progress display for one of several runs; it reports to the common display of all of them.

    If an interrupted run is continued, the trial-rounds that it finished before are reported when it begins.
    """

    def begin(pending: int) -> AbstractContextManager[Callable[[int], None]]:
        on_round(planned - pending)
        return nullcontext(on_round)

    return begin


@contextmanager
def at_work(subject: str) -> Iterator[None]:
    """Show that a task is going on while the `with` block runs: a spinner on a terminal, else lines at intervals.

    `subject` is the phrase for the task that is shown, such as "looking at data and model".
    """
    verbosity.LOG.info(subject)
    console = console_for(stderr=True)
    if verbosity.is_quiet():
        yield
    elif console.is_terminal and not verbosity.has_listener():
        with console.status(subject):
            yield
    else:
        begun = time.monotonic()

        def line() -> str:
            gone = time.monotonic() - begun
            if verbosity.has_listener():  # it is asked every second, and is given a new line every ten seconds
                gone -= gone % SECONDS_BETWEEN_LINES
            return subject if gone < SECONDS_BETWEEN_LINES else f"{subject}: {gone:.0f} s gone"

        with _repeating_line(line):
            yield


@contextmanager
def _repeating_line(line: Callable[[], str]) -> Iterator[None]:
    """While the block runs, print a line on standard error at intervals; `line` returns its current text.

    A function that receives the lines is not given the same line twice in succession.
    """
    over = threading.Event()
    is_heard = verbosity.has_listener()
    first, between, last = SECONDS_UNTIL_A_LINE, SECONDS_BETWEEN_LINES, ""

    def say() -> None:
        nonlocal last
        text = line()
        if not is_heard or text != last:
            verbosity.say(text)
        last = text

    if is_heard:
        say()
        first = between = _SECONDS_BETWEEN_LINES_HEARD

    def tell() -> None:
        wait = first
        while not over.wait(wait):
            say()
            wait = between

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()
        if is_heard:
            say()


def _display(total: int, subject: str, of: str = "trial-rounds") -> AbstractContextManager[_Show]:
    if verbosity.is_quiet():
        return nullcontext(lambda done, subject: None)
    is_drawn = console_for(stderr=True).is_terminal and not verbosity.has_listener()
    return _bar(total, subject, of) if is_drawn else _lines(total, subject, of)


@contextmanager
def _bar(total: int, subject: str, of: str) -> Iterator[_Show]:
    reached = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(f"{of},")
    times = TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left")
    with Bar(*reached, *times, console=console_for(stderr=True)) as bar:
        task = bar.add_task(subject, total=total)
        yield lambda done, subject: bar.update(task, advance=done, description=subject)


@contextmanager
def _lines(total: int, subject: str, of: str) -> Iterator[_Show]:
    """Show progress as lines at intervals, for outputs such as logs, in which a bar cannot be redrawn.

    `total` is the number of steps of the task, `subject` its first activity, and `of` the word for steps, such as
    "trial-rounds".
    """
    begun, reached, doing = time.monotonic(), 0, subject
    first = (begun, 0)

    def show(done: int, subject: str) -> None:
        nonlocal first, reached, doing
        if done and not reached:  # until then clients were starting, which tells nothing of the rounds to come
            first = (time.monotonic(), done)
        reached, doing = reached + done, subject

    def line() -> str:
        since, before = first
        now = time.monotonic()
        remaining_text = ""
        if reached > before:
            remaining_text = f", about {(now - since) / (reached - before) * (total - reached):.0f} s left"
        return f"{doing}: {reached:,} of {total:,} {of}, {now - begun:.0f} s gone{remaining_text}"

    with _repeating_line(line):
        yield show
