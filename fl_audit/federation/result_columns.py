"""The columns that the tables of every run have, each declared once: its name, its table and its meaning.

A table has further columns where a run measures more; what is declared here is always there, and NaN where it was not
computed. Batches of trials, the check of tables that are read, sweeps and the page about run directories use this list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ResultTable(StrEnum):
    """Table of results that every run has."""

    TRIALS = "trials"  # a row for each trial
    ROUNDS = "rounds"  # a row for each trial and round
    RELEASES = "releases"  # a row for each trial and evaluated release


@dataclass(frozen=True)
class ResultColumn:
    """A column that a table of every run has."""

    name: str
    table: ResultTable
    meaning: str  # meaning in plain words, with the range or unit
    is_required: bool = False  # whether a report cannot be made without it
    is_of_model: bool = True  # whether it describes the trained model, so that sweeps show it


_TRIALS, _ROUNDS, _RELEASES = ResultTable

RESULT_COLUMNS: tuple[ResultColumn, ...] = (
    ResultColumn("log_odds", _TRIALS, "final log-odds of D against D'", is_required=True, is_of_model=False),
    ResultColumn("test_accuracy", _TRIALS, "accuracy of the final model on test records, 0 to 1", is_required=True),
    ResultColumn("epsilon_star", _TRIALS, "Epsilon* of the final model"),
    ResultColumn("membership_advantage", _TRIALS, "advantage of the attack on losses, -1 to 1"),
    ResultColumn(
        "record_membership_guess", _TRIALS, "guess of that attack for the differing record", is_of_model=False
    ),
    ResultColumn("record_score", _TRIALS, "score of that attack for the differing record", is_of_model=False),
    ResultColumn("test_auroc", _TRIALS, "area under the ROC curve on test records, of two classes, 0 to 1"),
    ResultColumn(
        "sigma", _ROUNDS, "scale of the claimed noise: of Gaussian noise its standard deviation", is_required=True
    ),
    ResultColumn(
        "local_sensitivity", _ROUNDS, "how far D and D' move the sum, in the norm of the clipping", is_required=True
    ),
    ResultColumn("log_odds", _ROUNDS, "log-odds of D against D' after the round", is_required=True),
    ResultColumn("increment", _ROUNDS, "what the round adds to the log-odds"),
    ResultColumn("measured_sigma", _ROUNDS, "scale of the noise as the insider measured it"),
    ResultColumn("test_accuracy", _RELEASES, "accuracy on test records, 0 to 1", is_required=True),
    ResultColumn("epsilon_star", _RELEASES, "Epsilon* of the release"),
)


def columns_of(table: ResultTable, *, required: bool = False) -> tuple[str, ...]:
    """Return the names of the columns that a table always has, or of those without which no report can be made."""
    return tuple(
        result_column.name
        for result_column in RESULT_COLUMNS
        if result_column.table is table and (result_column.is_required or not required)
    )


Table = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class TrialBatchColumns:
    """Columns of each result table, as arrays keyed by column name."""

    trials: Table = field(default_factory=dict)  # a row per trial; arrays of shape (trials,)
    rounds: Table = field(default_factory=dict)  # a row per trial and round; arrays of shape (trials, rounds)
    releases: Table = field(default_factory=dict)  # arrays of shape (trials, evaluated releases)
    clients: Table = field(default_factory=dict)  # arrays of shape (trials, evaluated releases, clients)
    residuals: Table = field(default_factory=dict)  # measurements of the noise, arrays of shape (trials, rounds)
    targets: Table = field(default_factory=dict)  # arrays of shape (trials, targets); only in the membership audit
    # Arrays of shape (trials, rounds, directions), canaries first, then decoys; only in the canary audit.
    canaries: Table = field(default_factory=dict)
    opened: Table = field(default_factory=dict)  # values that the challenger reveals of every round, (trials, rounds)
    tallies: Table = field(default_factory=dict)  # revealed counts, one row each, see `verdict.opened_secrets`

    def __or__(self, columns: "TrialBatchColumns") -> "TrialBatchColumns":
        """Return the columns of both values; if both have a column of the same name, that of `columns` is taken.

        In the table `tallies`, the rows of both values are joined instead.
        """
        tables = [entry.name for entry in fields(TrialBatchColumns) if entry.name != "tallies"]
        joined = {name: {**getattr(self, name), **getattr(columns, name)} for name in tables}
        both = [table for table in (self.tallies, columns.tallies) if table]
        tallies = {name: np.concatenate([table[name] for table in both]) for name in both[0]} if both else {}
        return TrialBatchColumns(**joined, tallies=tallies)


def nan_columns(names: tuple[str, ...], shape: tuple[int, ...]) -> Table:
    """Return columns that are all NaN, for quantities that were not computed, keyed by column name."""
    return {name: np.full(shape, np.nan) for name in names}
