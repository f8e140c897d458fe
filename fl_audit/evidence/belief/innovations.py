"""The exact law of the insider's log-odds, in every mode: their innovations are independent standard normal.

Whatever adaptivity chose Delta_i, given the past r_i is normal, so (L_i - L_{i-1} -+ mu_i^2/2) / mu_i is N(0, 1) and
independent of it. It is the strongest test of a whole run: noise, bits, sensitivities and log-odds all enter.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest

from fl_audit.arrays import Flags, Floats
from fl_audit.errors import require

LARGEST_Z_SCORE = 4.0
SMALLEST_P_VALUE = 0.001

SMALLEST_SIGNAL = 1e-9
"""Signal-to-noise ratio under which a round is left out: rounding, not noise, would decide its innovation."""


@dataclass(frozen=True)
class InnovationGroup:
    """The innovations of the worlds with one bit."""

    # Number of innovations. With fewer than 2 nothing is tested: the moments read 0, 1, 0, the z-scores 0, p 1.
    count: int
    # `mean`, `variance`: of all innovations; 0 and 1 expected.
    mean: float
    variance: float
    serial_correlation: float  # between consecutive rounds of the same world; 0 expected
    # `mean_z`, `variance_z`, `serial_correlation_z`: distances from what is expected, in standard errors.
    mean_z: float
    variance_z: float
    serial_correlation_z: float
    ks_p_value: float  # of the Kolmogorov-Smirnov test against N(0, 1)

    @property
    def holds(self) -> bool:
        """Whether every z-score is within 4 and the Kolmogorov-Smirnov p-value above 0.001."""
        largest = max(abs(self.mean_z), abs(self.variance_z), abs(self.serial_correlation_z))
        return self.ks_p_value > SMALLEST_P_VALUE and largest <= LARGEST_Z_SCORE


@dataclass(frozen=True)
class InnovationCheck:
    """The check of both groups: worlds with bit 1 and worlds with bit 0."""

    # `members`, `nonmembers`: the innovations of either group.
    members: InnovationGroup
    nonmembers: InnovationGroup
    rounds: int  # number of rounds of all worlds together
    left_out: int  # how many of them have no innovation, because their signal is under `SMALLEST_SIGNAL`

    @property
    def holds(self) -> bool:
        """Whether the law holds in both groups; a sound run fails with probability of about 0.2 %."""
        return self.members.holds and self.nonmembers.holds


def innovations(increments: Floats, signal: Floats, bits: NDArray[np.integer] | Flags) -> Floats:
    """Return (L_i - L_{i-1} -+ mu_i^2/2) / mu_i, with - for bit 1 and + for bit 0.

    Parameters
    ----------
    increments
        L_i - L_{i-1}, what every round added to the log-odds of D against D', shape (worlds, rounds), finite. They
        must be the numbers that the insider computed: differences of cumulated log-odds lose small ones.
    signal
        mu_i = Delta_i / sigma_i, shape (worlds, rounds), finite and at least 0.
    bits
        1 or True where D was used, shape (worlds,).

    Returns
    -------
    array
        Shape (worlds, rounds), NaN where mu_i is under `SMALLEST_SIGNAL`: such a round tells nothing.

    Raises
    ------
    InputError
        If shapes disagree, a value is not finite or a signal is negative.

    Examples
    --------
    >>> innovations(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]]), np.array([1])).tolist()
    [[-0.5, nan]]
    """
    _require_shapes(increments, signal, bits)
    drift = np.where(bits.astype(bool), 0.5, -0.5)[:, None] * np.square(signal)
    used = signal >= SMALLEST_SIGNAL
    return np.where(used, (increments - drift) / np.where(used, signal, 1.0), np.nan)


def increments_of(log_odds: Floats) -> Floats:
    """Return the increments of cumulated log-odds (worlds, rounds), for tables that kept nothing else.

    Increments that are tiny beside the log-odds themselves are lost to rounding.
    """
    return np.diff(log_odds, axis=1, prepend=0.0)


def _require_shapes(increments: Floats, signal: Floats, bits: NDArray[np.generic]) -> None:
    shape = increments.shape
    require(increments.ndim == 2, f"increments have shape {shape}: accepted is (worlds, rounds)")
    require(signal.shape == shape, f"signal has shape {signal.shape}: accepted is {shape}, that of the increments")
    require(bits.shape == shape[:1], f"bits have shape {bits.shape}: accepted is {shape[:1]}, one a world")
    require(bool(np.all(np.isfinite(increments))), "increments contain NaN or infinity: accepted are finite numbers")
    fine = np.isfinite(signal) & (signal >= 0)
    require(bool(np.all(fine)), "signal contains NaN, infinity or a negative number: accepted are finite ones from 0")


def check_scores(values: Floats, bits: NDArray[np.integer] | Flags) -> InnovationCheck:
    """Return how well numbers follow N(0, 1) and independence, separately for each bit.

    Parameters
    ----------
    values
        Innovations, or where increments are not Gaussian the normal scores of the noise along the direction in which
        D and D' differ, under the true hypothesis, shape (worlds, rounds); NaN where a round tells nothing.
    bits
        1 or True where D was used, shape (worlds,).
    """
    member = bits.astype(bool)
    left_out = int(np.isnan(values).sum())
    return InnovationCheck(_group(values[member]), _group(values[~member]), values.size, left_out)


def _group(values: Floats) -> InnovationGroup:
    """Return the statistics of the innovations of some worlds, shape (worlds, rounds)."""
    used = values[~np.isnan(values)]
    count = int(used.size)
    if count < 2:
        return InnovationGroup(count, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    mean, variance = float(np.mean(used)), float(np.var(used, ddof=1))
    correlation, pairs = _serial_correlation(values, mean, variance)
    return InnovationGroup(
        count=count,
        mean=mean,
        variance=variance,
        serial_correlation=correlation,
        mean_z=mean * math.sqrt(count),
        variance_z=(variance - 1) * math.sqrt((count - 1) / 2),
        serial_correlation_z=correlation * math.sqrt(pairs),
        ks_p_value=float(kstest(used, "norm").pvalue),
    )


def _serial_correlation(values: Floats, mean: float, variance: float) -> tuple[float, int]:
    """Return the correlation of consecutive rounds within worlds and the number of pairs it rests on."""
    products = (values[:, :-1] - mean) * (values[:, 1:] - mean)
    known = products[~np.isnan(products)]
    if known.size == 0 or variance == 0:
        return 0.0, int(known.size)
    return float(np.mean(known)) / variance, int(known.size)
