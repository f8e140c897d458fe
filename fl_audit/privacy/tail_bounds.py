"""Upper bounds for probabilities so small that rounding hides them from a loss distribution on a grid."""

import math

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.beliefs import Sensitivities, gaussian_log_odds_bound
from fl_audit.privacy.events import (
    GaussianRelease,
    LaplaceRelease,
    RandomizedResponse,
    ReleaseEvent,
    SampledGaussianRelease,
    full_participation_mu,
)
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.renyi import classic_conversion, improved_conversion, renyi_divergences


def epsilon_bound(events: tuple[ReleaseEvent, ...], adjacency: Adjacency, delta: float) -> float:
    """Return a bound from above on the epsilon of a composition at any delta, however small.

    The smaller of two: for Gaussian releases, Renyi divergences with the conversion of Balle et al. 2020 (theorem 21);
    and the closed form of the Gaussian releases as if the unit took part every time, to which releases of pure
    epsilon add theirs.

    Parameters
    ----------
    events
        The releases.
    adjacency
        How neighbours differ.
    delta
        Above 0 and below 1.

    Examples
    --------
    >>> events = (SampledGaussianRelease(1.0, 0.01, 100),)
    >>> round(epsilon_bound(events, Adjacency.ADD_REMOVE_RECORD, 1e-14), 2)
    3.8
    """
    mu, pure = _unsampled(events)
    unsampled = pure + (gdp_epsilon(delta, mu) if mu > 0 else 0.0)
    if not _are_gaussian(events):
        return unsampled
    return min(unsampled, improved_conversion(renyi_divergences(events, None, adjacency), delta))


def log_odds_bound(events: tuple[ReleaseEvent, ...], adjacency: Adjacency, probability: float) -> float:
    """Return log-odds, at least 0, that are passed with at most the probability, under adaptive sensitivities too.

    The same two ways as `epsilon_bound`. Of the Renyi divergences Mironov's conversion (2017, proposition 3) is taken:
    by Markov's inequality for e^((alpha - 1) L) it bounds the tail of the log-odds L itself.

    Parameters
    ----------
    events
        The releases.
    adjacency
        How neighbours differ.
    probability
        Above 0 and below 1.
    """
    mu, pure = _unsampled(events)
    unsampled = pure + (gaussian_log_odds_bound(mu, probability, Sensitivities.ADAPTIVE) if mu > 0 else 0.0)
    if not _are_gaussian(events):
        return unsampled
    return min(unsampled, classic_conversion(renyi_divergences(events, None, adjacency), probability))


def _unsampled(events: tuple[ReleaseEvent, ...]) -> tuple[float, float]:
    """Return mu of the Gaussian releases without their sampling, and the pure epsilon of all others together."""
    mu = math.hypot(*(full_participation_mu(event) or 0.0 for event in events))
    pure = sum(
        event.count * event.epsilon for event in events if isinstance(event, LaplaceRelease | RandomizedResponse)
    )
    return mu, pure


def _are_gaussian(events: tuple[ReleaseEvent, ...]) -> bool:
    return all(isinstance(event, GaussianRelease | SampledGaussianRelease) for event in events)
