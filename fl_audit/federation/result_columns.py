"""Results of a batch of trials, as columns of a run's tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ResultColumns:
    """Columns by name, for each table; new results are added as columns without a change of other code."""

    trials: Table = field(default_factory=dict)  # of shape (trials,)
    rounds: Table = field(default_factory=dict)  # of shape (trials, rounds)
    releases: Table = field(default_factory=dict)  # of shape (trials, evaluated releases)
    clients: Table = field(default_factory=dict)  # of shape (trials, evaluated releases, clients)
    residuals: Table = field(default_factory=dict)  # measurements of the noise, (trials, rounds)
    insiders: Table = field(default_factory=dict)  # of shape (trials, insiders), where several attack
    insider_clients: tuple[int, ...] = ()  # clients that are insiders, in order
    targets: Table = field(default_factory=dict)  # of shape (trials, targets), in the membership audit
    # Of shape (trials, rounds, directions), in the canary audit: canaries first, then decoys.
    canaries: Table = field(default_factory=dict)
    opened: Table = field(default_factory=dict)  # values that the challenger opens of every round, (trials, rounds)
    tallies: Table = field(default_factory=dict)  # counts that it opens, a row each, see `belief.opened`

    def __or__(self, other: "ResultColumns") -> "ResultColumns":
        """Return the union of two sets of columns, with the columns of `other` where both have one of the same name.

        The rows of `tallies` are concatenated.
        """
        tables = [entry.name for entry in fields(ResultColumns) if entry.name not in ("insider_clients", "tallies")]
        joined = {name: {**getattr(self, name), **getattr(other, name)} for name in tables}
        both = [one for one in (self.tallies, other.tallies) if one]
        tallies = {name: np.concatenate([one[name] for one in both]) for name in both[0]} if both else {}
        return ResultColumns(**joined, insider_clients=self.insider_clients or other.insider_clients, tallies=tallies)


def nan_columns(names: tuple[str, ...], shape: tuple[int, ...]) -> Table:
    """Return columns of NaN, for quantities that were not computed.

    Parameters
    ----------
    names
        Names of the columns.
    shape
        Shape of each column.
    """
    return {name: np.full(shape, np.nan) for name in names}
