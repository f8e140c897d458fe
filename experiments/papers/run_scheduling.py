"""The runs behind tables and figures: how they are planned and played, and records of how long they took.

The runs are played by `runs/many_runs.py`, each in its directory, where it goes on if it was interrupted. A run that
fails ends the reproduction, whose tables need all of their runs.
"""

import os
import time
from collections.abc import Iterable
from functools import partial
from math import isfinite, nan
from pathlib import Path

from fl_audit.atomic_files import write_json
from fl_audit.errors import InputError
from fl_audit.experiments.papers.item_results import ItemRunProvenance
from fl_audit.experiments.papers.papers import PaperRun, ReproductionOptions, StoredPaperRun
from fl_audit.experiments.papers.shared_neighbours import shared_pair
from fl_audit.federation.run_plan import RunPlan
from fl_audit.run_files import read_json
from fl_audit.runs.config import RunConfig
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.many_runs import Execution, OnRound, ScheduledRun, one_by_one, play_run, play_runs, side_by_side
from fl_audit.runs.mechanism_of_config import rounds_of
from fl_audit.runs.planning import plan_run
from fl_audit.runs.provenance import read_provenance
from fl_audit.runs.run_directory import RunDirectory

_MOST_PROCESSES = 8


def play(runs: Iterable[PaperRun], options: ReproductionOptions) -> dict[PaperRun, StoredPaperRun]:
    """Carry out the runs that are not finished, and return all of them."""
    stored_runs = {
        run: StoredPaperRun(run, run.config(options.data_dir), options.runs / run.name) for run in dict.fromkeys(runs)
    }
    # Once the first run has begun that has a neighbour, the others read it there instead of searching again.
    directories = [(stored.config, RunDirectory(stored.path)) for stored in stored_runs.values()]
    pending = [
        ScheduledRun(
            stored.run.label,
            stored.path,
            stored.config.audit.trials * rounds_of(stored.config),
            partial(_planned, stored.config, directories),
        )
        for stored in stored_runs.values()
        if not RunDirectory(stored.path).is_finished(stored.config)
    ]
    play_runs(pending, execution_of(len(pending), options), options.progress, stops_at_failure=True)
    return stored_runs


def _planned(config: RunConfig, other_runs: Iterable[tuple[RunConfig, RunDirectory]]) -> RunPlan:
    """Return the plan of a run, whose neighbour is read from one of the other runs if it has the same."""
    return plan_run(config, shared_pair(config, other_runs))


def execution_of(runs: int, options: ReproductionOptions) -> Execution:
    """Return how to play a number of runs: in processes, one per core, or with Ray one after the other.

    With one core or one run, it is played in this process.
    """
    processes = min(runs, parallel_runs())
    if options.engine is Engine.RAY:
        return partial(one_by_one, play=partial(_play_timed, engine=Engine.RAY, ray_address=options.ray_address))
    if processes <= 1:
        return partial(one_by_one, play=_play_timed)
    return partial(side_by_side, play=_play_timed, processes=processes)


def parallel_runs() -> int:
    """Return the number of runs at a time: one per usable core, up to a limit, since each run needs 1 to 2 GB."""
    return min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def _play_timed(
    run: ScheduledRun, on_round: OnRound, engine: Engine = Engine.LOCAL, ray_address: str | None = None
) -> None:
    """Play a run, and record how long it took beside the durations of its earlier parts."""
    begun = time.monotonic()
    play_run(run, on_round, engine, ray_address)
    seconds = time.monotonic() - begun
    file = _seconds_file(run.directory)
    before = float(read_json(file)["seconds"]) if file.exists() else 0.0
    write_json(file, {"seconds": before + seconds})


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
