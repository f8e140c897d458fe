"""Results of a finished run: tables, timing, provenance, and the accuracy of the same run without privacy."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.array_types import Floats
from fl_audit.errors import require

TRIAL_COLUMNS = ("trial", "bit", "log_odds", "belief", "won", "test_accuracy")
ROUND_COLUMNS = ("trial", "round", "sigma", "local_sensitivity", "log_odds")
RELEASE_COLUMNS = ("trial", "round", "test_accuracy")
NORM_COLUMN = "clipping_norm"  # column of the table of rounds where the clipping norm is adaptive
INSIDER_COLUMNS = ("trial", "insider")
SECRET_TABLES = ("opened", "tallies")  # tables that nobody but the challenger has


@dataclass(frozen=True)
class RunTables:
    """The tables of a finished run; rows of `trials` are in the order of the trial numbers.

    Raises
    ------
    InputError
        If a table lacks a column or has no rows.
    """

    # One row a trial: trial, bit, log_odds, belief (in the dataset that was really used), won, test_accuracy;
    # epsilon_star, test_auroc, membership_advantage, record_membership_guess and record_score where they were computed.
    trials: pd.DataFrame
    # One row a trial and round from 1: trial, round, sigma, local_sensitivity, log_odds (cumulative, D against D').
    rounds: pd.DataFrame
    # One row a trial and release from 0, the initial model: trial, round, test_accuracy, epsilon_star.
    releases: pd.DataFrame
    # One row a trial, release and client: Epsilon* of that client's own shard, and the count of its accountant if
    # clients train privately. None if there is neither.
    clients: pd.DataFrame | None = None
    # One row a trial and round: what the insider's noise measurement read. None where there was none.
    residuals: pd.DataFrame | None = None
    # One row a trial and insider: trial, insider (the client), log_odds, belief (in the dataset that was really used),
    # won; of insiders without beliefs their score alone. None where one insider played alone.
    insiders: pd.DataFrame | None = None
    # One row a trial and target, in the membership audit: trial, target (the unit), is_in, and the scores of every
    # attack. None in the identifiability audit.
    targets: pd.DataFrame | None = None
    # One row a trial, round and canary, decoys after the canaries, in the canary audit: is_in, part (how much of the
    # canary the score holds if it is in), score. None elsewhere.
    canaries: pd.DataFrame | None = None
    # One row a trial and round, and one row a count: what the challenger opened, see `belief.opened`. None where
    # nothing was opened, or the tables were read without the challenger's directory.
    opened: pd.DataFrame | None = None
    tallies: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        needed = {"trials": TRIAL_COLUMNS, "rounds": ROUND_COLUMNS, "releases": RELEASE_COLUMNS}
        for name, columns in (needed if self.insiders is None else needed | {"insiders": INSIDER_COLUMNS}).items():
            table = getattr(self, name)
            missing = [column for column in columns if column not in table]
            require(not missing, f"the table {name} lacks {', '.join(missing)}: a report needs {', '.join(columns)}")
            require(len(table) > 0, f"the table {name} is empty: a report needs at least one finished trial")
        object.__setattr__(self, "trials", self.trials.sort_values("trial", ignore_index=True))


@dataclass(frozen=True)
class Timing:
    """Durations of a run; None for those that were not recorded."""

    setup_seconds: float | None = None  # before the first round
    training_seconds: float | None = None  # from there to the last one
    trials_per_second: float | None = None  # while training
    engine: str | None = None  # engine that ran the clients

    @classmethod
    def of_json(cls, noted: Mapping[str, Any]) -> "Timing":
        """Return the durations among the recorded values of a run; other values are ignored."""
        return cls(**{field.name: noted.get(field.name) for field in fields(cls)})


def quantiles_by_round(table: pd.DataFrame, column: str, levels: tuple[float, ...]) -> tuple[Floats, list[Floats]]:
    """Return the rounds of a table and, for each level, the quantile of a column over the trials in each round.

    Values that are not finite are left out; the quantiles of a round without finite values are NaN.

    Parameters
    ----------
    table
        A table with one row per trial and round.
    column
        Name of the column.
    levels
        Levels of the quantiles, each from 0 to 1.
    """
    finite = table[np.isfinite(table[column].to_numpy(dtype=np.float64, na_value=np.nan))]
    by_round = finite.groupby("round")[column]
    rounds = np.sort(table["round"].unique())
    curves = [by_round.quantile(level).reindex(rounds).to_numpy(dtype=np.float64) for level in levels]
    return rounds.astype(np.float64), curves


@dataclass(frozen=True)
class NonPrivateAccuracy:
    """Accuracy of the same training without clipping and noise."""

    run: str  # name of that run's directory
    trials: int  # number of its trials, at least 1
    rounds: tuple[int, ...]  # numbers of its releases that were evaluated, from 0, the initial model
    accuracy: tuple[float, ...]  # mean accuracy of each on test records, 0 to 1; as many

    @property
    def final(self) -> float:
        """Mean accuracy of the last evaluated release."""
        return self.accuracy[-1]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict of JSON types."""
        return {"run": self.run, "trials": self.trials, "rounds": list(self.rounds), "accuracy": list(self.accuracy)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "NonPrivateAccuracy":
        """Return the object that `to_json` wrote; raises KeyError, TypeError or ValueError for any other values."""
        rounds, accuracy = tuple(map(int, values["rounds"])), tuple(map(float, values["accuracy"]))
        if not rounds or len(rounds) != len(accuracy):
            raise ValueError("rounds and accuracy differ in number")
        return cls(str(values["run"]), int(values["trials"]), rounds, accuracy)


@dataclass(frozen=True)
class RunSession:
    """One session of a run, with its command, software and hardware; an interrupted and resumed run has several."""

    began: str  # date and time in UTC, as ISO 8601 writes them
    # The command line, without the challenger's seed; None if no command of this software started the run.
    command: str | None
    commit: str | None  # the version of the sources, where they are kept under version control; else None
    versions: Mapping[str, str]  # of Python and of the packages that decide what comes out, by name
    hardware: Mapping[str, str]  # hardware that it ran on, in words, by name


@dataclass(frozen=True)
class Provenance:
    """Provenance of a run: its sessions and its data."""

    sessions: tuple[RunSession, ...]  # the stretches of work, at least one, the first first
    # SHA-256 digest of the records that the run trained and tested on, in hexadecimal digits; of records that are not
    # published it is keyed, for who knows all of them but one could test guesses of the last on a plain one. None where
    # it is not told.
    data: str | None
    shards: tuple[int, ...] | None = None  # records that each client holds, in their order; None where not noted
    is_keyed: bool = False  # whether the digest is an HMAC, whose key is among what only the challenger has
    pool: int | None = None  # records of the data set, of which those of the run were drawn; None where not noted

    def to_json(self) -> dict[str, Any]:
        """Return the content of `provenance.json`."""
        sessions = [asdict(session) for session in self.sessions]
        data = {"data": self.data, "data_is_keyed": self.is_keyed, "pool": self.pool}
        return {**data, "shards": self.shards, "sessions": sessions}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> "Provenance":
        """Return the object that `to_json` wrote; raises KeyError, TypeError or ValueError for any other values."""
        if not (sessions := tuple(RunSession(**session) for session in stored["sessions"])):
            raise ValueError("no session was noted")
        for session in sessions:
            datetime.fromisoformat(session.began)
        data, shards = stored["data"], stored.get("shards")
        keyed, pool = bool(stored.get("data_is_keyed", False)), stored.get("pool")
        return cls(
            sessions, data and str(data), shards and tuple(int(size) for size in shards), keyed, pool and int(pool)
        )
