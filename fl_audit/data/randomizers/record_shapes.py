"""Axes of single records, and checks that randomised records have the shape of their sources."""

import numpy as np
from numpy.typing import NDArray

from fl_audit.errors import require


def record_axes(record: NDArray[np.generic]) -> tuple[int, ...]:
    """Return the axes of a single record in an array of such records: -record.ndim to -1."""
    return tuple(range(-record.ndim, 0))


def require_pair(observed: NDArray[np.generic], first: NDArray[np.generic], second: NDArray[np.generic]) -> None:
    """Raise `InputError` unless two records have the same shape, and the last axes of `observed` have this shape."""
    fits = first.ndim >= 1 and first.shape == second.shape == observed.shape[observed.ndim - first.ndim :]
    problem = f"observed records have shape {observed.shape} and the two records {first.shape} and {second.shape}"
    accepted = "two records of one shape, and observed records of that shape with further axes before it"
    require(fits, f"{problem}: accepted are {accepted}")
