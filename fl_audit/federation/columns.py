"""What somebody found in a batch of worlds, as columns for the tables of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Columns:
    """Named columns by table; who finds something new names a column, and nobody else has to know."""

    worlds: Table = field(default_factory=dict)  # of shape (worlds,)
    rounds: Table = field(default_factory=dict)  # of shape (worlds, rounds)
    releases: Table = field(default_factory=dict)  # of shape (worlds, evaluated releases)
    clients: Table = field(default_factory=dict)  # of shape (worlds, evaluated releases, clients)
    residuals: Table = field(default_factory=dict)  # what was measured of the noise, (worlds, rounds)
    insiders: Table = field(default_factory=dict)  # of shape (worlds, insiders), where several attack
    insider_clients: tuple[int, ...] = ()  # which clients the insiders are, in order
    targets: Table = field(default_factory=dict)  # of shape (worlds, targets), in the game of membership
    # Of shape (worlds, rounds, directions), in the game of one run: canaries first, then decoys.
    canaries: Table = field(default_factory=dict)

    def __or__(self, other: "Columns") -> "Columns":
        """Return the columns of both; of those that both name, the other's."""
        tables = [entry.name for entry in fields(Columns) if entry.name != "insider_clients"]
        joined = {name: {**getattr(self, name), **getattr(other, name)} for name in tables}
        return Columns(**joined, insider_clients=self.insider_clients or other.insider_clients)


def nan_columns(names: tuple[str, ...], shape: tuple[int, ...]) -> Table:
    """Return columns of NaN, for what nobody found.

    Parameters
    ----------
    names, shape
        Names of the columns, and the shape of each.
    """
    return {name: np.full(shape, np.nan) for name in names}
