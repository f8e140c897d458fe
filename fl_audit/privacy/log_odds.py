"""The exact distribution of the insider's log-odds L = log P(releases | D) / P(releases | D'), under D and under D'.

It is the distribution of the privacy loss: under D that of the loss of D against D', under D' minus the loss of D'
against D. Simulated log-odds are tested against it (`uniforms`, then Kolmogorov-Smirnov against the uniform
distribution). It holds where the sensitivities of all rounds are those of the events; sensitivities that depend on
earlier releases give other distributions.

D is the data set with the unit, and D' the one without it (add-remove) or with its replacement. Under secret sampling
of a unit that comes or goes the two distributions are no mirror images: releases under D are the mixture (1-q) N(0) + q
N(mu), those under D' are N(0), and L is at least k log(1-q) under both. In all other cases L under D' has the
distribution of -L under D.
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

# Length of the grid that a distribution is put on, if that takes no more than so many times the usual number of points.
_GRID, _FINER = 500_000, 32


class TrueHypothesis(StrEnum):
    """The neighbour that was used. PRESENT: D, with the unit. ABSENT: D', without it or with another."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True)
class NormalLogOdds:
    """Gaussian releases without sampling: N(mu^2/2, mu^2) under D and N(-mu^2/2, mu^2) under D', in closed form."""

    mu: float  # Gaussian-DP parameter of all rounds, positive
    truth: TrueHypothesis  # the neighbour that was used
    error: ClassVar[float] = 0.0

    @property
    def mean(self) -> float:
        """mu^2/2 under D, -mu^2/2 under D'."""
        return (1 if self.truth is TrueHypothesis.PRESENT else -1) * self.mu**2 / 2

    def cdf(self, log_odds: ArrayLike) -> Floats:
        """Return P(L <= log_odds)."""
        return np.asarray(ndtr((np.asarray(log_odds, dtype=np.float64) - self.mean) / self.mu), dtype=np.float64)

    def quantile(self, probability: ArrayLike) -> Floats:
        """Return the log-odds with the probability (0 to 1) at or under them."""
        return np.asarray(self.mean + self.mu * ndtri(_probabilities(probability)), dtype=np.float64)

    def uniforms(self, log_odds: ArrayLike, _: np.random.Generator) -> Floats:
        """Return the distribution function at the log-odds, which needs no random draws."""
        return self.cdf(log_odds)


@dataclass(frozen=True, eq=False)
class GriddedLogOdds:
    """The distribution from a privacy loss distribution, on a grid."""

    values: Floats  # grid of log-odds, rising evenly
    cumulative: Floats  # P(L <= value) for each
    # The grid has moved L by at most this much, but for a probability of 1e-11 (module `pld`, tau):
    # P(L <= x - error) - 1e-11 <= cdf(x) <= P(L <= x + error) + 1e-11.
    error: float
    # Mean of L, at most K h^2 / 8 from the truth for K releases on a grid of width h, which is under error^2.
    mean: float

    def cdf(self, log_odds: ArrayLike) -> Floats:
        """Return P(L <= log_odds), a step function on the grid."""
        index = np.searchsorted(self.values, np.asarray(log_odds, dtype=np.float64), side="right")
        return np.asarray(np.append(0.0, self.cumulative)[index], dtype=np.float64)

    def quantile(self, probability: ArrayLike) -> Floats:
        """Return the smallest value of the grid with at least the probability (0 to 1) at or under it."""
        index = np.searchsorted(self.cumulative, _probabilities(probability), side="left")
        return np.asarray(self.values[np.minimum(index, self.values.size - 1)], dtype=np.float64)

    def uniforms(self, log_odds: ArrayLike, generator: np.random.Generator) -> Floats:
        """Return one number from 0 to 1 for each of the log-odds: independent and uniform if they follow the
        distribution.

        Several outcomes may share one value (a unit that was seen to take part in no round has L = 0), so each number
        is drawn evenly between the distribution function one `error` under and one `error` over the log-odds: what the
        grid has made of an atom lies within, and elsewhere the distribution hardly changes over so little. Near k
        log(1-q), where log-odds pile up under weak noise and secret sampling, it does: at z = 0.2 the numbers differ
        from uniform ones by up to 0.008, which tests of 10,000 log-odds do not notice.

        Parameters
        ----------
        log_odds
            Log-odds that may follow this distribution, of any shape.
        generator
            Generator for draws among outcomes that share one value.
        """
        found = np.asarray(log_odds, dtype=np.float64)
        low, high = self.cdf(found - self.error), self.cdf(found + self.error)
        return np.asarray(low + (high - low) * generator.random(found.shape), dtype=np.float64)


LogOddsDistribution = NormalLogOdds | GriddedLogOdds
"""The distribution of the log-odds L of D against D', in nats, without the prior."""


def _probabilities(probability: ArrayLike) -> Floats:
    found = np.asarray(probability, dtype=np.float64)
    require(bool(np.all((found >= 0) & (found <= 1))), f"probability is {found}: accepted are numbers from 0 to 1")
    return found


def log_odds_distribution(
    events: Sequence[ReleaseEvent], adjacency: Adjacency, under: TrueHypothesis, fine: bool = True
) -> LogOddsDistribution:
    """Return the distribution of the insider's log-odds of D against D' after all releases.

    It is in closed form for Gaussian releases without sampling, otherwise from the privacy loss distribution. For up to
    about 100 releases its `error` is about a thousandth of the standard deviation of L, on the coarser grid a fiftieth.
    Raises `InputError` if there is no event, or so little noise that a grid cannot hold the losses.

    Parameters
    ----------
    events
        The releases, at least one, with their sensitivities.
    adjacency
        The relation between neighbours, which matters under secret sampling only.
    under
        The neighbour that was used.
    fine
        Whether a distribution on a grid is to be as near as tests need; a coarser grid, which serves drawings, takes
        less time.
    """
    profile = PrivacyProfile(tuple(events), adjacency)
    if profile.gaussian_mu is not None:
        return NormalLogOdds(profile.gaussian_mu, under)
    curves = fine_curves(profile) if fine else pld.loss_curves(profile.events, adjacency)
    if under is TrueHypothesis.PRESENT:
        values, masses, beyond = curves.curves[0].losses, curves.curves[0].probabilities, 0.0
    else:
        curve = curves.curves[-1]
        values, masses, beyond = -curve.losses[::-1], curve.probabilities[::-1], curve.infinity
    cumulative = np.minimum(beyond + np.cumsum(masses), 1.0)  # `beyond` is the mass under the grid
    return GriddedLogOdds(values, cumulative, curves.error, float(values @ masses / masses.sum()))


def fine_curves(profile: PrivacyProfile) -> pld.LossCurves:
    """Return the curves of the releases on a grid up to 32 times as fine, with at most about half a million points."""
    finer = min(_FINER, _GRID // pld.loss_curves(profile.events, profile.adjacency).size)
    return pld.loss_curves(profile.events, profile.adjacency, pld.FINE * max(1, finer))


def increments_of(log_odds: Floats) -> Floats:
    """Return the increments of cumulative log-odds (trials, rounds), for tables that kept nothing else.

    Increments that are tiny relative to the log-odds themselves are lost to rounding.
    """
    return np.diff(log_odds, axis=1, prepend=0.0)


def bound_in_other(bound: float, prior: float) -> float:
    """Return the belief bound for D' that allows the same evidence as the bound for D; equal where the prior is 1/2.

    Parameters
    ----------
    bound
        Bound of the belief in D, above 0 and below 1.
    prior
        Prior probability of D, above 0 and below 1.
    """
    return float(expit(logit(bound) - 2 * logit(prior)))
