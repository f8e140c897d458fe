"""Define type aliases for numpy arrays, and helpers for single numbers and one-dimensional arrays."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Labels = NDArray[Any]
"""Classes as int64, or quantities as float32."""


def finite(value: float | None) -> float | None:
    """Return the number, or None if it is infinite or NaN, which JSON cannot represent."""
    return value if value is not None and math.isfinite(value) else None


def in_one_axis(values: ArrayLike) -> NDArray[Any]:
    """Return an array of shape (n, 1) or (1, n), such as the output of a model, as shape (n,); others are unchanged."""
    array = np.asarray(values)
    return array.reshape(-1) if array.ndim == 2 and 1 in array.shape else array
