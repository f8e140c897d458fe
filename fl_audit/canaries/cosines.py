"""Privacy estimated from the cosines of random canaries (Andrew et al. 2023, arXiv 2302.03098), and a lower bound.

Every canary is a random direction of which all are sent. In d dimensions the cosine of a release with a direction that
nobody sent is N(0, 1/d), d large; with one that was sent it is normal as well, with a larger mean. The paper fits a
normal law to the sent ones and states the epsilon between both laws: an **estimate** without a confidence, too large
for small epsilon, because a spread that is fitted off by chance looks like a leak. Its lower bound takes the best of
all thresholds uncorrected, which is no bound. Here the bound is one on the mean, by the t law.

**Assumes** Gaussian noise and cosines that are normal; other canaries count as noise, so that the bound stays below a
client's loss.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from fl_audit.errors import require
from fl_audit.privacy.gaussian import gdp_epsilon, require_delta
from fl_audit.search import falling_root

_SMALLEST_DIMENSION = 1000  # from here on the cosine of random directions is normal for all purposes


class CosineFinding(NamedTuple):
    """What cosines with one release, or with the final model's change, say of a training."""

    epsilon: float  # the paper's estimate at delta; it has no confidence
    epsilon_lower: float  # the lower bound at delta, at least 0
    # `mu`, `mu_lower`: the mean cosine in units of 1 / sqrt(d), and the lower bound of it, both at least 0.
    mu: float
    mu_lower: float


def from_final_model(cosines: ArrayLike, dimension: int, delta: float, confidence: float = 0.95) -> CosineFinding:
    """Return what the cosines of sent canaries with one release, or with the final model's change, say.

    Parameters
    ----------
    cosines, dimension, delta
        From -1 to 1, shape (canaries,), at least two; d, at least 1000; above 0, below 1.
    confidence
        Above 0.5, below 1.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    values = np.asarray(cosines, dtype=np.float64)
    fits = values.ndim == 1 and values.size >= 2
    require(fits, f"cosines have shape {values.shape}: accepted is (canaries,), two canaries or more")
    require(bool((np.abs(values) <= 1).all()), "cosines leave -1 to 1 or are NaN: accepted are numbers from -1 to 1")
    enough = dimension >= _SMALLEST_DIMENSION
    require(enough, f"dimension is {dimension}: accepted are whole numbers from {_SMALLEST_DIMENSION}")
    require(0.5 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0.5 and below 1")
    require_delta(delta)
    seen = values * math.sqrt(dimension)
    mean, reach = float(seen.mean()), float(stdtrit(seen.size - 1, confidence))
    low = max(0.0, mean - reach * float(seen.std(ddof=1)) / math.sqrt(seen.size))
    estimate = _epsilon_of_two_normals(mean, float(seen.std()), delta)
    return CosineFinding(estimate, gdp_epsilon(delta, low), max(0.0, mean), low)


def _epsilon_of_two_normals(mean: float, spread: float, delta: float) -> float:
    """Return the epsilon at delta between N(0, 1) and N(mean, spread^2), the larger of both directions."""
    require(0 < spread < math.inf, f"spread is {spread}: accepted are positive finite numbers")

    def gap(epsilon: float) -> float:
        there = _hockey_stick(epsilon, mean, spread)
        back = _hockey_stick(epsilon, -mean / spread, 1 / spread)
        return max(there, back) - delta

    return falling_root(gap, xtol=1e-12)


def _hockey_stick(epsilon: float, mean: float, spread: float) -> float:
    """Return P(E) - e^epsilon Q(E), P = N(mean, spread^2), Q = N(0, 1), E where the log ratio passes epsilon."""
    # The ratio is a y^2 + b y + c; where e^epsilon Q(E) would lose its digits, E is so unlikely that P(E) alone counts.
    a, b = (1 - spread**-2) / 2, mean / spread**2
    c = -(mean**2) / (2 * spread**2) - math.log(spread) - epsilon
    if abs(a) < 1e-12:
        if b == 0:
            return 0.0
        start = -c / b
        ends = [(start, math.inf)] if b > 0 else [(-math.inf, start)]
    elif (discriminant := b * b - 4 * a * c) <= 0:
        ends = [(-math.inf, math.inf)] if a > 0 else []
    else:
        root = math.sqrt(discriminant)
        low, high = sorted(((-b - root) / (2 * a), (-b + root) / (2 * a)))
        ends = [(-math.inf, low), (high, math.inf)] if a > 0 else [(low, high)]
    inside = sum(_mass((low - mean) / spread, (high - mean) / spread) for low, high in ends)
    outside = sum(_mass(low, high) for low, high in ends)
    return inside - (math.exp(min(epsilon + math.log(outside), 0.0)) if outside > 0 else 0.0)


def _mass(low: float, high: float) -> float:
    """Return the probability of N(0, 1) between two numbers, from the tail that keeps its digits."""
    return float(ndtr(-low) - ndtr(-high)) if low > 0 else float(ndtr(high) - ndtr(low))
