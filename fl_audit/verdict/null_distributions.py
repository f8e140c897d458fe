"""Compute p-values that several tests of the noise use, and the smallest deviations that such tests detect."""

import math

import numpy as np
from scipy.special import betainc, betaincinv, fdtr, fdtrc, kolmogorov, log_ndtr, ndtr, ndtri, stdtr, stdtrit

from fl_audit.array_types import Floats
from fl_audit.statistics.shift_bound import noncentrality_at
from fl_audit.verdict.declared_tests import DETECTION_POWER, bonferroni


def student_p(values: Floats) -> tuple[float, float]:
    """Return Student's t of the hypothesis that normal values have mean 0, and its two-sided p-value."""
    spread = float(values.std(ddof=1))
    mean = float(values.mean())
    if spread == 0:
        return (0.0, 1.0) if mean == 0 else (math.copysign(math.inf, mean), 0.0)
    t = mean / spread * math.sqrt(values.size)
    return t, float(2 * stdtr(values.size - 1, -abs(t)))


def detectable_shift(freedom: int, level: float) -> float:
    """Return the shift of a normal sum that Student's t-test detects with the power `DETECTION_POWER`.

    The shift is in standard deviations of the sum.

    Examples
    --------
    >>> round(detectable_shift(10_000, 2e-4), 2)
    4.82
    """
    critical = -float(stdtrit(freedom, level))
    return noncentrality_at(1 - DETECTION_POWER, critical, freedom)


def detectable_mean(count: int, level: float) -> float:
    """Return the smallest mean of normal values that a two-sided t-test finds with probability `DETECTION_POWER`.

    The mean is in units of the values' standard deviation.
    """
    return detectable_shift(count - 1, level / 2) / math.sqrt(count)


def detectable_deviation(level: float) -> float:
    """Return the shift of an N(0, 1) statistic that a one-sided test detects with the power `DETECTION_POWER`.

    `level` is the significance level of the test.
    """
    return float(ndtri(DETECTION_POWER) - ndtri(level))


def f_test_p(ratio: float, freedom: int, other_freedom: int) -> float:
    """Return the two-sided p-value of the F test that two variances are equal."""
    return bonferroni(2, np.minimum(fdtr(freedom, other_freedom, ratio), fdtrc(freedom, other_freedom, ratio)))


def along_previous(before: Floats, after: Floats) -> Floats:
    """Return <p, q> / |p| for every vector p of `before` and its successor q in `after`; a p of 0 is left out.

    Given p, the value is N(0, 1) if q consists of independent N(0, 1) noise. So the values are independent, too.
    """
    lengths = np.linalg.norm(before, axis=-1)
    is_nonzero = lengths > 0
    return np.asarray(np.einsum("...i,...i->...", before, after)[is_nonzero] / lengths[is_nonzero], dtype=np.float64)


def cosine_tail(cosine: float, dimensions: int) -> float:
    """Return the probability that two independent normal vectors have at least this absolute cosine."""
    return float(betainc((dimensions - 1) / 2, 0.5, (1 - cosine) * (1 + cosine)))


def cosine_at(probability: float, dimensions: int) -> float:
    """Return the absolute cosine that two independent normal vectors exceed with a given probability."""
    return math.sqrt(1 - float(betaincinv((dimensions - 1) / 2, 0.5, probability)))


def detectable_cosine(level: float, dimensions: int) -> float:
    """Return the smallest absolute cosine that a test of two normal vectors finds with probability `DETECTION_POWER`.

    The result is at most 1.
    """
    return min(1.0, cosine_at(level, dimensions) + 1.2816 / math.sqrt(dimensions))


def normal_distance(values: Floats) -> tuple[float, float]:
    """Return the Kolmogorov-Smirnov distance of values from N(0, 1), and its p-value."""
    ranked = ndtr(np.sort(values))
    count = values.size
    steps = np.arange(count + 1) / count
    distance = float(max(np.max(steps[1:] - ranked), np.max(ranked - steps[:-1])))
    root = math.sqrt(count)
    return distance, float(kolmogorov(distance * (root + 0.12 + 0.11 / root)))


def largest_p(largest: float, count: int) -> float:
    """Return the two-sided p-value of the largest absolute value of independent N(0, 1) draws."""
    log_below = count * math.log1p(-2 * math.exp(float(log_ndtr(-largest)))) if largest > 0 else -math.inf
    return bonferroni(2, float(np.minimum(math.exp(log_below), -math.expm1(log_below))))
