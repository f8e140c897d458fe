"""Is the noise normal? Distance from the normal law, tails and support of the opened sample and along the record.

Noise of another law hides less, or nothing, where its density falls off faster than the normal one, even where its
variance is the claimed one. Under the claim the sample is independent N(0, 1), so every statistic has an exact law.
"""

import math

import numpy as np
from scipy.special import bdtr, bdtrc, chdtrc, kolmogorov, log_ndtr, ndtr, ndtri

from fl_audit.arrays import Floats
from fl_audit.evidence.belief.family import (
    DETECTION_POWER,
    FAMILY_LEVEL,
    Missing,
    NotOffered,
    TestName,
    TestResult,
    of_looks,
)
from fl_audit.evidence.belief.measured import Measured

FEWEST_VALUES = 100  # number of values from which the limiting law of the distance is used

_TAIL = 3.0
_TAIL_SHARE = float(2 * ndtr(-_TAIL))


def shape(measured: Measured) -> TestResult | NotOffered:
    """Test the largest distance of the distribution of all sampled noise, and of each tensor's, from the normal law.

    Kolmogorov's test with the limiting law, corrected for the number of values (Stephens 1970); Bonferroni over all
    and every tensor, so the p-value is never too small.
    """
    values = measured.even_sample
    if values is None or measured.residuals is None:
        return NotOffered(Missing.NOT_MEASURED)
    owners = np.array([tensor for _, tensor in measured.residuals.places])
    groups = {"": values.reshape(-1)}
    if len(set(owners)) > 1:
        groups |= {tensor: values[:, :, owners == tensor].reshape(-1) for tensor in dict.fromkeys(owners)}
    found = {place: _distance(part) for place, part in groups.items() if part.size >= FEWEST_VALUES}
    if not found:
        return NotOffered(Missing.TOO_FEW)
    place, (distance, p_value) = min(found.items(), key=lambda entry: entry[1][1])
    level = TestName.SHAPE.level / len(found)
    return TestResult(
        name=TestName.SHAPE,
        statistic=distance,
        p_value=of_looks(len(found), p_value),
        measured=distance,
        promised=0.0,
        limit=_detectable_distance(values.size, level),
        place=place,
        more={"values": groups[place].size},
    )


def _distance(values: Floats) -> tuple[float, float]:
    """Return the largest distance from the normal distribution function, and its p-value."""
    ranked, count = ndtr(np.sort(values)), values.size
    steps = np.arange(count + 1) / count
    distance = float(max(np.max(steps[1:] - ranked), np.max(ranked - steps[:-1])))
    root = math.sqrt(count)
    return distance, float(kolmogorov(distance * (root + 0.12 + 0.11 / root)))


def _detectable_distance(count: int, level: float) -> float:
    """Return a distance that is found with `DETECTION_POWER` at least: the critical one and a normal quantile."""
    return (math.sqrt(-math.log(level / 2) / 2) + float(ndtri(DETECTION_POWER)) / 2) / math.sqrt(count)


def tails(measured: Measured) -> TestResult | NotOffered:
    """Test how much of the noise lies beyond 3 standard deviations: binomial, two-sided, never too small."""
    values = measured.even_sample
    if values is None:
        return NotOffered(Missing.NOT_MEASURED)
    beyond, count = int(np.count_nonzero(np.abs(values) > _TAIL)), values.size
    reach = float(ndtri(DETECTION_POWER) - ndtri(TestName.TAILS.level / 2)) * math.sqrt(_TAIL_SHARE / count)
    return TestResult(
        name=TestName.TAILS,
        statistic=beyond,
        p_value=_binomial_p(beyond, count, _TAIL_SHARE),
        measured=beyond / count,
        promised=_TAIL_SHARE,
        limit=reach,
        more={"deviations": _TAIL},
    )


def _binomial_p(found: int, count: int, share: float) -> float:
    """Return the two-sided p-value of a binomial count: twice the smaller tail."""
    upper = 1.0 if found == 0 else float(bdtrc(found - 1, count, share))
    return of_looks(2, float(np.minimum(bdtr(found, count, share), upper)))


def support(measured: Measured) -> TestResult | NotOffered:
    """Test the largest of all sampled noise, which truncated noise never reaches: exact, two-sided."""
    values = measured.even_sample
    if values is None:
        return NotOffered(Missing.NOT_MEASURED)
    largest, count = float(np.abs(values).max()), values.size
    return TestResult(
        name=TestName.SUPPORT,
        statistic=largest,
        p_value=_largest_p(largest, count),
        measured=largest,
        promised=_largest_at(0.5, count),
        limit=_largest_at(TestName.SUPPORT.level / 2, count),
        more={"values": count},
    )


def _largest_p(largest: float, count: int) -> float:
    """Return the two-sided p-value of the largest absolute value of so many independent N(0, 1)."""
    log_below = count * math.log1p(-2 * math.exp(float(log_ndtr(-largest)))) if largest > 0 else -math.inf
    return of_looks(2, float(np.minimum(math.exp(log_below), -math.expm1(log_below))))


def _largest_at(probability: float, count: int) -> float:
    """Return the value that the largest of so many stays under with a probability."""
    return float(-ndtri(-math.expm1(math.log(probability) / count) / 2))


def shape_along_record(measured: Measured) -> TestResult | NotOffered:
    """Test the shape of the noise along the record, from the innovations: the least of distance, tails and support.

    Bonferroni over the three: the p-value is never too small. Not offered where chance explains so much noise in
    less than one of 1,000 runs: a mixture of larger scales is no breach, and is not normal either.
    """
    values = measured.used_innovations
    if values.size < FEWEST_VALUES:
        return NotOffered(Missing.NO_DIFFERENCE if values.size == 0 else Missing.TOO_FEW)
    squares = float(values @ values)
    if chdtrc(values.size, squares) < FAMILY_LEVEL:
        return NotOffered(Missing.MORE_NOISE)
    values = values / max(1.0, math.sqrt(squares / values.size))
    distance, of_distance = _distance(values)
    beyond = int(np.count_nonzero(np.abs(values) > _TAIL))
    largest = float(np.abs(values).max())
    least = min(of_distance, _binomial_p(beyond, values.size, _TAIL_SHARE), _largest_p(largest, values.size))
    return TestResult(
        name=TestName.SHAPE_ALONG_RECORD,
        statistic=distance,
        p_value=of_looks(3, least),
        measured=distance,
        promised=0.0,
        limit=_detectable_distance(values.size, TestName.SHAPE_ALONG_RECORD.level / 3),
        more={"largest": largest, "beyond": beyond / values.size},
    )
