"""A single Gaussian parameter mu that covers a whole privacy profile, with the error of the fit.

An (epsilon, delta) pair is one point of a curve, and two mechanisms with the same pair can differ everywhere else.
Where the curve is nearly that of a Gaussian mechanism, mu says all of it, and the regret says how nearly.

Source: Gomez, Kulynych, Kaissis, du Pin Calmon, Hayes, Balle & Honkela, "(epsilon, delta) considered harmful: best
practices for reporting differential privacy guarantees", arXiv 2503.10945. They report mu where the regret is below
0.01.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.gaussian import gdp_mu

SMALLEST_DELTA = 1e-7
"""Smallest delta at which mu covers the profile: below it, curves of sampled releases are upper bounds and no fit."""
_EPSILONS, _ALPHAS, _HALVINGS = 1500, 2001, 40
_LARGEST_EPSILON = 600.0  # exp of much more is no number


class GdpFit(NamedTuple):
    """A Gaussian parameter, and its largest distance from the truth."""

    mu: float  # the smallest mu whose Gaussian profile lies nowhere below the profile, at least 0
    # By how much both error rates of a test have to grow, at most, until the Gaussian curve is met: from 0 to 1.
    regret: float

    def to_json(self) -> dict[str, float]:
        """Return the parameter and the error of the fit under the names of a guarantee's JSON."""
        return {"gdp_mu": self.mu, "gdp_regret": self.regret}


@lru_cache(maxsize=128)  # clients of many sizes have a profile each
def gdp_fit(profile: PrivacyProfile) -> GdpFit:
    """Return the Gaussian parameter that covers a profile, with the regret of the fit.

    Noise that is Gaussian without sampling has a regret of 0.
    """
    exact = profile.gaussian_mu
    if exact is not None:
        return GdpFit(exact, 0.0)
    epsilons = np.linspace(0.0, min(profile.epsilon(SMALLEST_DELTA), _LARGEST_EPSILON), _EPSILONS)
    deltas = np.array([profile.delta(float(one)) for one in epsilons])
    inside = (deltas > 0) & (deltas < 1)
    pairs = zip(epsilons[inside].tolist(), deltas[inside].tolist(), strict=True)
    mu = max((gdp_mu(epsilon, delta) for epsilon, delta in pairs), default=0.0)
    alphas = ndtr(np.linspace(-6.0, 6.0, _ALPHAS))
    # The curve is the highest of the lines that the pairs draw (Dong, Roth & Su 2022, proposition 2.5).
    errors = np.zeros(_ALPHAS)
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        lines = 1 - delta - np.exp(epsilon) * alphas, np.exp(-epsilon) * (1 - delta - alphas)
        errors = np.maximum(errors, np.maximum(*lines))
    alphas, errors = np.concatenate([[0.0], alphas, [1.0]]), np.concatenate([[1 - deltas[-1]], errors, [0.0]])
    fitted = ndtr(-ndtri(alphas) - mu)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        moved = np.interp(np.minimum(alphas + middle, 1.0), alphas, errors) - middle
        low, high = (low, middle) if bool((moved <= fitted).all()) else (middle, high)
    return GdpFit(mu, high)
