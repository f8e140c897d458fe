"""What somebody found in a batch of worlds, as columns for the tables of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Columns:
    """Named columns by table; who finds something new names a column, and nobody else has to know.

    Parameters
    ----------
    worlds
        Of shape (worlds,).
    rounds
        Of shape (worlds, rounds).
    releases
        Of shape (worlds, evaluated releases).
    clients
        Of shape (worlds, evaluated releases, clients).
    residuals
        What was measured of the noise, (worlds, rounds).
    """

    worlds: Table = field(default_factory=dict)
    rounds: Table = field(default_factory=dict)
    releases: Table = field(default_factory=dict)
    clients: Table = field(default_factory=dict)
    residuals: Table = field(default_factory=dict)

    def __or__(self, other: "Columns") -> "Columns":
        """Return the columns of both; of those that both name, the other's."""
        return Columns(**{f.name: {**getattr(self, f.name), **getattr(other, f.name)} for f in fields(Columns)})


def nan_columns(names: tuple[str, ...], shape: tuple[int, ...]) -> Table:
    """Return columns of NaN, for what nobody found."""
    return {name: np.full(shape, np.nan) for name in names}
