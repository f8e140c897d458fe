"""Execution of many runs, as the points of a sweep or the runs of a paper are: one by one, in processes, or on Ray.

Whoever plays several runs says how: one after the other in this process (`one_by_one`), in a process for each core
(`side_by_side`), or as a task of a Ray cluster each (`cluster.run_tasks`). What a run leaves if it is interrupted is a
second choice. `play_run` keeps its directory, where the run can go on. With `play_whole` the directory appears once the
run is finished.
"""

import multiprocessing
import os
import shutil
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fl_audit.errors import FederationError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.process_guard import nothing_outlives
from fl_audit.runs.progress import RunsProgress, progress_of_part
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class ScheduledRun:
    """A run that is to be played beside others: its plan, its directory, and its name in displays and errors."""

    label: str
    directory: Path
    trial_rounds: int  # trials times rounds, the unit of progress displays
    # Called in the process that plays the run, since a plan may search for its neighbour for minutes.
    plan: Callable[[], RunPlan]


OnRound = Callable[[int], None]
"""A function that receives the number of newly finished trial-rounds."""

Begin = Callable[[str], OnRound]
"""A function that shows what is being played, and returns one for newly finished trial-rounds."""

RunOutcome = tuple[ScheduledRun, str | None]
"""A run that has ended, and why it failed; None if it is finished."""

Execution = Callable[[Sequence[ScheduledRun], Begin], Generator[RunOutcome]]
"""A way to play runs, which yields each run as it ends."""


def play_runs(
    runs: Sequence[ScheduledRun],
    execution: Execution,
    progress: RunsProgress,
    on_finished: Callable[[ScheduledRun], None] = lambda run: None,
    *,
    stops_at_failure: bool = False,
) -> None:
    """Play runs, and call a function with each run that is finished.

    Raises `FederationError` with the labels of failed runs. The others are played before, unless `stops_at_failure`.
    """
    if not runs:
        return
    failures: list[str] = []
    total = sum(run.trial_rounds for run in runs)
    with progress(total) as begin, closing(execution(runs, begin)) as outcomes:
        for run, failure in outcomes:
            if failure is None:
                on_finished(run)
                continue
            failures.append(f"{run.label}: {failure}")
            if stops_at_failure:
                break
    if failures:
        raise FederationError(f"{'; '.join(failures)}; finished runs are kept, the same command goes on")


def play_run(
    run: ScheduledRun, on_round: OnRound, engine: Engine = Engine.LOCAL, ray_address: str | None = None
) -> None:
    """Play a run in its directory, without a report; if it was interrupted, continue it."""
    run_audit(
        run.plan(),
        run.directory,
        engine,
        ray_address,
        resume=RunDirectory(run.directory).is_begun,
        progress=progress_of_part(on_round, run.trial_rounds),
        with_report=False,  # `fl-audit report` writes it of those that somebody looks at
    )
    # The next run of this process is another federation; data sets would add up.
    load_federation.cache_clear()


def play_whole(run: ScheduledRun, on_round: OnRound) -> None:
    """Play a run on the local engine, without a report; its directory appears once it is finished."""
    unfinished = partial_directory(run.directory)
    try:
        play_run(replace(run, directory=unfinished), on_round)
        remove_locks(unfinished)
        unfinished.rename(run.directory)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def partial_directory(directory: Path) -> Path:
    """Return the path at which a directory is filled before it gets its name; an old directory there is deleted."""
    unfinished = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    return unfinished


def remove_partial_directories(directory: Path) -> None:
    """Delete what killed processes left of `play_whole` in a directory of runs; it holds the seeds of these runs."""
    for path in directory.glob(".*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def remove_locks(run: Path) -> None:
    """Delete the lock files of a run directory, which are of no use once the run has ended."""
    for lock in run.rglob(".lock"):
        lock.unlink()


def one_by_one(
    runs: Sequence[ScheduledRun], begin: Begin, play: Callable[[ScheduledRun, OnRound], None]
) -> Generator[RunOutcome]:
    """Play runs one after the other in this process; `play` is given each with a function for its trial-rounds."""
    for number, run in enumerate(runs, start=1):
        on_round = begin(f"{number}/{len(runs)} {run.label}")
        yield run, _failure_of(partial(play, run, on_round))


def side_by_side(
    runs: Sequence[ScheduledRun], begin: Begin, play: Callable[[ScheduledRun, OnRound], None], processes: int
) -> Generator[RunOutcome]:
    """Play runs in a pool of processes, which end with this one: small models use only one core each.

    `play` and the runs are pickled. The trial-rounds of a run are counted when it ends.
    """
    on_round = begin(f"0/{len(runs)} runs")
    with nothing_outlives():
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
        try:
            waiting = {pool.submit(play, run, _uncounted): run for run in runs}
            for number, ended in enumerate(as_completed(waiting), start=1):
                run = waiting[ended]
                failure = _failure_of(ended.result)
                on_round(run.trial_rounds)
                on_round = begin(f"{number}/{len(runs)} {run.label}")
                yield run, failure
        finally:
            pool.shutdown(cancel_futures=True)


def _failure_of(play: Callable[[], None]) -> str | None:
    """Return the message of the `FederationError` that a function raises; None if it raises none."""
    try:
        play()
    except FederationError as error:
        return str(error)
    return None


def _uncounted(trial_rounds: int) -> None:
    """Do nothing: a process of its own reports no progress."""
