"""The audit runs that tables and figures share: each is carried out once and then read from its directory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproductions.bernau2021.neighbours import neighbour_of
from experiments.reproductions.bernau2021.settings import CLIPPING_NORM, InsiderSetting, configuration
from experiments.reproductions.papers import Context
from experiments.reproductions.playing import carry_out_all, planned_runs
from experiments.runs.config import RunConfig
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


def play(settings: Iterable[InsiderSetting], context: Context) -> dict[InsiderSetting, InsiderFindings]:
    """Carry out the runs that are not finished yet, and read what all of them found.

    Parameters
    ----------
    settings
        The settings to run; a setting that occurs several times is run once.
    context
        Where the runs are kept, how much is computed, and where clients run.

    Raises
    ------
    InputError
        If a setting cannot be run, or its directory holds something else.
    FederationError
        If a federation had to stop; the runs and batches that were finished are kept.
    """
    planned = planned_runs(settings, configuration, context)
    known = [(run.config, run.directory) for run in planned.values()]
    pending = [run for run in planned.values() if not run.is_finished]
    # Once the first run has begun that has a neighbour, the others read it there instead of searching again.
    carry_out_all([replace(run, pair=partial(neighbour_of, run.config, known)) for run in pending], context)
    return {one: _read_findings(one, run.config, run.directory) for one, run in planned.items()}


def _read_findings(setting: InsiderSetting, config: RunConfig, run: RunDirectory) -> InsiderFindings:
    """Read what a finished run found."""
    frames = {label: read_frame(run.path / f"{label}.parquet") for label in ("worlds", "rounds")}
    public, _ = read_public(run.path)
    return InsiderFindings(setting, config, read_json(run.summary), **frames, pair=public.pair)
