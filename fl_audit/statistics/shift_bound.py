"""Compute a lower confidence bound on mu, the difference of the means of two groups of normal scores.

The unit of mu is the standard deviation of the scores, which both groups share. The bound is exact for the insider's
log-odds if the signal-to-noise ratio mu_i of every round i is fixed. The standard deviation is estimated from the
scores, and not taken from the claimed noise. So the bound also reveals noise that is secretly too small. Scores of
other mechanisms (randomised response, raw Laplace) are not normal, and the bound does not hold for them.

The noncentral t distribution here is accurate for every degree of freedom and noncentrality of an audit. That of scipy
returns NaN for noncentralities above about 1e5, which occur if a federation adds hardly any noise.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincc, ndtr

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy.gaussian import require_mu
from fl_audit.root_finding import falling_root
from fl_audit.statistics.beta_expectation import legendre
from fl_audit.value_checks import require_number

_REACH = 10.0  # number of standard deviations beyond which a normal variable is neglected (probability 1e-23)


class ShiftEstimate(NamedTuple):
    """Distance of the members' mean score above that of the nonmembers, in common standard deviations."""

    shift: float  # estimate of mu: difference of the means over the pooled standard deviation; 0 where undefined
    low: float  # lower bound of mu, at least 0


def _checked(scores: Floats, group: str) -> Floats:
    """Return scores as float64 of one axis; raise `InputError` if one is not finite."""
    array = np.asarray(scores, dtype=np.float64)
    require(array.ndim == 1, f"scores of {group} have {array.ndim} axes: accepted is one axis")
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        require(False, f"score {wrong[0]} of {group} is {array[wrong[0]]}: accepted are finite numbers")
    return array


def _studentised(member: Floats, nonmember: Floats) -> float:
    """Return the difference of the means over the pooled standard deviation; 0 if all values are equal."""
    scale = max(float(np.max(np.abs(member))), float(np.max(np.abs(nonmember)))) or 1.0
    members = member / scale
    nonmembers = nonmember / scale
    difference = float(np.mean(members) - np.mean(nonmembers))
    if np.ptp(members) == 0 and np.ptp(nonmembers) == 0:
        same = bool(members[0] == nonmembers[0])
        require(same, f"scores are constant, {member[0]} and {nonmember[0]}: accepted are scores that vary in a group")
        return 0.0
    squares = float(np.sum((members - np.mean(members)) ** 2) + np.sum((nonmembers - np.mean(nonmembers)) ** 2))
    return difference / math.sqrt(squares / (members.size + nonmembers.size - 2))


def gaussian_shift(member_scores: Floats, nonmember_scores: Floats, confidence: float) -> ShiftEstimate:
    """Return the difference of the mean scores in pooled standard deviations, with a lower bound on its true value mu.

    For normal scores of equal variance, the difference times r = sqrt(n1 n0 / (n1 + n0)) has a noncentral t
    distribution with n1 + n0 - 2 degrees of freedom and noncentrality mu r. The exact lower bound is the mu for which a
    value at least as large as the observed one has probability 1 - confidence.

    Shapes: `member_scores` (n1,), `nonmember_scores` (n0,).

    `nonmember_scores`: Fewer than 2 scores in a group give the bound 0.

    Examples
    --------
    >>> estimate = gaussian_shift(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), 0.95)
    >>> estimate.shift, estimate.low
    (1.0, 0.0)
    """
    require_number("confidence is", confidence, "numbers from 0.5 to below 1")
    member = _checked(member_scores, "members")
    nonmember = _checked(nonmember_scores, "nonmembers")
    n1 = int(member.size)
    n0 = int(nonmember.size)
    if min(n1, n0) < 2:
        return ShiftEstimate(0.0, 0.0)
    return _estimate(_studentised(member, nonmember), _root_of_sizes(n1, n0), n1 + n0 - 2, confidence)


def gaussian_slope(shares: Floats, scores: Floats, confidence: float) -> ShiftEstimate:
    """Return how much normal scores rise if a larger part of a member is included, with a lower confidence bound.

    The result is the slope of a least-squares fit with a constant, in standard deviations of the residuals. This
    studentised slope has a noncentral t distribution with n - 2 degrees of freedom. For parts of 0 and 1 the result is
    that of `gaussian_shift`. Raises `InputError` if shapes differ, if a number is not finite, or if the confidence is
    out of its range.

    Shapes: `shares` (n,), `scores` (n,).
    """
    require_number("confidence is", confidence, "numbers from 0.5 to below 1")
    included_parts = _checked(shares, "parts")
    values = _checked(scores, "canaries")
    require(
        included_parts.size == values.size, f"{included_parts.size} parts of {values.size} scores: accepted are as many"
    )
    n1 = int(np.count_nonzero(included_parts))
    centred = included_parts - included_parts.mean()
    root = root_sum_of_squared_deviations(included_parts) if included_parts.size else 0.0
    if min(n1, included_parts.size - n1) < 2 or root == 0:
        return ShiftEstimate(0.0, 0.0)
    slope = float(centred @ values) / root**2
    residuals = values - values.mean() - slope * centred
    degrees = included_parts.size - 2
    squares = float(residuals @ residuals)
    require(squares > 0 or slope == 0, "scores follow their parts without any spread: accepted are scores that vary")
    shift = slope / math.sqrt(squares / degrees) if squares > 0 else 0.0
    return _estimate(shift, root, degrees, confidence)


def _estimate(shift: float, root: float, degrees: int, probability: float) -> ShiftEstimate:
    """Return a shift with its lower bound at the confidence `probability`, by the noncentral t distribution.

    `degrees` are the degrees of freedom, and `root` is the noncentrality for a true shift of 1.
    """
    return ShiftEstimate(shift, noncentrality_at(probability, shift * root, degrees) / root if shift > 0 else 0.0)


def root_sum_of_squared_deviations(shares: Floats) -> float:
    """Return the square root of the sum over trials of (share - mean share)^2.

    `shares`, shape (n,), says which share of a member each trial includes. If scores truly rise by one standard
    deviation per member, the result is the noncentrality of the t statistic in `gaussian_slope`.
    """
    return float(np.linalg.norm(shares - shares.mean()))


def _root_of_sizes(n1: int, n0: int) -> float:
    """Return the noncentrality of Student's two-sample t if the means differ by one standard deviation.

    `n1` and `n0` are the sizes of the two samples.
    """
    return math.sqrt(n1 * n0 / (n1 + n0))


def detectable_shift(n1: int, n0: int, claimed_mu: float, level: float, power: float = 0.9) -> float:
    """Return the smallest true mu whose lower confidence bound exceeds a claimed mu with a given probability.

    The result is infinite if a group has fewer than 2 scores. Raises `InputError` if a number is out of its range.

    Examples
    --------
    >>> round(detectable_shift(500, 500, 0.5504, level=0.001), 2)
    0.84
    """
    require_mu(claimed_mu)
    require_number("level is", level, "numbers above 0 and up to 0.5")
    require_number("power is", power, "numbers from 0.5 to below 1")
    if min(n1, n0) < 2:
        return math.inf
    return detectable_slope(_root_of_sizes(n1, n0), n1 + n0 - 2, claimed_mu, level, power)


def detectable_slope(root: float, degrees: int, claimed_mu: float, level: float, power: float) -> float:
    """Return the smallest true slope for which the lower bound of `gaussian_slope` probably exceeds a claimed mu."""
    critical = noncentral_t_quantile(1 - level, degrees, claimed_mu * root)
    return max(claimed_mu, noncentrality_at(1 - power, critical, degrees) / root)


def _noncentral_t_cdf(t: float, degrees: float, noncentrality: float) -> float:
    """Return P(T <= t) for T = (Z + noncentrality) / S, with Z ~ N(0, 1) and an independent S^2 ~ chi^2 / degrees."""
    # One of Z and S is integrated in closed form, the other by quadrature with 200 points. The quadrature is over
    # whichever of the two has the smoother integrand, so that the error stays below 1e-11.
    nodes, weights = legendre(200)
    nodes, weights = (nodes + 1) / 2, weights / 2  # on (0, 1)
    if t * t >= 2 * degrees:
        # Phi(-ncp) + the integral of phi(z) P(S >= (z + ncp) / t) over z > -ncp.
        start = max(-_REACH, -noncentrality)
        z = start + (_REACH - start) * nodes
        density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        survival = gammaincc(degrees / 2, degrees / 2 * ((z + noncentrality) / t) ** 2)
        return float(ndtr(-noncentrality) + (_REACH - start) * np.sum(weights * density * survival))
    # The mean of Phi(t S - ncp) over the density of S, normalised over the nodes.
    start, end = _spread_range(degrees)
    s = start + (end - start) * nodes
    log_density = (degrees - 1) * np.log(s) - degrees * (s * s - 1) / 2
    density = weights * np.exp(log_density)
    return float(np.sum(density * ndtr(t * s - noncentrality)) / np.sum(density))


def _spread_range(degrees: float) -> tuple[float, float]:
    """Return a range that contains S, the root of chi^2 / degrees, with probability at least 1 - 1e-20.

    Integrals over S are limited to this range. `degrees` is the number of degrees of freedom of chi^2.
    """
    deviation = 1 / math.sqrt(2 * degrees)
    return max(0.0, 1 - _REACH * deviation), 1 + _REACH * deviation


def noncentrality_at(probability: float, t: float, degrees: float) -> float:
    """Return the noncentrality at which a noncentral t variable T has P(T <= t) = probability.

    It is 0 if P(T <= t) is smaller than the probability even at noncentrality 0.
    """
    high = t * _spread_range(degrees)[1] + _REACH
    return falling_root(lambda ncp: _noncentral_t_cdf(t, degrees, ncp) - probability, high, high, xtol=1e-13 * high)


def noncentral_t_quantile(probability: float, degrees: float, noncentrality: float) -> float:
    """Return the t at which a noncentral t variable T has P(T <= t) = probability; 0 if that t is negative."""
    high = noncentrality + _REACH
    cdf = partial(_noncentral_t_cdf, degrees=degrees, noncentrality=noncentrality)
    return falling_root(lambda t: probability - cdf(t), high, xtol=1e-13 * high, rtol=1e-13)
