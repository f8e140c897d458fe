"""Planning and execution of the runs behind tables and figures, and records of how long runs took.

`runs/sweeps/point_execution.py`, which plays the points of a sweep, says why both players are needed.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, nan
from pathlib import Path

from fl_audit.adjacency import NeighbourPair
from fl_audit.atomic_files import write_json
from fl_audit.errors import InputError
from fl_audit.experiments.papers.item_results import ItemRunProvenance
from fl_audit.experiments.papers.papers import PaperRun, ReproductionOptions, StoredPaperRun
from fl_audit.experiments.papers.shared_neighbours import shared_pair
from fl_audit.run_files import read_json
from fl_audit.runs.config import RunConfig
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.mechanism_of_config import rounds_of
from fl_audit.runs.planning import plan_run
from fl_audit.runs.process_guard import nothing_outlives
from fl_audit.runs.progress import progress_of_part
from fl_audit.runs.provenance import read_provenance
from fl_audit.runs.run import run_audit
from fl_audit.runs.run_directory import RunDirectory

_MOST_PROCESSES = 8


@dataclass(frozen=True)
class PlannedRun:
    """A run with its configuration, directory and name in progress displays; it may be finished, begun or not begun."""

    config: RunConfig
    path: Path
    label: str
    # Finds where D and D' differ, in the process that plays: it may search for minutes. None leaves it to the run.
    pair: Callable[[], NeighbourPair | None] | None = None

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished with this configuration."""
        return self.directory.is_finished(self.config)

    @property
    def trial_rounds(self) -> int:
        """Trials times rounds, the unit of progress displays."""
        return self.config.audit.trials * rounds_of(self.config)

    def carry_out(
        self, engine: Engine, ray_address: str | None = None, on_round: Callable[[int], None] = lambda done: None
    ) -> None:
        """Carry out the run; if it was interrupted, continue it."""
        begun = time.monotonic()
        run_audit(
            plan_run(self.config, self.pair and self.pair()),
            self.path,
            engine,
            ray_address if engine is Engine.RAY else None,
            resume=self.directory.is_begun,
            progress=progress_of_part(on_round, self.trial_rounds),
            with_report=False,  # `fl-audit report` writes it of those that somebody looks at
        )
        file = _seconds_file(self.path)
        seconds = time.monotonic() - begun
        before = float(read_json(file)["seconds"]) if file.exists() else 0.0  # of an earlier part of the run
        write_json(file, {"seconds": before + seconds})


def play(runs: Iterable[PaperRun], options: ReproductionOptions) -> dict[PaperRun, StoredPaperRun]:
    """Carry out the runs that are not finished, and return all of them."""
    planned = {
        run: PlannedRun(run.config(options.data_dir), options.runs / run.name, run.label) for run in dict.fromkeys(runs)
    }
    pending = [run for run in planned.values() if not run.is_finished]
    # Once the first run has begun that has a neighbour, the others read it there instead of searching again.
    played_runs = [(run.config, run.directory) for run in planned.values()]
    carry_out_all([replace(run, pair=partial(shared_pair, run.config, played_runs)) for run in pending], options)
    return {run: StoredPaperRun(run, planned_run.config, planned_run.path) for run, planned_run in planned.items()}


def carry_out_all(runs: Sequence[PlannedRun], options: ReproductionOptions) -> None:
    """Carry out runs in parallel processes, one per core, or with Ray one after the other.

    `options`: With Ray, or with one core or run, runs are carried out in this process.
    """
    if not runs:
        return
    with options.progress(sum(run.trial_rounds for run in runs)) as begin:
        if options.engine is Engine.RAY or min(len(runs), parallel_runs()) == 1:
            for number, run in enumerate(runs, start=1):
                on_round = begin(f"{number}/{len(runs)} {run.label}")
                run.carry_out(options.engine or Engine.LOCAL, options.ray_address, on_round)
        else:
            with nothing_outlives():
                _play_side_by_side(runs, begin)


def _play_side_by_side(tasks: Sequence[PlannedRun], begin: Callable[[str], Callable[[int], None]]) -> None:
    """Carry out runs in a pool of processes, one per core, because small models use only one core."""
    on_round = begin(f"0/{len(tasks)} runs")
    processes = ProcessPoolExecutor(min(len(tasks), parallel_runs()), multiprocessing.get_context("spawn"))
    try:
        waiting = {processes.submit(task.carry_out, Engine.LOCAL): task for task in tasks}
        for number, done in enumerate(as_completed(waiting), start=1):
            done.result()
            on_round(waiting[done].trial_rounds)
            on_round = begin(f"{number}/{len(tasks)} {waiting[done].label}")
    finally:
        processes.shutdown(cancel_futures=True)


def parallel_runs() -> int:
    """Return the number of runs at a time: one per usable core, up to a limit, since each run needs 1 to 2 GB."""
    return min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def _seconds_file(run: Path) -> Path:
    """Return the path of the file that records a run's duration; the file is next to the run directory."""
    return run.with_name(f"{run.name}.seconds.json")


def seconds_of(run: Path) -> float:
    """Return the duration of a finished run in seconds; NaN if unknown.

    If no duration was recorded, the result is the sum of the durations of setup and training.
    """
    file = _seconds_file(run)
    if file.exists():
        return float(read_json(file)["seconds"])
    try:
        timing = read_json(run / "timing.json")
    except InputError:
        return nan
    return float(timing["setup_seconds"]) + float(timing["training_seconds"])


def spent_on(runs: Iterable[StoredPaperRun]) -> ItemRunProvenance:
    """Return the total number of trials, the total duration, and the commits with which runs were made."""
    wanted_runs = list(runs)
    commits = set[str]()
    for run in wanted_runs:
        origin = read_provenance(RunDirectory(run.path))
        commits |= {session.commit for session in origin.sessions if session.commit} if origin else set()
    seconds = sum(seconds_of(run.path) for run in wanted_runs)
    trials = sum(run.config.audit.trials for run in wanted_runs)
    return ItemRunProvenance(trials, seconds / 60 if isfinite(seconds) else nan, tuple(sorted(commits)))
