"""Epsilon* (privacy risk) for two mixtures of normals by branch and bound, with a proven error.

Epsilon* is the largest log ratio of error rates (Negoescu et al. 2023, definition 2). The log ratio F(t) = log(P(X > t)
- delta) - log Q(X > t) of two mixtures, at the threshold t, can have many local maxima, so a local search from starting
points proves nothing. Here intervals of thresholds are halved. An interval is discarded if an upper bound of F on it
exceeds the largest value found so far by at most the tolerance. Three upper bounds of F on an interval [a, b] are used:

* Both tails fall with t, so F is at most log(P(X > a) - delta) - log Q(X > b).
* Every component is unimodal, so the density of a mixture on [a, b] lies between two known numbers. So does the slope
  F' = q / Q - p / (P - delta), where p and q are the densities at t, and P and Q the probabilities of values above t.
  If the sign of the slope is known, the maximum is at an end of the interval.
* If the slope lies between L < 0 and U > 0, F stays below the line with slope U through the point at a, and below the
  line with slope L through the point at b.

Without a fixed grid, the search stays accurate in the far tails, where P(X > t) approaches delta, and for narrow
components beside wide ones.
"""

import math
from dataclasses import dataclass

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.released_model.normal_mixture import NormalMixture
from fl_audit.released_model.parametric_star import require_cut, require_star_delta
from fl_audit.value_checks import require_number

_MOST_CELLS = 2**20
_HALVINGS = 120
_START_EDGES = 1024
_NEGLIGIBLE = 8.3
"""Number of standard deviations below the mean at which P(X > t) differs from 1 by less than 1e-16."""
_FAR = 38.0  # an unbounded range is searched up to this many standard deviations, where P(X > t) is 1e-316


@dataclass(frozen=True)
class CertifiedEpsilonStar:
    """Epsilon* as computed, with a bound on how far it may lie below the exact supremum."""

    epsilon_star: float  # the largest value found, at least 0; infinite where it is unbounded
    # Largest excess of the exact supremum over `epsilon_star` in nats, up to rounding. It is at least the tolerance of
    # the search, or 0 if no search was needed.
    gap: float


def epsilon_star_mixtures(
    member_mixture: NormalMixture,
    population_mixture: NormalMixture,
    delta: float,
    cut: float = 0.0,
    tolerance: float = 1e-9,
) -> CertifiedEpsilonStar:
    """Return Epsilon*, if the scores of members and population are mixtures of normals.

    The field `gap` of the result bounds how far the computed value lies below the exact one. It exceeds the tolerance
    only if the search needed more than a million intervals. Source: Negoescu et al. 2023, definition 2.

    `delta`: At 0, without a cut, Epsilon* of two different distributions is infinite, except if in each tail the same
    component dominates both distributions.
    """
    require_star_delta(delta)
    require_cut(cut)
    require_number("tolerance is", tolerance, "positive numbers")
    tables = [
        np.stack([distribution.weights, distribution.means, distribution.stds])
        for distribution in (member_mixture, population_mixture)
    ]
    # Components are sorted, so that equal mixtures compare equal.
    member_components, population_components = (table[:, np.lexsort(table)] for table in tables)
    if np.array_equal(member_components, population_components):
        return CertifiedEpsilonStar(0.0, 0.0)
    limits = threshold_limits(member_mixture, population_mixture, cut) or (-math.inf, math.inf)
    if delta == 0 and not all(map(math.isfinite, limits)) and not _tails_agree(member_mixture, population_mixture):
        return CertifiedEpsilonStar(math.inf, 0.0)
    best = 0.0
    gap = tolerance
    mirrored = (-limits[1], -limits[0])
    for first, second in ((member_mixture, population_mixture), (population_mixture, member_mixture)):
        for p, q, range_ in ((first, second, limits), (first.mirrored(), second.mirrored(), mirrored)):
            value, bound = _tail_supremum(p, q, delta, range_, best, tolerance)
            best, gap = value, max(tolerance, gap - (value - best), bound - value)
    return CertifiedEpsilonStar(best, gap)


def threshold_limits(
    member_mixture: NormalMixture, population_mixture: NormalMixture, cut: float
) -> tuple[float, float] | None:
    """Return the smallest and largest threshold with FPR and FNR in [cut, 1 - cut]; None if there is no such threshold.

    If the cut is 0, the result is -infinity and infinity.
    """
    if cut == 0:
        return -math.inf, math.inf
    low = max(
        -distribution.mirrored().upper_quantile(math.log(cut)) for distribution in (member_mixture, population_mixture)
    )
    high = min(distribution.upper_quantile(math.log(cut)) for distribution in (member_mixture, population_mixture))
    return (low, high) if low < high else None


def threshold_log_ratios(
    member_mixture: NormalMixture, population_mixture: NormalMixture, points: Floats, delta: float
) -> Floats:
    """Return the largest of the four log ratios that define Epsilon*, at each threshold, shape (points,).

    Source: Negoescu et al. 2023, definition 2. The result is -infinity at thresholds where no ratio is positive.

    Shapes: `points` (points,).
    """
    ratios = [
        _log_over_delta(p.log_sf(at), delta) - q.log_sf(at)
        for first, second in ((member_mixture, population_mixture), (population_mixture, member_mixture))
        for p, q, at in ((first, second, points), (first.mirrored(), second.mirrored(), -points))
    ]
    return np.asarray(np.maximum.reduce(ratios), dtype=np.float64)


def _tail_supremum(
    p: NormalMixture, q: NormalMixture, delta: float, limits: tuple[float, float], best: float, tolerance: float
) -> tuple[float, float]:
    """Return the largest value of F found within the thresholds `limits`, at least `best`, and an upper bound of F.

    F(t) is the log ratio of the tails of `p` and `q` at the threshold t, which the module's docstring defines. The
    search ends when the two results differ by at most `tolerance`, or after a limited number of steps.
    """
    # The upper bound is the largest value that the search could not exclude.
    low = max(limits[0], float((q.means - _NEGLIGIBLE * q.stds).min()))
    high = min(limits[1], p.upper_quantile(math.log(delta) if delta else -math.inf))
    if math.isinf(high):
        high = float(max((distribution.means + _FAR * distribution.stds).max() for distribution in (p, q)))
    if not low < high:
        return best, best
    # The first intervals are closer together where components are narrow.
    steps = np.linspace(-6, 6, 25)
    inner = np.concatenate(
        [(distribution.means + steps[:, None] * distribution.stds).ravel() for distribution in (p, q)]
    )
    inner = np.unique(inner[(inner > low) & (inner < high)])
    inner = inner[:: max(1, inner.size // _START_EDGES)]
    edges = np.unique(np.concatenate([[low], inner, np.linspace(low, high, 33)]))
    a = edges[:-1]
    b = edges[1:]
    bound = best
    for _ in range(_HALVINGS):
        best, upper = _bounds_on_intervals(p, q, a, b, delta, best)
        open_ = (upper > best + tolerance) & (np.nextafter(a, b) < b)
        bound = max(float(upper[open_].max()), best) if open_.any() else best
        if not open_.any() or 2 * int(open_.sum()) > _MOST_CELLS:
            break
        a = a[open_]
        b = b[open_]
        middle = a + (b - a) / 2
        a = np.concatenate([a, middle])
        b = np.concatenate([middle, b])
    return best, bound


def _bounds_on_intervals(
    p: NormalMixture, q: NormalMixture, a: Floats, b: Floats, delta: float, best: float
) -> tuple[float, Floats]:
    """Return the largest value of F found so far, and an upper bound of F on each interval [a, b].

    F is the log ratio that the module docstring defines. The largest value is `best`, or F at an end of an interval.
    """
    ends, back = np.unique(np.concatenate([a, b]), return_inverse=True)
    over = _log_over_delta(p.log_sf(ends), delta)
    under = q.log_sf(ends)
    over_a = over[back[: a.size]]
    over_b = over[back[a.size :]]
    under_a = under[back[: a.size]]
    under_b = under[back[a.size :]]
    at_a = over_a - under_a
    at_b = over_b - under_b
    best = max(best, float(at_a.max()), float(at_b.max()))
    p_least, p_most = p.log_density_range(a, b)
    q_least, q_most = q.log_density_range(a, b)
    with np.errstate(all="ignore"):
        steepest = np.exp(q_most - under_b) - np.exp(p_least - over_a)
        flattest = np.exp(q_least - under_a) - np.exp(p_most - over_b)
        width = b - a
        crossing = np.clip((at_b - at_a - flattest * width) / (steepest - flattest), 0, width)
        lines = at_a + steepest * np.where(np.isfinite(crossing), crossing, width)
        lines = np.where((steepest <= 0) | (flattest >= 0), np.maximum(at_a, at_b), lines)
    return best, np.fmin(over_a - under_b, lines)


def _log_over_delta(log_tail: Floats, delta: float) -> Floats:
    """Return log(exp(log_tail) - delta), or -infinity where the difference is not positive."""
    if delta == 0:
        return log_tail
    log_ratio = np.minimum(math.log(delta) - log_tail, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(log_tail + np.log(-np.expm1(log_ratio)), dtype=np.float64)


def _tails_agree(first_mixture: NormalMixture, second_mixture: NormalMixture) -> bool:
    """Return whether the same component dominates both mixtures in each tail."""
    # The widest component dominates a tail; among equally wide ones, the one with the outermost mean.
    pairs = ((first_mixture, second_mixture), (first_mixture.mirrored(), second_mixture.mirrored()))
    leaders = (
        [max(zip(distribution.stds.tolist(), distribution.means.tolist(), strict=True)) for distribution in pair]
        for pair in pairs
    )
    return all(first == second for first, second in leaders)
