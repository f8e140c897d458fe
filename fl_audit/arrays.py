"""The kinds of arrays that the library reckons with, one name each."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def finite(value: float | None) -> float | None:
    """Return a number as JSON can hold it: None for what is infinite or not a number."""
    return value if value is not None and math.isfinite(value) else None
