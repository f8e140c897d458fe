"""Results of a batch of trials (trials trained together), as columns of a run's result tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
