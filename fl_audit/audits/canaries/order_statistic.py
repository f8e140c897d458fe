"""The order-statistic bound of one run (after Xiang et al. 2025, arXiv 2509.08704), with the exact null distribution.

**What it asks for besides.** What the release says of each coin is a coarser view of an observation of that coin
alone, at most as telling as N(0, 1) against N(mu, 1), and these observations are independent given everything else. So
it is with Gaussian noise along directions that no coin moves. It is **not** so for a mechanism that sometimes leaks
many coins together, though each coin's leak is small on average: there more certificates are false than claimed.

**Why it holds.** Give the attacker the ideal observations themselves, with losses L_j. Given these, coin j is told
rightly with probability p_j = 1 / (1 + e^-|L_j|) at most, independently of the others. Let the guess in place k of the
attacker's order of confidence count w_k, w_1 >= w_2 >= ... >= 0. Of two places the earlier one should have the coin of
the larger p_j: outcomes in which both or neither is right weigh the same either way, and among outcomes with one right
guess the heavier one becomes likelier. So the sum over right guesses is stochastically largest when the coins are
sorted by |L_j|, whatever the weights, and that distribution is the null. Here the r surest guesses count w each and all
others 1, with w so large that the others only break ties.

**Its distribution.** Let t be the (r + 1)-th largest |L_j|. The probability B that |L| is larger than t has the
distribution Beta(r + 1, m - r). Given t, the r larger losses are independent draws of |L| above t, so that errors among
them are Bin(r, p(t)), and so are the m - r - 1 smaller ones below t: one integral over B is exact. With the losses of
the even mixture, |L| = mu |s|, s normal around +-mu/2: P(|s| > a) = Phi(-a - mu/2) + Phi(mu/2 - a), of which the first
part errs.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, betainccinv, betaincinv, expit, ndtr, xlog1py, xlogy

from fl_audit.array_types import Floats
from fl_audit.audits.canaries.guessing_bounds import LARGEST_MU, Guesses
from fl_audit.privacy.gaussian import require_mu
from fl_audit.statistics.beta_mean import legendre, where_it_reaches

_NODES = 120
_NEGLECTED = 1e-14  # probability at either end of the distribution of B that the integral leaves out


def order_statistic_p_value(guesses: Guesses, mu: float) -> float:
    """Return the probability of guesses at least this good where each coin is N(0, 1) against N(mu, 1), from 0 to 1.

    Raises `InputError` if mu is out of its range.

    Parameters
    ----------
    guesses
        Counts of guesses.
    mu
        Mu of Gaussian DP under the hypothesis, at least 0.

    Examples
    --------
    >>> round(order_statistic_p_value(Guesses(coins=1000, guessed=500, right=411), 1.0), 3)
    0.063
    """
    require_mu(mu)
    r, rest = guesses.guessed, guesses.coins - guesses.guessed
    errors, rest_errors = r - guesses.right, rest - guesses.rest_right
    if rest == 0:
        return float(bdtr(errors, r, ndtr(-mu / 2)))
    place, weights = _places_of_the_next(guesses.coins, r, mu)
    above = _share_above(place, mu)
    inside = np.clip(1 - above, 1e-300, None)
    below_errs = np.clip((ndtr(-mu / 2) - ndtr(-place - mu / 2)) / inside, 0.0, 0.5)
    next_errs = expit(-mu * place)
    others = (1 - next_errs) * _at_most(rest_errors, rest - 1, below_errs)
    others += next_errs * _at_most(rest_errors - 1, rest - 1, below_errs)
    errs = ndtr(-place - mu / 2) / above
    fewer, as_many = _at_most(errors - 1, r, errs), _at_most(errors, r, errs)
    return min(1.0, float(weights @ (fewer + (as_many - fewer) * others)))


def order_statistic_mu(guesses: Guesses, level: float) -> float:
    """Return the smallest mu at which the p-value reaches the level, at most 30.

    Parameters
    ----------
    guesses
        Counts of guesses; the number of guesses was fixed beforehand (half of the coins is a good one).
    level
        One minus the confidence, above 0 and below 0.5.

    Examples
    --------
    >>> round(order_statistic_mu(Guesses(coins=1000, guessed=500, right=420), 0.05), 2)
    1.07
    """
    return min(where_it_reaches(lambda mu: order_statistic_p_value(guesses, mu), level, LARGEST_MU), LARGEST_MU)


def _share_above(place: Floats | float, mu: float) -> Floats:
    """Return P(|s| > place)."""
    return np.asarray(ndtr(-place - mu / 2) + ndtr(mu / 2 - place), dtype=np.float64)


def _places_of_the_next(coins: int, guessed: int, mu: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of the distribution of t / mu, the place of the (r + 1)-th largest |s|."""
    a, b = guessed + 1, coins - guessed
    near = _place_of_share(float(betainccinv(a, b, _NEGLECTED)), mu)
    far = _place_of_share(float(betaincinv(a, b, _NEGLECTED)), mu)
    nodes, weights = legendre(_NODES)
    place = near + (far - near) * (nodes + 1) / 2
    share = np.clip(_share_above(place, mu), 1e-300, 1.0)
    log_density = xlogy(a - 1, share) + xlog1py(b - 1, -share)
    slope = np.exp(-((place + mu / 2) ** 2) / 2) + np.exp(-((place - mu / 2) ** 2) / 2)
    mass = weights * slope * np.exp(log_density - log_density.max())
    return place, mass / mass.sum()


def _place_of_share(share: float, mu: float) -> float:
    """Return the place beyond which |s| lies with this probability."""
    if share >= 1:
        return 0.0
    furthest = mu / 2 + 2 + math.sqrt(-2 * math.log(share))
    return float(brentq(lambda place: float(_share_above(place, mu)) - share, 0.0, furthest, xtol=1e-12))


def _at_most(number: int, trials: int, probability: Floats) -> Floats:
    """Return P(Bin(trials, probability) <= number)."""
    if number < 0:
        return np.zeros_like(probability)
    if number >= trials:
        return np.ones_like(probability)
    return np.asarray(bdtr(number, trials, probability), dtype=np.float64)
