"""Privacy estimates from the cosines of random canaries (Andrew et al. 2023, arXiv 2302.03098), with a lower bound.

Each canary is a random direction, and all canaries are sent. In a large dimension d, the cosine of a release with a
direction that nobody sent is distributed as N(0, 1/d). The cosine with a direction that was sent is also normal, with a
larger mean.

The paper fits a normal distribution to the cosines of sent canaries and computes the epsilon between the two
distributions. This epsilon is an **estimate** without confidence. The estimate is too large for small epsilon, because
a fitted variance that is off by chance looks like a leak. The paper's lower bound takes the best threshold without a
correction for multiple testing, and so is not valid. This module instead computes a lower confidence bound on the mean
cosine, by the t distribution.

**Assumes** Gaussian noise and normal cosines. Other canaries act as noise, so the bound stays below a client's privacy
loss.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy.gaussian import gdp_epsilon, require_delta
from fl_audit.root_finding import falling_root
from fl_audit.value_checks import require_number

_SMALLEST_DIMENSION = 1000  # smallest dimension in which the cosine of random directions is taken as normal


def from_final_model(
    cosines: ArrayLike, dimension: int, delta: float, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return an estimate of epsilon, and lower bounds on epsilon and on mu, from the cosines of sent canaries.

    The estimate is that of the paper, without a confidence. Mu is the mean cosine in units of 1 / sqrt(d). The cosines
    are those with one release: that of one round, or the change of the model over the whole training. Raises
    `InputError` if a number is out of its range.

    Parameters
    ----------
    cosines
        Cosines of the sent canaries with the release, from -1 to 1, shape (canaries,), at least two.
    dimension
        Number of parameters of the model, at least 1000.
    delta
        The delta for which epsilon is estimated and bounded, above 0 and below 1.
    confidence
        Confidence of each lower bound, above 0.5 and below 1.
    """
    scaled = _scaled(cosines, dimension, confidence)
    require_delta(delta)
    mean = float(scaled.mean())
    estimate = epsilon_of_two_normals(mean, float(scaled.std()), delta)
    quantile = float(stdtrit(scaled.size - 1, confidence))
    mu_lower = max(0.0, mean - quantile * float(scaled.std(ddof=1)) / math.sqrt(scaled.size))
    return estimate, gdp_epsilon(delta, mu_lower), mu_lower


def epsilon_of_two_normals(mean: float, spread: float, delta: float) -> float:
    """Return the smallest epsilon at `delta` for which N(0, 1) and N(mean, spread^2) are indistinguishable.

    It is the larger one of the epsilons in both directions.

    Parameters
    ----------
    mean
        Mean of the second normal distribution, finite.
    spread
        Standard deviation of the second normal distribution, above 0 and finite.
    delta
        The delta for which epsilon is computed, above 0 and below 1.

    Examples
    --------
    >>> round(epsilon_of_two_normals(1.0, 1.0, 1e-2), 6)
    2.317789
    """
    require_delta(delta)
    require_number("spread is", spread, "positive finite numbers")

    def gap(epsilon: float) -> float:
        there = _hockey_stick(epsilon, mean, spread)
        back = _hockey_stick(epsilon, -mean / spread, 1 / spread)
        return max(there, back) - delta

    return falling_root(gap, xtol=1e-12)


def _hockey_stick(epsilon: float, mean: float, spread: float) -> float:
    """Return the hockey-stick divergence of N(mean, spread^2) from N(0, 1) at epsilon.

    The log-likelihood ratio is a quadratic polynomial, so it exceeds epsilon on at most two intervals.
    """
    a = (1 - spread**-2) / 2
    b = mean / spread**2
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
    """Return the probability of the interval from `low` to `high` under N(0, 1), without cancellation."""
    return float(ndtr(-low) - ndtr(-high)) if low > 0 else float(ndtr(high) - ndtr(low))


def _scaled(cosines: ArrayLike, dimension: int, confidence: float) -> Floats:
    """Check cosines, (canaries,), their dimension and a confidence, and return the cosines times sqrt(dimension)."""
    values = np.asarray(cosines, dtype=np.float64)
    fits = values.ndim == 1 and values.size >= 2
    require(fits, f"cosines have shape {values.shape}: accepted is (canaries,), two canaries or more")
    require(bool((np.abs(values) <= 1).all()), "cosines leave -1 to 1 or are NaN: accepted are numbers from -1 to 1")
    enough = dimension >= _SMALLEST_DIMENSION
    accepted = f"whole numbers from {_SMALLEST_DIMENSION}"
    require(enough, f"dimension is {dimension}: accepted are {accepted}")
    require_number("confidence is", confidence, "numbers above 0.5 and below 1")
    return values * math.sqrt(dimension)
