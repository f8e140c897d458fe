"""Runs that tables and figures share: planned by settings, carried out unless they are finished, then read."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from experiments.reproductions.papers import Context, Extent
from experiments.reproductions.spent import note_seconds
from experiments.runs.config import RunConfig
from experiments.runs.engines import Engine
from experiments.runs.laws import rounds_of
from experiments.runs.plan import resolve
from experiments.runs.progress import part_of
from experiments.runs.run import run_audit
from experiments.runs.run_directory import RunDirectory
from fl_audit.adjacency import NeighbourPair


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
        self,
        engine: Engine,
        ray_address: str | None = None,
        on_round: Callable[[int], None] = lambda done: None,
        pair: NeighbourPair | None = None,
        with_report: bool = False,
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
        pair
            Where D and D' differ, if that is known.
        with_report
            Whether the report is written.
        """
        begun = time.monotonic()
        run_audit(
            resolve(self.config, pair),
            self.path,
            engine,
            ray_address if engine is Engine.RAY else None,
            resume=self.directory.configuration.exists(),
            progress=part_of(on_round, self.world_rounds),
            with_report=with_report,
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
    configure
        Returns the configuration of a setting.
    context
        Where runs are kept, and how much is computed.

    Raises
    ------
    InputError
        If a setting cannot be run.
    """
    return {
        one: PlannedRun(configure(one, context.extent, context.data_dir), context.runs / one.name, one.label)
        for one in dict.fromkeys(settings)
    }
