"""The audit runs that tables and figures share: choice of the differing record, execution, and reading of results."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fl_audit.adjacency import Adjacency, NeighbourPair
from fl_audit.array_types import Floats
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Measure
from fl_audit.data.neighbours import NeighbourChoice, ranked_neighbours
from fl_audit.data.record_selection import select_records
from fl_audit.errors import InputError
from fl_audit.experiments.papers.bernau2021.settings import (
    CLIPPING_NORM,
    InsiderDatasetRecipe,
    InsiderSetting,
    values_of,
)
from fl_audit.experiments.papers.papers import ReproductionOptions
from fl_audit.experiments.papers.run_scheduling import carry_out_all, planned_runs
from fl_audit.experiments.papers.statistics import predicted_advantage
from fl_audit.mechanisms.noises.central import SENSITIVITY_FLOOR
from fl_audit.parquet_files import read_frame
from fl_audit.privacy.identifiability_bounds import gaussian_advantage
from fl_audit.run_files import read_json
from fl_audit.runs.config import RunConfig
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.runs.run_directory import RunDirectory, read_public


@dataclass(frozen=True)
class InsiderRunResults:
    """The results of one run, read from its directory."""

    setting: InsiderSetting  # the setting that was run
    config: RunConfig  # configuration of the run
    summary: Mapping[str, Any]  # contents of `summary.json`
    trials: pd.DataFrame  # table of the trials of the run
    rounds: pd.DataFrame  # table of the rounds of the run
    pair: NeighbourPair  # difference of D and D'

    @property
    def repetitions(self) -> int:
        """Number of trials of the run."""
        return len(self.trials)

    @property
    def claimed_mu(self) -> float:
        """Gaussian-DP parameter mu of all rounds together: sqrt(k) / z for k rounds and noise multiplier z."""
        guarantee = self.summary["guarantee"]
        return float(np.sqrt(guarantee["rounds"]) / guarantee["noise_multiplier"])

    @property
    def sensitivities(self) -> Floats:
        """Local sensitivity of the summed gradient in every round of every trial, shape (trials, rounds)."""
        return self._by_trial("local_sensitivity")

    @property
    def mu_of_trials(self) -> Floats:
        """Gaussian-DP parameter of each trial, (trials,): the root of the sum over rounds of (Delta_i / sigma_i)^2.

        Delta_i is the local sensitivity and sigma_i the noise.
        """
        signal = self.sensitivities / self._by_trial("sigma")
        return np.asarray(np.sqrt(np.sum(signal**2, axis=1)), dtype=np.float64)

    @property
    def expected_advantage(self) -> float:
        """The theoretical advantage of the insider: exact under local noise scaling, else approximate."""
        local = self.setting.is_local
        return gaussian_advantage(self.claimed_mu) if local else predicted_advantage(self.mu_of_trials)

    @property
    def floored_share(self) -> float:
        """Share of rounds, over all trials, in which the local sensitivity was too small for noise in proportion to it.

        Below a floor of the local sensitivity, the noise is no longer reduced.
        """
        return float(np.mean(self.sensitivities < SENSITIVITY_FLOOR * CLIPPING_NORM))

    def _by_trial(self, column: str) -> Floats:
        values: Floats = self.rounds[column].to_numpy(dtype=np.float64).reshape(self.repetitions, -1)
        return values


@dataclass(frozen=True)
class InsiderResultsBySetting:
    """The available data sets, and the results of all runs on them, keyed by setting."""

    data: Sequence[InsiderDatasetRecipe]
    runs: Mapping[InsiderSetting, InsiderRunResults]

    @property
    def is_substitute(self) -> bool:
        """Whether one of the data sets is a substitute for a data set of the paper."""
        return any(one.is_substitute for one in self.data)


def play(settings: Iterable[InsiderSetting], context: ReproductionOptions) -> dict[InsiderSetting, InsiderRunResults]:
    """Carry out the runs that are not finished, and return the results of all runs, keyed by setting."""
    planned = planned_runs(settings, values_of, context)
    known = [(run.config, run.directory) for run in planned.values()]
    pending = [run for run in planned.values() if not run.is_finished]
    # Once the first run has begun that has a neighbour, the others read it there instead of searching again.
    carry_out_all([replace(run, pair=partial(_neighbour_of, run.config, known)) for run in pending], context)
    return {one: _read_findings(one, run.config, run.directory) for one, run in planned.items()}


def _read_findings(setting: InsiderSetting, config: RunConfig, run: RunDirectory) -> InsiderRunResults:
    frames = {label: read_frame(run.path / f"{label}.parquet") for label in ("trials", "rounds")}
    public, _ = read_public(run.path)
    return InsiderRunResults(setting, config, read_json(run.summary), **frames, pair=public.pair)


RANKS = 3  # number of most and of least dissimilar neighbours that one search keeps: as many as in Figure 4


def _neighbour_of(config: RunConfig, begun: Iterable[tuple[RunConfig, RunDirectory]] = ()) -> NeighbourPair:
    """Return the difference of D and D' for a configuration.

    If a run with the same neighbour has begun, the difference is read from this run. Otherwise it is searched for,
    which takes minutes for all pairs of images.
    """
    search, rank = asked = _ranking_key_and_rank(config)
    for other, run in begun:
        if _ranking_key_and_rank(other) == asked and run.is_begun:
            with suppress(InputError):  # it is just being written, by another process
                return read_public(run.path)[0].pair
    return _ranked(search)[rank - 1]


def labels_of(found: InsiderRunResults) -> tuple[int, ...]:
    """Return the labels of the records in which D and D' differ: of the record in D, then of its replacement in D'.

    If D' has no replacement, only the first label is returned.
    """
    data, pair = found.config.data, found.pair
    split = select_records(load_source(data_spec(data)), data.records, data.test_records, data.seed)
    label = int(split.inside.labels[pair.index])
    if pair.replacement is None or split.outside is None:
        return (label,)
    return label, int(split.outside.labels[pair.replacement])


class _NeighbourRankingKey(NamedTuple):
    """All settings that determine the ranking of neighbours. With `farthest`, rank 1 is the most dissimilar one."""

    data: DataSpec
    records: int
    test_records: int
    seed: int
    relation: Adjacency
    dissimilarity: Measure
    farthest: bool


def _ranking_key_and_rank(config: RunConfig) -> tuple[_NeighbourRankingKey, int]:
    """Return the settings that determine how a configuration ranks neighbours, and the rank of its neighbour."""
    data, audit = config.data, config.audit
    farthest = audit.neighbour is NeighbourChoice.MOST_DISSIMILAR
    search = _NeighbourRankingKey(
        data_spec(data), data.records, data.test_records, data.seed,
        config.privacy.adjacency, audit.dissimilarity, farthest,
    )  # fmt: skip
    return search, audit.neighbour_rank or 1


@lru_cache(maxsize=32)
def _ranked(search: _NeighbourRankingKey) -> tuple[NeighbourPair, ...]:
    split = select_records(load_source(search.data), search.records, search.test_records, search.seed)
    return ranked_neighbours(search.relation, split.inside, split.outside, search.dissimilarity, RANKS, search.farthest)
