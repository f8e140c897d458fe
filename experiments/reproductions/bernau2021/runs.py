"""The audit runs that tables and figures share: each is carried out once and then read from its directory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproductions.bernau2021.neighbours import neighbour_of
from experiments.reproductions.bernau2021.settings import CLIPPING_NORM, InsiderSetting, configuration
from experiments.reproductions.papers import Extent
from experiments.runs.config import RunConfig
from experiments.runs.engines import Engine
from experiments.runs.laws import rounds_of
from experiments.runs.plan import resolve
from experiments.runs.progress import RunsProgress, no_runs_progress, part_of
from experiments.runs.run import run_audit
from experiments.runs.run_directory import RunDirectory, read_public
from experiments.runs.store import read_frame
from fl_audit.adjacency import NeighbourPair
from fl_audit.arrays import Floats
from fl_audit.mechanisms.noise import SENSITIVITY_FLOOR
from fl_audit.stored_json import read_json


@dataclass(frozen=True)
class InsiderFindings:
    """What one run found, as read from its directory."""

    setting: InsiderSetting  # the setting that was run
    config: RunConfig  # its configuration
    summary: Mapping[str, Any]  # contents of `summary.json`
    # `worlds`, `rounds`: the tables of the run.
    worlds: pd.DataFrame
    rounds: pd.DataFrame
    pair: NeighbourPair  # where D and D' differ

    @property
    def repetitions(self) -> int:
        """Number of worlds."""
        return len(self.worlds)

    @property
    def promised_mu(self) -> float:
        """Gaussian-DP parameter of the noise: sqrt(k) / z."""
        promise = self.summary["guarantee"]
        return float(np.sqrt(promise["rounds"]) / promise["noise_multiplier"])

    @property
    def sensitivities(self) -> Floats:
        """Local sensitivities, shape (worlds, rounds)."""
        return self._by_world("local_sensitivity")

    @property
    def mu_of_worlds(self) -> Floats:
        """Square root of the sum of (Delta_i / sigma_i)^2 over the rounds, shape (worlds,)."""
        signal = self.sensitivities / self._by_world("sigma")
        return np.asarray(np.sqrt(np.sum(signal**2, axis=1)), dtype=np.float64)

    @property
    def floored_share(self) -> float:
        """Share of rounds in which the differing record changed so little that the noise was kept at its floor."""
        return float(np.mean(self.sensitivities < SENSITIVITY_FLOOR * CLIPPING_NORM))

    @property
    def engine(self) -> str:
        """Where the clients ran."""
        return str(self.summary["timing"]["engine"] or "not noted")

    def _by_world(self, column: str) -> Floats:
        values: Floats = self.rounds[column].to_numpy(dtype=np.float64).reshape(self.repetitions, -1)
        return values


def play(
    settings: Iterable[InsiderSetting],
    extent: Extent,
    data_dir: Path | None,
    directory: Path,
    engine: Engine | None = None,
    progress: RunsProgress = no_runs_progress,
    ray_address: str | None = None,
) -> dict[InsiderSetting, InsiderFindings]:
    """Carry out the runs that are not finished yet, and read what all of them found.

    Parameters
    ----------
    settings
        The settings to run; a setting that occurs several times is run once.
    extent
        Full or quick.
    data_dir
        Data directory; None means that of the environment.
    directory
        Where the run directories are. Finished runs are read, and interrupted ones are continued.
    engine
        Where the clients run; None means the engine that suits the data set, and in the quick form this process, since
        its runs are too short to start Ray for.
    progress
        Shows the progress of all runs together.
    ray_address
        Address of a running Ray cluster for the runs on Ray; None starts one here.

    Raises
    ------
    InputError
        If a setting cannot be run, or its directory holds something else.
    FederationError
        If a federation had to stop; the runs and batches that were finished are kept.
    """
    wanted = list(dict.fromkeys(settings))
    directories = {setting: RunDirectory(directory / setting.name) for setting in wanted}
    configurations = {setting: configuration(setting, extent, data_dir) for setting in wanted}
    pending = [one for one in wanted if not directories[one].is_finished(configurations[one])]
    if pending:
        known = [(configurations[one], directories[one]) for one in wanted]
        with progress(sum(_world_rounds(configurations[one]) for one in pending)) as begin:
            for number, setting in enumerate(pending, start=1):
                on_round = begin(f"{number}/{len(pending)} {setting.label}")
                run, config = directories[setting], configurations[setting]
                chosen = engine or (setting.data.engine if extent is Extent.FULL else Engine.LOCAL)
                run_audit(
                    resolve(config, neighbour_of(config, known)),
                    run.path,
                    chosen,
                    ray_address if chosen is Engine.RAY else None,
                    resume=run.configuration.exists(),
                    progress=part_of(on_round, _world_rounds(config)),
                    with_report=extent is Extent.FULL,
                )
    return {setting: read_findings(setting, configurations[setting], directories[setting]) for setting in wanted}


def _world_rounds(config: RunConfig) -> int:
    return config.audit.worlds * rounds_of(config)


def read_findings(setting: InsiderSetting, config: RunConfig, run: RunDirectory) -> InsiderFindings:
    """Read what a finished run found.

    Raises
    ------
    InputError
        If the run is not finished.
    """
    frames = {label: read_frame(run.path / f"{label}.parquet") for label in ("worlds", "rounds")}
    public, _ = read_public(run.path)
    return InsiderFindings(setting, config, read_json(run.summary), **frames, pair=public.pair)
