"""Mechanisms whose epsilon is known exactly, and the lower bounds on it that hold for them.

Each draws outputs under D and under D', and scores them with the exact log-likelihood ratio.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from fl_audit.array_types import Floats
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.lower_bound_methods import BoundMethod

_ASSUMES_NOTHING = frozenset({BoundMethod.CLOPPER_PEARSON, BoundMethod.ORDER_STATISTIC})
_GAUSSIAN = frozenset(BoundMethod)


@dataclass(frozen=True)
class KnownMechanism:
    """A mechanism with known epsilon."""

    name: str  # its name and parameters
    epsilon: Callable[[float], float]  # its exact epsilon at a delta, the larger of both directions
    # Log-likelihood ratios of so many outputs under D and as many under D'.
    draw: Callable[[np.random.Generator, int], tuple[Floats, Floats]]
    holds: frozenset[BoundMethod]  # the methods whose assumption holds


def noise() -> KnownMechanism:
    """Return scores without any information: epsilon is 0."""
    return KnownMechanism(
        "pure noise", lambda delta: 0.0, lambda rng, n: (rng.standard_normal(n), rng.standard_normal(n)), _GAUSSIAN
    )


def gaussian(mu: float) -> KnownMechanism:
    """Return a Gaussian mechanism: log-odds N(+-mu^2/2, mu^2); epsilon by Balle & Wang 2018, theorem 8."""
    return KnownMechanism(
        f"Gaussian, mu = {mu:g}",
        lambda delta: gdp_epsilon(delta, mu),
        lambda rng, n: (rng.normal(mu * mu / 2, mu, n), rng.normal(-mu * mu / 2, mu, n)),
        _GAUSSIAN,
    )


def subsampled_gaussian(rate: float, sigma: float) -> KnownMechanism:
    """Return one Poisson-sampled Gaussian release: (1 - q) N(0, s^2) + q N(1, s^2) against N(0, s^2).

    With x(t) where the log-likelihood ratio is t, delta is P(x > x(eps)) - e^eps Q(x > x(eps)) in one direction and Q(x
    < x(-eps)) - e^eps P(x < x(-eps)) in the other. `rate` is q, in (0, 1], and `sigma` is s, positive.
    """

    def ratio(x: Floats) -> Floats:
        return np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))

    def cut(t: float) -> float:
        inside = math.exp(t) - (1 - rate)
        return -math.inf if inside <= 0 else sigma**2 * math.log(inside / rate) + 0.5

    def tails(x: float) -> tuple[float, float]:
        absent = float(ndtr(-x / sigma))
        there = float(ndtr((1 - x) / sigma))
        return (1 - rate) * absent + rate * there, absent

    def delta_of(epsilon: float) -> float:
        p, q = tails(cut(epsilon))
        p_low, q_low = tails(cut(-epsilon))
        return max(p - math.exp(epsilon) * q, (1 - q_low) - math.exp(epsilon) * (1 - p_low))

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        present = rng.random(n) < rate
        return ratio(rng.normal(0, sigma, n) + present), ratio(rng.normal(0, sigma, n))

    def epsilon_of(delta: float) -> float:
        return float(brentq(lambda epsilon: delta_of(epsilon) - delta, 0.0, 50.0, xtol=1e-12))

    name = f"subsampled Gaussian, q = {rate:g}, sigma = {sigma:g}"
    return KnownMechanism(name, epsilon_of, draw, _ASSUMES_NOTHING)


def laplace(epsilon: float) -> KnownMechanism:
    """Return a Laplace mechanism; delta(eps') = 1 - e^((eps' - eps)/2) (Balle, Barthe & Gaboardi 2018, theorem 3)."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        outputs = [rng.laplace(centre, 1 / epsilon, n) for centre in (1.0, 0.0)]
        # |x| - |x - 1| would show beyond 0 and 1 by its rounding where x came from, and so tell more than epsilon.
        present_odds, absent_odds = (epsilon * np.clip(2 * x - 1, -1.0, 1.0) for x in outputs)
        return present_odds, absent_odds

    name = f"Laplace, epsilon = {epsilon:g}"
    return KnownMechanism(name, lambda delta: max(0.0, epsilon + 2 * math.log1p(-delta)), draw, _ASSUMES_NOTHING)


def randomised_response(epsilon: float) -> KnownMechanism:
    """Return randomised response: true with probability p = e^eps / (1 + e^eps); delta(eps') = p - e^eps' (1 - p)."""
    honest = float(expit(epsilon))

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        present_odds, absent_odds = (np.where(rng.random(n) < p, epsilon, -epsilon) for p in (honest, 1 - honest))
        return present_odds, absent_odds

    name = f"randomised response, epsilon = {epsilon:g}"
    false_probability = 1 - honest
    return KnownMechanism(
        name, lambda delta: max(0.0, math.log((honest - delta) / false_probability)), draw, _ASSUMES_NOTHING
    )


MECHANISMS = (noise(), gaussian(1.0), subsampled_gaussian(0.25, 0.5), laplace(1.0), randomised_response(1.0))
