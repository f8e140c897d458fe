"""Compute the distribution of the adversary's log-odds L = log P(releases | D) / P(releases | D'), under D and D'.

Under D, L is the privacy loss of D against D'; under D', it is minus the privacy loss of D' against D. The distribution
holds if the sensitivities of all rounds equal those of the events; sensitivities that depend on earlier releases give
other distributions.

D is the training set with the unit, and D' is without it (add-remove) or with its replacement. With secret sampling and
add-remove, releases follow the mixture (1-q) N(0) + q N(mu) under D and N(0) under D', where q is the sampling rate.
The two distributions of L are then not mirror images, and L is at least k log(1-q) under both for k rounds. In all
other cases, L under D' has the distribution of -L under D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.privacy import pld
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import ReleaseEvent

# Target length of a fine grid, and the largest factor by which a fine grid has more points than the usual one.
_GRID = 500_000
_FINER = 32


class TrueHypothesis(StrEnum):
    """Training set that was used: PRESENT is D, with the unit; ABSENT is D', without it or with its replacement."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True)
class NormalLogOdds:
    """Normal distribution of the log-odds L of D against D', for Gaussian releases without sampling.

    L is N(mu^2/2, mu^2) under D and N(-mu^2/2, mu^2) under D'.
    """

    mu: float  # Gaussian-DP parameter of all rounds, positive
    truth: TrueHypothesis  # the training set that was used
    error: ClassVar[float] = 0.0

    @property
    def mean(self) -> float:
        """Mean of the log-odds L: mu^2/2 under D, -mu^2/2 under D'."""
        return (1 if self.truth is TrueHypothesis.PRESENT else -1) * self.mu**2 / 2

    def cdf(self, log_odds: ArrayLike) -> Floats:
        """Return the distribution function P(L <= x) of the log-odds L at each x of `log_odds`, in the same shape."""
        return np.asarray(ndtr((np.asarray(log_odds, dtype=np.float64) - self.mean) / self.mu), dtype=np.float64)

    def quantile(self, probability: ArrayLike) -> Floats:
        """Return the quantile of the log-odds L at each probability from 0 to 1, in the shape of `probability`."""
        return np.asarray(self.mean + self.mu * ndtri(_probabilities(probability)), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class GriddedLogOdds:
    """Distribution of the log-odds L of D against D' on a grid, computed from a privacy loss distribution."""

    values: Floats  # grid of log-odds, ascending and evenly spaced
    cumulative: Floats  # P(L <= value) at each grid point
    # Largest error of L on the grid, except with probability 1e-11 (tau in module `pld`):
    # P(L <= x - error) - 1e-11 <= cdf(x) <= P(L <= x + error) + 1e-11.
    error: float
    # Mean of L, with an error of at most K h^2 / 8 < error^2 for K releases on a grid of width h.
    mean: float

    def cdf(self, log_odds: ArrayLike) -> Floats:
        """Return the distribution function P(L <= x) of the log-odds L at each x of `log_odds`.

        The function has steps at the grid points.
        """
        index = np.searchsorted(self.values, np.asarray(log_odds, dtype=np.float64), side="right")
        return np.asarray(np.append(0.0, self.cumulative)[index], dtype=np.float64)

    def quantile(self, probability: ArrayLike) -> Floats:
        """Return the quantile of the log-odds L at each probability from 0 to 1, in the shape of `probability`.

        It is the smallest grid point at which the distribution function reaches the probability.
        """
        index = np.searchsorted(self.cumulative, _probabilities(probability), side="left")
        return np.asarray(self.values[np.minimum(index, self.values.size - 1)], dtype=np.float64)


LogOddsDistribution = NormalLogOdds | GriddedLogOdds
"""The distribution of the log-odds L of D against D', in nats, without the prior."""


def _probabilities(probability: ArrayLike) -> Floats:
    probabilities = np.asarray(probability, dtype=np.float64)
    require(
        bool(np.all((probabilities >= 0) & (probabilities <= 1))),
        f"probability is {probabilities}: accepted are numbers from 0 to 1",
    )
    return probabilities


def log_odds_distribution(
    events: Sequence[ReleaseEvent], adjacency: Adjacency, hypothesis: TrueHypothesis, fine: bool = True
) -> LogOddsDistribution:
    """Return the distribution of the adversary's log-odds of D against D' after all releases.

    For Gaussian releases without sampling it is exact. Otherwise it lies on a grid: for up to about 100 releases, its
    `error` is about 1/1000 of the standard deviation of the log-odds if `fine`, and 1/50 otherwise. Raises `InputError`
    if there is no event, or the noise is so small that the losses exceed the grid.
    """
    profile = PrivacyProfile(tuple(events), adjacency)
    if profile.gaussian_mu is not None:
        return NormalLogOdds(profile.gaussian_mu, hypothesis)
    curves = fine_curves(profile) if fine else pld.loss_curves(profile.events, adjacency)
    if hypothesis is TrueHypothesis.PRESENT:
        values = curves.curves[0].losses
        masses = curves.curves[0].probabilities
        beyond = 0.0
    else:
        curve = curves.curves[-1]
        values = -curve.losses[::-1]
        masses = curve.probabilities[::-1]
        beyond = curve.infinity
    cumulative = np.minimum(beyond + np.cumsum(masses), 1.0)  # `beyond` is the mass under the grid
    return GriddedLogOdds(values, cumulative, curves.error, float(values @ masses / masses.sum()))


def fine_curves(profile: PrivacyProfile) -> pld.PrivacyCurvePair:
    """Return the privacy curves of a profile on a grid that is up to 32 times as fine as usual.

    The grid has at most about 500,000 points.
    """
    finer = min(_FINER, _GRID // pld.loss_curves(profile.events, profile.adjacency).size)
    return pld.loss_curves(profile.events, profile.adjacency, pld.FINE * max(1, finer))


def increments_of(log_odds: Floats) -> Floats:
    """Return the increment of each round from cumulative log-odds; both have shape (trials, rounds).

    Increments much smaller than the cumulative values are lost to rounding.
    """
    return np.diff(log_odds, axis=1, prepend=0.0)


def bound_in_other(bound: float, prior: float) -> float:
    """Convert a bound on the belief in D to the bound on the belief in D' for a log-likelihood ratio of the same size.

    Both bounds are equal if the prior is 1/2.
    """
    return float(expit(logit(bound) - 2 * logit(prior)))
