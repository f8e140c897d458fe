"""True epsilons of mechanisms, in closed form or by numerical integration of what is known of them."""

import math

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism
from scipy.special import ndtr
from scipy.stats import norm

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.root_finding import last_true
from tests.validation.corpus.case import Floats

NONE = math.inf
"""Of a mechanism that holds no epsilon at the delta of its claim."""
_GRID = np.linspace(-30.0, 30.0, 60_001)


def gaussian(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian release that moves by so many standard deviations."""
    return gdp_epsilon(delta, mu)


def sampled(multiplier: float, rounds: int, rate: float, delta: float) -> float:
    """Return the epsilon of rounds of Gaussian noise on Poisson samples, where a record is added or removed.

    `multiplier` is the standard deviation of the noise over the sensitivity.
    """
    return PrivacyProfile(gaussian_rounds(multiplier, rounds, rate), Adjacency.ADD_REMOVE_RECORD).epsilon(delta)


def laplace(scale: float, shift: float, coordinates: int, delta: float) -> float:
    """Return the epsilon of numbers with Laplace noise of which each moves, by dp-accounting.

    `shift` is that of each of so many places.
    """
    distribution = from_laplace_mechanism(scale, sensitivity=shift, value_discretization_interval=1e-4)
    return float(distribution.self_compose(coordinates).get_epsilon_for_delta(delta))


def mixed(mu: float, times: float, share: float, delta: float, upper_end: float = 60.0) -> float:
    """Return the epsilon of a Gaussian release whose shift is so many times as large in a share of the trials.

    `mu` is the usual shift over the standard deviation; `upper_end` is the upper end of the search for epsilon.
    """
    present = (1 - share) * norm.pdf(_GRID - mu / 2) + share * norm.pdf(_GRID - times * mu / 2)
    absent = present[::-1]  # the shifts of the other side are the opposite ones
    step = float(_GRID[1] - _GRID[0])

    def is_below(epsilon: float) -> bool:
        return float(np.sum(np.maximum(present - math.exp(epsilon) * absent, 0.0)) * step) > delta

    return last_true(is_below, 0.0, upper_end)


def correlated(mu: float, covariance: Floats, direction: Floats) -> float:
    """Return the shift over the spread of a release along a direction, if its noise has another covariance.

    `mu` is the shift over the spread if the noise were independent with variance 1; `covariance` has shape (size,
    size), `direction` (size,).
    """
    unit = direction / np.linalg.norm(direction)
    return mu * math.sqrt(float(unit @ np.linalg.solve(covariance, unit)))


def outside(delta: float, share: float, coordinates: int) -> float:
    """Return the epsilon of noise of bounded support: none, where it leaves the other side's support often enough.

    `share` is the probability with which one of so many numbers lies where it cannot lie without the target.
    `ValueError` is raised if that is too rare to tell.
    """
    if -math.expm1(coordinates * math.log1p(-share)) <= delta:
        raise ValueError("the supports overlap too much: accepted are mechanisms that hold no epsilon")
    return NONE


def tail(beyond: float, shift: float) -> float:
    """Return the probability that a normal number truncated at -beyond and beyond leaves that range when it is shifted.

    Both are in standard deviations, above 0.
    """
    return float((ndtr(beyond) - ndtr(beyond - shift)) / (2 * ndtr(beyond) - 1))
