"""What somebody found in a batch of trials, as columns for the tables of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ResultColumns:
    """Named columns by table; who finds something new names a column, and nobody else has to know."""

    trials: Table = field(default_factory=dict)  # of shape (trials,)
    rounds: Table = field(default_factory=dict)  # of shape (trials, rounds)
    releases: Table = field(default_factory=dict)  # of shape (trials, evaluated releases)
    clients: Table = field(default_factory=dict)  # of shape (trials, evaluated releases, clients)
    residuals: Table = field(default_factory=dict)  # what was measured of the noise, (trials, rounds)
    insiders: Table = field(default_factory=dict)  # of shape (trials, insiders), where several attack
    insider_clients: tuple[int, ...] = ()  # which clients the insiders are, in order
    targets: Table = field(default_factory=dict)  # of shape (trials, targets), in the membership audit
    # Of shape (trials, rounds, directions), in the canary audit: canaries first, then decoys.
    canaries: Table = field(default_factory=dict)

    def __or__(self, other: "ResultColumns") -> "ResultColumns":
        """Return the columns of both; of those that both name, the other's."""
        tables = [entry.name for entry in fields(ResultColumns) if entry.name != "insider_clients"]
        joined = {name: {**getattr(self, name), **getattr(other, name)} for name in tables}
        return ResultColumns(**joined, insider_clients=self.insider_clients or other.insider_clients)


def nan_columns(names: tuple[str, ...], shape: tuple[int, ...]) -> Table:
    """Return columns of NaN, for what nobody found.

    Parameters
    ----------
    names, shape
        Names of the columns, and the shape of each.
    """
    return {name: np.full(shape, np.nan) for name in names}
