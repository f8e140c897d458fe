"""The order-statistic bound from one run (after Xiang et al. 2025, arXiv 2509.08704), with the exact null distribution.

The bound is a lower bound on the mu of Gaussian DP, from the number of right guesses of canaries' coins.

**Additional assumption.** The release reveals each coin only through a separate observation, which is at most as
informative as N(0, 1) against N(mu, 1). These observations are conditionally independent. This holds for Gaussian noise
along directions that no coin affects. It does **not** hold for a mechanism that sometimes leaks many coins together,
even if each coin's leak is small on average: the error rate is then larger than stated.

**Why it is valid.** Suppose that the attacker knows the observations themselves, with log-likelihood ratios L_j. Then
coin j is guessed right with probability at most p_j = 1 / (1 + e^-|L_j|), independently of the others. Let the guess at
rank k of the attacker's order of confidence have weight w_k, where w_1 >= w_2 >= ... >= 0. Consider exchanging two
coins so that the earlier rank has the larger p_j. This does not change the weight of outcomes with both or neither
right. Among outcomes with one right guess, the heavier outcome becomes more likely. So the weighted sum of right
guesses is stochastically largest if the coins are sorted by |L_j|. The distribution of this sum is the null
distribution. Here the r most confident guesses have a weight so large that the others, with weight 1, only break ties.

**The null distribution.** Let m be the number of coins and t the (r + 1)-th largest |L_j|. Let B be the probability
that |L| exceeds t; B has the distribution Beta(r + 1, m - r). Given t, the r larger values are independent draws of |L|
above t, so the number of errors among them is binomial. The same holds for the m - r - 1 smaller values below t. So one
integral over B gives the exact distribution. For coins in and out with equal probability, |L| = mu |s|, where s is an
even mixture of N(mu/2, 1) and N(-mu/2, 1). Then P(|s| > a) = Phi(-a - mu/2) + Phi(mu/2 - a), and the first term is the
probability of an error.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, betainccinv, betaincinv, expit, ndtr, xlog1py, xlogy

from fl_audit.array_types import Floats
from fl_audit.audits.canaries.guessing_bounds import LARGEST_MU, Guesses
from fl_audit.privacy.gaussian import require_mu
from fl_audit.statistics.beta_expectation import argument_at_level, legendre

_NODES = 120
_NEGLECTED = 1e-14  # probability at either end of the distribution of B that the integral leaves out


def order_statistic_p_value(guesses: Guesses, mu: float) -> float:
    """Return the p-value of the number of right guesses, if the release shows each coin at most as mu-GDP allows.

    Under this null hypothesis, a separate observation for each coin is at most as informative as a draw from N(mu, 1)
    or from N(0, 1). The p-value is the largest probability of at least as many right guesses.

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses.
    mu
        The mu of Gaussian DP under the null hypothesis, at least 0.

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
    """Return the lower confidence bound on the mu of Gaussian DP: the smallest mu whose p-value reaches `level`.

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses. The number of guesses must be fixed before the scores are seen; half
        of the coins is a good choice.
    level
        One minus the confidence of the bound, above 0 and below 0.5.

    Examples
    --------
    >>> round(order_statistic_mu(Guesses(coins=1000, guessed=500, right=420), 0.05), 2)
    1.07
    """
    return min(argument_at_level(lambda mu: order_statistic_p_value(guesses, mu), level, LARGEST_MU), LARGEST_MU)


def _share_above(place: Floats | float, mu: float) -> Floats:
    """Return P(|s| > place), where s is an even mixture of N(mu/2, 1) and N(-mu/2, 1)."""
    return np.asarray(ndtr(-place - mu / 2) + ndtr(mu / 2 - place), dtype=np.float64)


def _places_of_the_next(coins: int, guessed: int, mu: float) -> tuple[Floats, Floats]:
    """Return values of the (guessed + 1)-th largest of `coins` draws of |s|, with weights, for numerical integration.

    The module docstring gives the distribution of the score s, which depends on `mu`.
    """
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
    """Return the value that the size |s| of a canary's score exceeds with probability `share`."""
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
