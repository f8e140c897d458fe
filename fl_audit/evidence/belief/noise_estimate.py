"""How much noise there really is, over the noise that was promised, and what that makes of epsilon."""

import math
from dataclasses import dataclass

from fl_audit.errors import require
from fl_audit.evidence.belief.family import FAMILY_LEVEL, percent, times
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_scale import (
    SquareSum,
    chi_square_quantile,
    detectable_ratio,
    record_squares,
    tensor_squares,
    total_squares,
)
from fl_audit.privacy.gaussian import gdp_epsilon, gdp_mu

ASSUMPTION = (
    "The noise along the direction in which D and D' differ is normal with one and the same ratio to the claimed noise "
    "in all rounds and worlds, and neighbours exist that reach the claimed sensitivity."
)
"""What the lower bound on epsilon rests on."""

_BREACH = 1.5


@dataclass(frozen=True)
class NoiseEstimate:
    """The measured over the promised standard deviation of the noise, with exact chi-square intervals.

    Parameters
    ----------
    ratio, low, high
        Over all directions but the record's; NaN where that was not measured.
    confidence
        Of each two-sided interval.
    along_record, along_low, along_high
        Along the record's direction; NaN where D and D' never differed.
    tensors
        Name, ratio, low and high of every parameter tensor.
    excess
        How much accuracy was given away, in words, where the noise is above the promise beyond doubt; else empty.
    """

    ratio: float
    low: float
    high: float
    confidence: float
    along_record: float
    along_low: float
    along_high: float
    tensors: tuple[tuple[str, float, float, float], ...]
    excess: str


def ratio_interval(found: SquareSum, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided interval of the real over the claimed standard deviation.

    Parameters
    ----------
    found
        The sum of squares over the claimed variance, and its degrees of freedom.
    confidence
        Above 0 and below 1.

    Examples
    --------
    >>> low, high = ratio_interval(SquareSum(3000.0, 3000), 0.95)
    >>> round(low, 3), round(high, 3)
    (0.975, 1.026)
    """
    require(0 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0 and below 1")
    tail = (1 - confidence) / 2
    above, below = (math.sqrt(found.value / chi_square_quantile(p, found.freedom)) for p in (1 - tail, tail))
    return above, below


def estimate_noise(measured: Measured, confidence: float, mu: float, delta: float) -> NoiseEstimate:
    """Return how much noise there is over what was promised.

    Parameters
    ----------
    measured
        The run.
    confidence
        Of the intervals, above 0 and below 1.
    mu
        sqrt(k) / z of the promise, positive.
    delta
        At which epsilon is stated, above 0 and below 1.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    total, along = total_squares(measured), record_squares(measured)
    parts = tensor_squares(measured)
    tensors = tuple((name, found.ratio, *ratio_interval(found, confidence)) for name, found in parts.items())
    return NoiseEstimate(
        *_with_interval(total, confidence),
        confidence,
        *_with_interval(along, confidence),
        tensors,
        _excess(total or along, confidence, mu, delta),
    )


def _with_interval(found: SquareSum | None, confidence: float) -> tuple[float, float, float]:
    return (math.nan,) * 3 if found is None else (found.ratio, *ratio_interval(found, confidence))


def _excess(found: SquareSum | None, confidence: float, mu: float, delta: float) -> str:
    """Say what noise above the promise costs; nothing unless chance explains it in less than one of 1,000 runs."""
    if found is None or ratio_interval(found, 1 - 2 * FAMILY_LEVEL)[0] <= 1:
        return ""
    low, high = ratio_interval(found, confidence)
    kept, promised = gdp_epsilon(delta, mu / found.ratio), gdp_epsilon(delta, mu)
    return (
        f"The noise is {times(found.ratio)} times ({times(low)} to {times(high)}) what was promised. That breaks no "
        f"promise, and it gives accuracy away: with {percent(1 - 1 / found.ratio)} less noise the promise would still "
        f"be kept. What is really added keeps an epsilon of {kept:.4g} instead of {promised:.4g}, both by the exact "
        f"law of Gaussian noise at delta {delta:g}."
    )


def epsilon_lower_bound_from_noise(measured: Measured, confidence: float, mu: float, delta: float) -> float:
    """Return a lower confidence bound on epsilon at the claimed sensitivity from the noise along the record.

    With f the real over the claimed noise and f_high its exact one-sided upper confidence bound, k rounds at the
    claimed sensitivity have Gaussian-DP parameter mu / f, so epsilon is at least gdp_epsilon(delta, mu / f_high).

    Parameters
    ----------
    measured
        The run; without innovations the bound is 0.
    confidence
        Above 0 and below 1.
    mu
        sqrt(k) / z of the promise, positive.
    delta
        Above 0 and below 1.

    Notes
    -----
    `ASSUMPTION` says what it rests on.
    """
    found = record_squares(measured)
    if found is None:
        return 0.0
    lowest = chi_square_quantile(1 - confidence, found.freedom)
    if found.value == 0:
        return math.inf
    return gdp_epsilon(delta, mu * math.sqrt(lowest / found.value))


@dataclass(frozen=True)
class EpsilonLimit:
    """How large an epsilon the test along the record's direction would find, with probability 0.9.

    Parameters
    ----------
    epsilon
        The limit of detection at the promise's delta; infinite where D and D' never differed.
    conclusive
        Whether a breach of 1.5 times the promised epsilon would have been found.
    worlds_needed
        Number of worlds, with as many rounds as these had on average, from which such a breach is found; None if D and
        D' never differed.
    """

    epsilon: float
    conclusive: bool
    worlds_needed: int | None


def epsilon_limit(measured: Measured, level: float, mu: float, delta: float, promised_epsilon: float) -> EpsilonLimit:
    """Return the limit of detection of the test along the record's direction, as an epsilon.

    Parameters
    ----------
    measured
        The run: only its numbers of worlds and innovations matter.
    level
        Level of the test.
    mu
        sqrt(k) / z of the promise, positive.
    delta
        Above 0 and below 1.
    promised_epsilon
        What the accountant promises, at least 0.
    """
    count = int(measured.used_innovations.size)
    if count == 0:
        return EpsilonLimit(math.inf, False, None)
    sought = mu / _breached_mu(mu, delta, promised_epsilon)
    needed = _fewest_innovations(sought, level)
    epsilon = gdp_epsilon(delta, mu / detectable_ratio(count, level))
    return EpsilonLimit(epsilon, count >= needed, math.ceil(needed * measured.worlds / count))


def _breached_mu(mu: float, delta: float, promised_epsilon: float) -> float:
    """Return the mu of a breach of 1.5 times the promised epsilon; of 1.5 times mu where epsilon 0 is promised."""
    return gdp_mu(_BREACH * promised_epsilon, delta) if promised_epsilon > 0 else _BREACH * mu


def _fewest_innovations(ratio: float, level: float) -> int:
    """Return the smallest number of innovations with which noise of a ratio below 1 to the claimed is found."""
    high = 1
    while detectable_ratio(high, level) < ratio:
        high *= 2
        if high > 2**52:
            break
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if detectable_ratio(middle, level) >= ratio else (middle, high)
    return high
