"""Fit a Gaussian-DP parameter mu that bounds a whole privacy profile, and measure the error (regret) of the fit.

An (epsilon, delta) pair is only one point of the privacy profile, and two mechanisms with the same pair can differ
everywhere else. If the profile is close to the profile of a Gaussian mechanism, mu summarises all of it. The regret
measures how close it is.

Source: Gomez, Kulynych, Kaissis, du Pin Calmon, Hayes, Balle & Honkela, "(epsilon, delta) considered harmful: best
practices for reporting differential privacy guarantees", arXiv 2503.10945. They report mu if the regret is below 0.01.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from fl_audit.array_types import Floats, finite
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.gaussian import gdp_mu

SMALLEST_DELTA = 1e-7
"""Smallest delta down to which mu bounds the profile; below it, profiles of sampled releases are loose bounds."""
_EPSILONS = 1500
_ALPHAS = 2001
_HALVINGS = 40
_LARGEST_EPSILON = 600.0
"""Largest epsilon of profiles whose pairs are spread from 0 on; if one reaches further, they begin at delta near 1."""


class GdpFit(NamedTuple):
    """Gaussian-DP parameter mu that bounds a privacy profile, and the regret (error) of the fit."""

    mu: float  # the smallest mu whose Gaussian profile is nowhere below the given profile, at least 0
    # Smallest reduction of both error rates after which the profile's trade-off curve is nowhere above the Gaussian
    # trade-off curve of mu; from 0 to 1.
    regret: float

    def to_json(self) -> dict[str, float | None]:
        """Return mu and the regret under the keys `gdp_mu` and `gdp_regret`; an infinite mu becomes None."""
        return {"gdp_mu": finite(self.mu), "gdp_regret": self.regret}


@lru_cache(maxsize=128)  # clients of many sizes have a profile each
def gdp_fit(profile: PrivacyProfile) -> GdpFit:
    """Return the smallest Gaussian-DP parameter mu that bounds a privacy profile, with the regret (error) of the fit.

    For Gaussian releases without sampling, mu is exact and the regret is 0. If epsilon at delta 1e-7 is infinite or too
    large to compute with, mu is infinite and the regret is 1.
    """
    exact = profile.gaussian_mu
    if exact is not None:
        return GdpFit(exact, 0.0)
    largest = profile.epsilon(SMALLEST_DELTA)
    if not np.isfinite(largest):
        return GdpFit(math.inf, 1.0)
    smallest = 0.0 if largest <= _LARGEST_EPSILON else profile.epsilon(1 - SMALLEST_DELTA)
    epsilons = np.linspace(smallest, largest, _EPSILONS)
    try:
        deltas = np.array([profile.delta(float(x)) for x in epsilons])
    except OverflowError:  # next to no noise: epsilons that no profile is computed at
        return GdpFit(math.inf, 1.0)
    inside = (deltas > 0) & (deltas < 1)
    pairs = zip(epsilons[inside].tolist(), deltas[inside].tolist(), strict=True)
    mu = max((gdp_mu(epsilon, delta) for epsilon, delta in pairs), default=0.0)
    return GdpFit(mu, _regret(mu, epsilons, deltas))


def _regret(mu: float, epsilons: Floats, deltas: Floats) -> float:
    """Return the regret (see `GdpFit.regret`) of the fit mu to a privacy profile.

    The profile is given by pairs of an epsilon and its delta, in ascending order of epsilon.
    """
    alphas = ndtr(np.linspace(-6.0, 6.0, _ALPHAS))
    # The trade-off curve is the maximum of two lines per (epsilon, delta) pair (Dong, Roth & Su 2022, prop. 2.5).
    errors = np.zeros(_ALPHAS)
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        with np.errstate(over="ignore"):  # a line of infinite slope is below every other where alpha is above 0
            lines = 1 - delta - np.exp(epsilon) * alphas, np.exp(-epsilon) * (1 - delta - alphas)
        errors = np.maximum(errors, np.maximum(*lines))
    alphas = np.concatenate([[0.0], alphas, [1.0]])
    errors = np.concatenate([[1 - deltas[-1]], errors, [0.0]])
    fitted = ndtr(-ndtri(alphas) - mu)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        moved = np.interp(np.minimum(alphas + middle, 1.0), alphas, errors) - middle
        low, high = (low, middle) if bool((moved <= fitted).all()) else (middle, high)
    return high
