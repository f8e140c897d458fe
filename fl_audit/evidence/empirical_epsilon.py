"""Empirical epsilon three ways, as in section 5.3 of Bernau et al. 2021: point estimates, none of them a bound."""

import math

import numpy as np
from numpy.typing import NDArray

from fl_audit.errors import require
from fl_audit.privacy.accounting import Accountant, epsilon_of_mu, require_delta
from fl_audit.privacy.scores import epsilon_from_advantage, require_prior


def epsilon_from_sensitivities(signal: NDArray[np.float64], delta: float, accountant: Accountant) -> float:
    """Return the largest epsilon over worlds that the sensitivities seen in them account for.

    Each world is a composition of Gaussian releases with its own mu_i, so the accountant is given
    mu = sqrt(sum of mu_i^2). Section 5.3, variant (i).

    Parameters
    ----------
    signal
        mu_i = Delta_i / sigma_i, the local sensitivity over the noise that was really added, shape (worlds, rounds),
        finite and at least 0.
    delta
        Above 0 and below 1.
    accountant
        Who accounts.

    Raises
    ------
    InputError
        If a signal is negative or not finite, there is none, or delta is out of its range.

    Examples
    --------
    >>> round(epsilon_from_sensitivities(np.full((1, 30), 0.5504 / 30**0.5), 0.001, Accountant.RDP_CLASSIC), 3)
    2.197
    """
    require(signal.ndim == 2 and signal.size > 0, f"signal has shape {signal.shape}: accepted is (worlds, rounds)")
    _require_signal(signal)
    largest = float(np.max(np.sqrt(np.sum(np.square(signal, dtype=np.float64), axis=1))))
    return epsilon_of_mu(accountant, largest, delta)


def _require_signal(signal: NDArray[np.float64]) -> None:
    wrong = ~(np.isfinite(signal) & (signal >= 0))
    if np.any(wrong):
        require(False, f"signal is {signal[wrong][0]}: accepted are finite numbers from 0")


def epsilon_from_largest_belief(log_odds: NDArray[np.float64], prior: float = 0.5) -> float:
    """Return logit(largest posterior belief) - logit(prior), at least 0: Eq. (5) on the largest belief of all worlds.

    Taken from log-odds, so that no belief saturates at 1. It is an **extreme value**: it grows with the number of
    worlds and converges to nothing; set it beside an epsilon only at the same number of worlds. Section 5.3, variant
    (ii).

    Parameters
    ----------
    log_odds
        Posterior log-odds of the dataset that was really used, shape (worlds,), finite: in worlds with bit 0 those of
        D', the negative of the log-odds of D. Without a prior in them (the evidence L alone), leave `prior` at 1/2.
    prior
        The prior belief that is contained in `log_odds`, above 0 and below 1.

    Raises
    ------
    InputError
        If there is no world, a value is not finite, or the prior is out of its range.

    Examples
    --------
    >>> epsilon_from_largest_belief(np.array([0.3, 900.0, -2.0]))
    900.0
    """
    require_prior(prior)
    require(log_odds.size > 0, "number of worlds is 0: accepted are whole numbers from 1")
    require(bool(np.all(np.isfinite(log_odds))), "log-odds contain NaN or infinity: accepted are finite numbers")
    return max(0.0, float(np.max(log_odds)) - math.log(prior / (1 - prior)))


def epsilon_from_measured_advantage(advantage: float, delta: float) -> float:
    """Return the epsilon of Eq. (6) for a measured advantage; 0 if it is not positive. Section 5.3, variant (iii).

    Parameters
    ----------
    advantage
        From -1 to 1; an advantage of 1 gives infinity.
    delta
        Above 0 and below 1.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    require(-1 <= advantage <= 1, f"advantage is {advantage}: accepted are numbers from -1 to 1")
    require_delta(delta)
    if advantage <= 0:
        return 0.0
    return epsilon_from_advantage(advantage, delta) if advantage < 1 else math.inf
