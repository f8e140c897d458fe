"""Innovations of the log-odds: the standardised noise of each round along the direction in which D and D' differ.

L_i is the log-odds of D against D' after round i, Delta_i = ||f_i(D) - f_i(D')||, and mu_i = Delta_i / sigma_i. Given
the past, the release of round i is normal even if Delta_i depends on earlier rounds. So the innovation
(L_i - L_{i-1} -+ mu_i^2/2) / mu_i, with - under D and + under D', is N(0, 1) and independent of the past.
"""

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require

SMALLEST_SIGNAL = 1e-9
"""Signal-to-noise ratio under which a round is left out, because rounding and not noise would decide its innovation."""


def innovations(increments: Floats, signal: Floats, bits: NDArray[np.integer] | Flags) -> Floats:
    """Return the innovations (L_i - L_{i-1} -+ mu_i^2/2) / mu_i, with - for bit 1 and + for bit 0, (trials, rounds).

    An innovation is NaN where mu_i is under `SMALLEST_SIGNAL`, because such a round carries no information.

    Parameters
    ----------
    increments
        L_i - L_{i-1}, the increment of each round to the log-odds of D against D', shape (trials, rounds), finite. It
        must be the number that the insider computed for the round: differences of cumulated log-odds lose small
        increments to rounding.
    signal
        mu_i = Delta_i / sigma_i, shape (trials, rounds), finite and at least 0.
    bits
        1 or True where D was used, shape (trials,).

    Raises
    ------
    InputError
        If shapes disagree, a value is not finite or a signal is negative.

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
