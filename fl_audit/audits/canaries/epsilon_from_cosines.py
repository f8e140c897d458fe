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
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, stdtrit

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy.gaussian import gdp_epsilon, require_delta
from fl_audit.root_finding import falling_root
from fl_audit.value_checks import require_number

_SMALLEST_DIMENSION = 1000  # smallest dimension in which the cosine of random directions is taken as normal


@dataclass(frozen=True)
class EpsilonFromCosines:
    """An estimate of epsilon, and lower bounds on epsilon and mu, for one training from the cosines of its canaries."""

    epsilon: float  # the paper's estimate of epsilon at `delta`, without a confidence
    epsilon_lower: float  # lower confidence bound on epsilon at `delta`, at least 0
    mu: float  # mean cosine in units of 1 / sqrt(d), times the square root of `rounds`, at least 0
    mu_lower: float  # lower confidence bound on `mu`, at least 0
    delta: float  # the delta of both epsilons
    confidence: float  # confidence of both lower bounds
    canaries: int  # number of canaries
    rounds: int  # number of rounds with cosines; 1 if only the final model is observed


def from_final_model(cosines: ArrayLike, dimension: int, delta: float, confidence: float = 0.95) -> EpsilonFromCosines:
    """Return an estimate of epsilon and a lower bound on it, from the cosine of each sent canary with one release.

    The release is that of one round, or the change of the model over the whole training. Raises `InputError` if a
    number is out of its range.

    Parameters
    ----------
    cosines
        Cosines of the sent canaries with the release, from -1 to 1, shape (canaries,), at least two.
    dimension
        Number of parameters of the model, at least 1000.
    delta
        The delta for which epsilon is estimated and bounded, above 0 and below 1.
    confidence
        Confidence of the lower bound, above 0.5 and below 1.
    """
    scaled = _scaled(cosines, dimension, confidence, axes=1)
    require_delta(delta)
    estimate = epsilon_of_two_normals(float(scaled.mean()), float(scaled.std()), delta)
    return _finding(estimate, scaled[np.newaxis], delta, confidence)


def from_all_iterates(
    cosines: ArrayLike, unsent: ArrayLike, dimension: int, delta: float, confidence: float = 0.95
) -> EpsilonFromCosines:
    """Return an estimate of epsilon and a lower bound on it, from the cosines of canaries with all releases.

    Each canary is sent in every round. The estimate uses the largest cosine of each direction over the rounds, as in
    Andrew et al. 2023. The bound on mu is sqrt(rounds) times a bound on the mean cosine of one round. Raises
    `InputError` if shapes do not match or a number is out of its range.

    Parameters
    ----------
    cosines
        Cosines of the canaries with the releases, from -1 to 1, shape (rounds, canaries), at least two canaries.
    unsent
        Cosines of the releases with directions that no client sent, from -1 to 1, shape (rounds, directions), at least
        two directions.
    dimension
        Number of parameters of the model, at least 1000.
    delta
        The delta for which epsilon is estimated and bounded, above 0 and below 1.
    confidence
        Confidence of the lower bound, above 0.5 and below 1.
    """
    scaled, unsent_scaled = (
        _scaled(values_of_run, dimension, confidence, axes=2) for values_of_run in (cosines, unsent)
    )
    require_delta(delta)
    fits = scaled.shape[0] == unsent_scaled.shape[0]
    require(fits, f"unsent cosines have {unsent_scaled.shape[0]} rounds: accepted is {scaled.shape[0]}")
    largest = scaled.max(axis=0)
    reference = unsent_scaled.max(axis=0)
    unit = float(reference.std())
    shift = float(largest.mean() - reference.mean()) / unit
    return _finding(epsilon_of_two_normals(shift, float(largest.std()) / unit, delta), scaled, delta, confidence)


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


def _finding(estimate: float, scaled: Floats, delta: float, confidence: float) -> EpsilonFromCosines:
    """Return the finding: an `estimate` of epsilon, and a lower bound at `confidence`.

    The array `scaled` holds each canary's cosine times sqrt(dimension), (rounds, canaries).
    """
    rounds = math.sqrt(scaled.shape[0])
    number = scaled.size
    mean = float(scaled.mean())
    low = mean - float(stdtrit(number - 1, confidence)) * float(scaled.std(ddof=1)) / math.sqrt(number)
    mu = max(0.0, mean * rounds)
    mu_lower = max(0.0, low * rounds)
    return EpsilonFromCosines(
        epsilon=estimate,
        epsilon_lower=gdp_epsilon(delta, mu_lower),
        mu=mu,
        mu_lower=mu_lower,
        delta=delta,
        confidence=confidence,
        canaries=scaled.shape[1],
        rounds=scaled.shape[0],
    )


def _scaled(cosines: ArrayLike, dimension: int, confidence: float, axes: int) -> Floats:
    """Check cosines, their dimension and a confidence, and return the cosines times sqrt(dimension).

    The array of cosines must have `axes` axes: 1 for (canaries,), or 2 for (rounds, canaries).
    """
    values = np.asarray(cosines, dtype=np.float64)
    fits = values.ndim == axes and values.shape[-1] >= 2 and values.shape[0] >= 1
    accepted = "(canaries,)" if axes == 1 else "(rounds, canaries)"
    require(fits, f"cosines have shape {values.shape}: accepted is {accepted}, two canaries or more")
    require(bool((np.abs(values) <= 1).all()), "cosines leave -1 to 1 or are NaN: accepted are numbers from -1 to 1")
    enough = dimension >= _SMALLEST_DIMENSION
    accepted = f"whole numbers from {_SMALLEST_DIMENSION}"
    require(enough, f"dimension is {dimension}: accepted are {accepted}")
    require_number("confidence is", confidence, "numbers above 0.5 and below 1")
    return values * math.sqrt(dimension)
