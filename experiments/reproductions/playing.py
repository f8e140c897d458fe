"""Runs that tables and figures share: planned by settings, carried out unless they are finished, then read."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from experiments.reproductions.papers import Context, Extent
from experiments.reproductions.spent import note_seconds
from experiments.runs.config import RunConfig
from experiments.runs.engines import Engine
from experiments.runs.guard import nothing_outlives
from experiments.runs.laws import rounds_of
from experiments.runs.plan import resolve
from experiments.runs.progress import part_of
from experiments.runs.run import run_audit
from experiments.runs.run_directory import RunDirectory
from fl_audit.adjacency import NeighbourPair

_MOST_PROCESSES = 8


class NamedSetting(Protocol):
    """A setting of a paper."""

    @property
    def name(self) -> str:
        """Name of its run directory."""
        ...

    @property
    def label(self) -> str:
        """Its name in the display."""
        ...


Setting = TypeVar("Setting", bound=NamedSetting)


@dataclass(frozen=True)
class PlannedRun:
    """A run: its configuration, its directory, and its name in the display."""

    config: RunConfig
    path: Path
    label: str
    # Finds where D and D' differ, in the process that plays: it may search for minutes. None leaves it to the run.
    pair: Callable[[], NeighbourPair] | None = None

    @property
    def directory(self) -> RunDirectory:
        """Where it is kept."""
        return RunDirectory(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether it is there already."""
        return self.directory.is_finished(self.config)

    @property
    def world_rounds(self) -> int:
        """How much it takes, as progress counts."""
        return self.config.audit.worlds * rounds_of(self.config)

    def carry_out(
        self, engine: Engine, ray_address: str | None = None, on_round: Callable[[int], None] = lambda done: None
    ) -> None:
        """Carry the run out, or the rest of it.

        Parameters
        ----------
        engine
            Where the clients run.
        ray_address
            Address of a running Ray cluster; None starts one where it is needed.
        on_round
            Told how many world-rounds are done.
        """
        begun = time.monotonic()
        run_audit(
            resolve(self.config, self.pair and self.pair()),
            self.path,
            engine,
            ray_address if engine is Engine.RAY else None,
            resume=self.directory.configuration.exists(),
            progress=part_of(on_round, self.world_rounds),
            with_report=False,  # `fl-audit report` writes it of those that somebody looks at
        )
        note_seconds(self.path, time.monotonic() - begun)


def planned_runs(
    settings: Iterable[Setting], configure: Callable[[Setting, Extent, Path | None], RunConfig], context: Context
) -> dict[Setting, PlannedRun]:
    """Return the run of each setting, once where it occurs several times.

    Parameters
    ----------
    settings
        What is to be run.
    configure, context
        Returns the configuration of a setting; where runs are kept, and how much is computed.

    Raises
    ------
    InputError
        If a setting cannot be run.
    """
    return {
        one: PlannedRun(configure(one, context.extent, context.data_dir), context.runs / one.name, one.label)
        for one in dict.fromkeys(settings)
    }


def carry_out_all(runs: Sequence[PlannedRun], context: Context) -> None:
    """Carry runs out side by side, one on every core, or one after the other where they use all cores.

    Parameters
    ----------
    runs
        What to run; none of them is finished.
    context
        Where clients run: each run in a process of its own, unless Ray is named or there is one core or run alone.

    Raises
    ------
    FederationError
        If a federation had to stop; the runs and batches that were finished are kept.
    """
    if not runs:
        return
    with context.progress(sum(run.world_rounds for run in runs)) as begin:
        if context.engine is Engine.RAY or min(len(runs), cores()) == 1:
            _play_in_turn(runs, context, begin)
        else:
            with nothing_outlives():
                _play_side_by_side(runs, begin)


_Begin = Callable[[str], Callable[[int], None]]


def _play_in_turn(tasks: Sequence[PlannedRun], context: Context, begin: _Begin) -> None:
    engine = context.engine or Engine.LOCAL
    for number, task in enumerate(tasks, start=1):
        on_round = begin(f"{number}/{len(tasks)} {task.label}")
        task.carry_out(engine, context.ray_address, on_round)


def _play_side_by_side(tasks: Sequence[PlannedRun], begin: _Begin) -> None:
    """Carry out as many runs at a time as there are cores, each in a process: attacks and small models use one."""
    on_round = begin(f"0/{len(tasks)} runs")
    processes = ProcessPoolExecutor(min(len(tasks), cores()), multiprocessing.get_context("spawn"))
    try:
        waiting = {processes.submit(task.carry_out, Engine.LOCAL): task for task in tasks}
        for number, done in enumerate(as_completed(waiting), start=1):
            done.result()
            on_round(waiting[done].world_rounds)
            on_round = begin(f"{number}/{len(tasks)} {waiting[done].label}")
    finally:
        processes.shutdown(cancel_futures=True)


def cores() -> int:
    """Return how many runs may be carried out at the same time; each holds a gigabyte or two."""
    return min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
