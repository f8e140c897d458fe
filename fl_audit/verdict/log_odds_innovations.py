"""Compute the innovations of a run: the standardised noise of each round in the direction of f(D) - f(D').

L_i is the log-odds of D against D' after round i, Delta_i = ||f_i(D) - f_i(D')||, and mu_i = Delta_i / sigma_i, where
sigma_i is the standard deviation of the noise. The innovation of round i is (L_i - L_{i-1} -+ mu_i^2/2) / mu_i, with
minus under D and plus under D'. Given the past, the release of round i is normal even if Delta_i depends on earlier
rounds. So the innovation is N(0, 1) and independent of the past.
"""

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require

SMALLEST_SIGNAL = 1e-9
"""Signal-to-noise ratio under which a round is left out, because rounding and not noise would decide its innovation."""


def innovations(increments: Floats, signal: Floats, bits: NDArray[np.integer] | Flags) -> Floats:
    """Return the innovation of every trial and round: its standardised noise along f(D) - f(D'), (trials, rounds).

    The innovation is (L_i - L_{i-1} -+ mu_i^2/2) / mu_i, with minus where `bits` is 1 and plus where it is 0. It is NaN
    where mu_i is under `SMALLEST_SIGNAL`.

    Shapes: `increments` (trials, rounds), `signal` (trials, rounds).

    `increments`: Differences of cumulated log-odds would lose small increments to rounding.

    Examples
    --------
    >>> innovations(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]), np.array([1])).tolist()
    [[-0.5, nan]]
    """
    shape = increments.shape
    require(increments.ndim == 2, f"increments have shape {shape}: accepted is (trials, rounds)")
    require(signal.shape == shape, f"signal has shape {signal.shape}: accepted is {shape}, that of the increments")
    require(bits.shape == shape[:1], f"bits have shape {bits.shape}: accepted is {shape[:1]}, one a trial")
    require(bool(np.all(np.isfinite(increments))), "increments contain NaN or infinity: accepted are finite numbers")
    fine = np.isfinite(signal) & (signal >= 0)
    require(bool(np.all(fine)), "signal contains NaN, infinity or a negative number: accepted are finite ones from 0")
    drift = np.where(bits.astype(bool), 0.5, -0.5)[:, None] * np.square(signal)
    used = signal >= SMALLEST_SIGNAL
    return np.where(used, (increments - drift) / np.where(used, signal, 1.0), np.nan)
