"""Mechanisms that tell of a thousand coins at once, with known privacy: what one-run bounds are tried on.

Some tell of each coin by itself, others leak coins together. What the release tells of a single coin, on average over
all that is random, is known as a trade-off curve: it gives epsilon at a delta, and the smallest mu of Gaussian DP.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, ndtri

from experiments.studies.membership_releases import gaussian_mean, randomised_response
from fl_audit.arrays import Flags, Floats

_RATES = np.exp(np.linspace(np.log(1e-14), np.log(0.5), 20_000))
"""False positive rates at which curves are searched; beyond one half they say the same of the other side."""


@dataclass(frozen=True)
class OneRunMechanism:
    """A mechanism that tells of the coins of one run."""

    name: str  # for people
    # Draws a score for each coin from coins of shape (runs, coins), as telling as the release allows.
    tell: Callable[[np.random.Generator, Flags], Floats]
    tpr: Callable[[Floats], Floats]  # the largest TPR at each FPR, about one coin, in the direction that tells more
    is_independent: bool = True  # whether what is told of different coins is independent given the coins
    is_gaussian: bool = False  # whether it is the Gaussian mechanism itself
    # The mu that the curve only reaches in the limit of small rates; None where a search finds it.
    limit_mu: float | None = None

    @property
    def mu(self) -> float:
        """The smallest mu of Gaussian DP that the mechanism keeps."""
        if self.limit_mu is not None:
            return self.limit_mu
        return float(np.max(ndtri(self.tpr(_RATES)) - ndtri(_RATES)))

    def epsilon(self, delta: float) -> float:
        """Return the exact epsilon at delta, above 0."""
        above = self.tpr(_RATES) > delta
        return max(0.0, float(np.max(np.log((self.tpr(_RATES)[above] - delta) / _RATES[above]))))


def mechanisms() -> list[OneRunMechanism]:
    """Return all mechanisms of the study, the ones that leak together last."""
    ideal, response = gaussian_mean(1.0), randomised_response(1.0)
    return [
        OneRunMechanism(ideal.name, ideal.tell, ideal.tpr, is_gaussian=True, limit_mu=1.0),
        OneRunMechanism("Laplace, epsilon = 1", _laplace, _laplace_tpr),
        OneRunMechanism(response.name, response.tell, response.tpr),
        OneRunMechanism("Gaussian mean 2, sampled at 0.3", _sampled, _sampled_tpr, limit_mu=2.0),
        OneRunMechanism(
            "a leak of 1 % of the records, by randomised response at 4",
            lambda draw, is_in: _told(draw, is_in, draw.random(is_in.shape) < 0.01, 4.0),
            lambda rate: partial_response_tpr(rate, 0.01, 4.0),
        ),
        OneRunMechanism(
            "all records or none (one run in ten), by randomised response at 2",
            lambda draw, is_in: _told(draw, is_in, draw.random((len(is_in), 1)) < 0.1, 2.0),
            lambda rate: partial_response_tpr(rate, 0.1, 2.0),
            is_independent=False,
        ),
        OneRunMechanism(
            "each half of the records or none (one in ten), by randomised response at 3",
            lambda draw, is_in: _told(draw, is_in, _halves(draw, is_in), 3.0),
            lambda rate: partial_response_tpr(rate, 0.1, 3.0),
            is_independent=False,
        ),
    ]


def partial_response_tpr(rate: Floats, share: float, epsilon: float) -> Floats:
    """Return the largest TPR about a coin that randomised response tells with a probability, and nothing otherwise.

    Parameters
    ----------
    rate
        FPR, from 0 to 1.
    share
        Probability that the coin is told of, which is seen.
    epsilon
        Epsilon of the response.
    """
    up = np.exp(epsilon)
    return np.minimum(np.minimum(up * rate, rate + share * np.tanh(epsilon / 2)), 1 - (1 - rate) / up)


def _told(draw: np.random.Generator, is_in: Flags, leaks: Flags, epsilon: float) -> Floats:
    """Return +-1 for what randomised response says of the coins that leak, and noise near 0 for others."""
    said = is_in ^ (draw.random(is_in.shape) >= expit(epsilon))
    return np.where(leaks, 2.0 * said - 1, 0.0) + 1e-3 * draw.normal(size=is_in.shape)


def _halves(draw: np.random.Generator, is_in: Flags) -> Flags:
    runs, coins = is_in.shape
    return np.repeat(draw.random((runs, 2)) < 0.1, coins // 2, axis=1)


def _laplace(draw: np.random.Generator, is_in: Flags) -> Floats:
    return is_in + draw.laplace(size=is_in.shape)


def _laplace_tpr(rate: Floats) -> Floats:
    """Return the curve at epsilon = 1 (Dong, Roth & Su 2022, section 2.3)."""
    up = np.e
    return np.where(rate < 0.5 / up, up * rate, np.where(rate < 0.5, 1 - 1 / (4 * up * rate), 1 - (1 - rate) / up))


def _sampled(draw: np.random.Generator, is_in: Flags) -> Floats:
    return 2.0 * (is_in & (draw.random(is_in.shape) < 0.3)) + draw.normal(size=is_in.shape)


def _sampled_tpr(rate: Floats) -> Floats:
    """Return the curve of adding the record; that of removing it lies below where rates are small."""
    return 0.7 * rate + 0.3 * np.asarray(ndtr(ndtri(rate) + 2.0))
