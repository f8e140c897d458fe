"""Results of a finished run: tables, durations, provenance, and the accuracy of the same run without privacy."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.federation.findings import json_of
from fl_audit.federation.result_columns import ResultTable, columns_of

_KEYS = {
    ResultTable.TRIALS: ("trial", "bit", "belief", "won"),
    ResultTable.ROUNDS: ("trial", "round"),
    ResultTable.RELEASES: ("trial", "round"),
}
"""Columns of each table that name the row, or follow from other columns."""
NORM_COLUMN = "clipping_norm"  # column of the table of rounds if the clipping norm is adaptive
SECRET_TABLES = ("opened", "tallies")  # tables that nobody but the challenger has


@dataclass(frozen=True)
class RunTables:
    """Result tables of a finished run; the constructor sorts the rows of `trials` by trial number.

    Raises
    ------
    InputError
        If `trials`, `rounds` or `releases` lacks a required column or has no rows.
    """

    # One row per trial: trial, bit, belief (in the training set that was used), won, and the columns of
    # `result_columns`, like `rounds` and `releases`.
    trials: pd.DataFrame
    # One row per trial and round from 1.
    rounds: pd.DataFrame
    # One row per trial and release from 0, the initial model.
    releases: pd.DataFrame
    # One row per trial, release and client: Epsilon* of the client's own shard and, if clients train by DP-SGD, the
    # steps that the client's accountant has counted. None if there is neither.
    clients: pd.DataFrame | None = None
    # One row per trial and round: the insider's measurements of the noise. None if there are none.
    residuals: pd.DataFrame | None = None
    # One row per trial and target, in the membership audit: trial, target (the unit), is_in, and the scores of every
    # attack. None in the identifiability audit.
    targets: pd.DataFrame | None = None
    # One row per trial, round and canary (decoys after the canaries), in the canary audit: is_in, part (share of the
    # canary in the score if it is in), score. None in other audits.
    canaries: pd.DataFrame | None = None
    # Values that the challenger revealed, see `verdict.opened_secrets`: `opened` has one row per trial and round,
    # `tallies` one row per count. None if nothing was revealed, or the tables were read without the challenger's
    # directory.
    opened: pd.DataFrame | None = None
    tallies: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        needed = {str(table): (*keys, *columns_of(table, required=True)) for table, keys in _KEYS.items()}
        for name, columns in needed.items():
            table = getattr(self, name)
            missing = [column for column in columns if column not in table]
            require(not missing, f"the table {name} lacks {', '.join(missing)}: a report needs {', '.join(columns)}")
            require(len(table) > 0, f"the table {name} is empty: a report needs at least one finished trial")
        object.__setattr__(self, "trials", self.trials.sort_values("trial", ignore_index=True))


@dataclass(frozen=True)
class Timing:
    """Durations and speed of a run, and the engine that ran it; None for values that were not recorded."""

    setup_seconds: float | None = None  # seconds before the first round
    training_seconds: float | None = None  # seconds from the first round to the end of the last one
    trials_per_second: float | None = None  # number of trials per second of training
    engine: str | None = None  # engine that ran the clients

    @classmethod
    def of_json(cls, noted: Mapping[str, Any]) -> "Timing":
        """Build the timing from the recorded values of a run, keyed by field name.

        Fields without a recorded value are None; other keys are ignored.
        """
        return cls(**{field.name: noted.get(field.name) for field in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        """Return the timing as a dict with the one key `timing`, for `summary.json`.

        This key is the only one that differs when the same run is repeated.
        """
        return {"timing": json_of(self)}


def quantiles_by_round(table: pd.DataFrame, column: str, levels: tuple[float, ...]) -> tuple[Floats, list[Floats]]:
    """Return quantiles of a column over the trials of each round.

    The first result is the ascending list of rounds, float64 (rounds,). The second result has an array (rounds,) of
    quantiles for each level. Values that are not finite are left out; without finite values the quantile is NaN.
    """
    finite = table[np.isfinite(table[column].to_numpy(dtype=np.float64, na_value=np.nan))]
    by_round = finite.groupby("round")[column]
    rounds = np.sort(table["round"].unique())
    curves = [by_round.quantile(level).reindex(rounds).to_numpy(dtype=np.float64) for level in levels]
    return rounds.astype(np.float64), curves


@dataclass(frozen=True)
class NonPrivateAccuracy:
    """Test accuracy of a run that repeats another run's training without clipping and noise."""

    run: str  # name of the directory of the run without privacy
    trials: int  # number of its trials, at least 1
    # Numbers of its releases that were evaluated, from 0, the initial model; empty where labels are quantities.
    rounds: tuple[int, ...]
    accuracy: tuple[float, ...]  # mean accuracy of each of these releases on test records, 0 to 1
    metrics: Mapping[str, float] = field(default_factory=dict)  # each metric of the last release, mean over trials

    @property
    def final(self) -> float:
        """Mean test accuracy of the last evaluated release; NaN where labels are quantities."""
        return self.accuracy[-1] if self.accuracy else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict of JSON types."""
        curve = {"rounds": list(self.rounds), "accuracy": list(self.accuracy)}
        return {"run": self.run, "trials": self.trials, **curve, "metrics": dict(self.metrics)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "NonPrivateAccuracy":
        """Build the accuracies from the dict that `to_json` returned."""
        rounds = tuple(map(int, values["rounds"]))
        accuracy = tuple(map(float, values["accuracy"]))
        if len(rounds) != len(accuracy):
            raise ValueError("rounds and accuracy differ in number")
        metrics = {str(name): float(value) for name, value in (values.get("metrics") or {}).items()}
        return cls(str(values["run"]), int(values["trials"]), rounds, accuracy, metrics)


@dataclass(frozen=True)
class RunSession:
    """One session of a run, with its command, software and hardware; a resumed run has several."""

    began: str  # date and time of the start in UTC, in the format of ISO 8601
    # The command line, without the challenger's seed; None if no command of this software started the run.
    command: str | None
    commit: str | None  # commit of the sources; None if they are not under version control
    versions: Mapping[str, str]  # versions of Python and of the packages that affect results, by name
    hardware: Mapping[str, str]  # descriptions of the hardware, by name of the part


@dataclass(frozen=True)
class Provenance:
    """Provenance of a run: when, how and on which machine it was run, and a digest of its data."""

    sessions: tuple[RunSession, ...]  # sessions of the run, at least one, in order of time
    # SHA-256 digest, in hexadecimal digits, of the records that the run trained and tested on. For unpublished records
    # the digest is keyed: otherwise, somebody who knows all records but one could test guesses of this one. None if it
    # is not stated.
    data: str | None
    shards: tuple[int, ...] | None = None  # number of records of each client; None if not recorded
    is_keyed: bool = False  # whether the digest is an HMAC with a key that only the challenger has
    pool: int | None = None  # number of records from which those of the run were drawn; None if not recorded

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file `provenance.json`, as a dict of JSON types."""
        sessions = [asdict(session) for session in self.sessions]
        data = {"data": self.data, "data_is_keyed": self.is_keyed, "pool": self.pool}
        return {**data, "shards": self.shards, "sessions": sessions}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> "Provenance":
        """Build the provenance from the dict that `to_json` returned."""
        if not (sessions := tuple(RunSession(**session) for session in stored["sessions"])):
            raise ValueError("no session was noted")
        for session in sessions:
            datetime.fromisoformat(session.began)
        data = stored["data"]
        shards = stored.get("shards")
        keyed = bool(stored.get("data_is_keyed", False))
        pool = stored.get("pool")
        return cls(
            sessions, data and str(data), shards and tuple(int(size) for size in shards), keyed, pool and int(pool)
        )
