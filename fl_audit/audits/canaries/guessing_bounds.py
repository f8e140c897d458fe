"""Lower bounds on epsilon or on a trade-off curve, from the number of right guesses in one run, for any mechanism.

The outputs of the mechanism for different coins may depend on each other in any way.

**Setting.** A fair coin decides for each of m canaries whether it is in. An attacker sees the release, guesses the r
coins of which it is most confident, and abstains from the others. Of the guesses, v are right.

**Assumptions of every bound.** The coins are independent and fair. The guesses depend only on the release and on things
that are independent of these coins. The number r is fixed before the scores are seen. Several rounds or trials count as
one run with all their coins.

**The bound of Steinke, Nasr & Jagielski 2023.** Under (epsilon, delta)-DP the number of right guesses is stochastically
dominated by Bin(r, q) with q = e^epsilon / (1 + e^epsilon), up to a correction for delta. This bound treats every guess
as if it were made under the worst-case event.

**The trade-off bound** (after Mahloujifar, Melis & Chaudhuri 2024). It is tighter, and holds for a mechanism with
trade-off function f. Let F(x) = 1 - f(x), which is increasing and concave. For neighbouring inputs, the probability of
an event under one is at most F of its probability under the other. Let N be the number of right guesses and p_i = P(N =
i). Fix the coins S, a canary j and a set T of numbers. Consider the releases for which the guess of coin j is right and
N is in T. If coin j is flipped, this guess is wrong for the same releases, and they have one right guess less. So their
probability under S is at most F of their probability under the flipped coins. Average over fair coins and over the m
canaries. Since F is concave, Jensen's inequality gives

    sum over i in T of (i / m) p_i <= F(sum over i in T of ((r - i + 1) / m) p_(i-1)).

Take T = {t, t + 1, ...} for t = 1, ..., r. Let A_t be the sum over i >= t of i p_i / m, and B_t the sum over i >= t of
(r - i) p_i / m. Then B_(t-1) >= F^-1(A_t). If P(N >= v) is tau, then A_v + B_v = tau r / m. The total is A_0 + B_0 = r
/ m. From p_(t-1) = m (B_(t-1) - B_t) / (r - t + 1) follows A_(t-1) = A_t + (B_(t-1) - B_t) (t - 1) / (r - t + 1).

Suppose that all of tau lies at v, and that every B_(t-1) is as small as allowed, which is max(B_t, F^-1(A_t)). Then
both sums are smallest at every step. The reason is as follows. If another choice makes B_t larger by d, it makes A_t
larger by at least d t / (r - t). In later steps t is smaller, and so is this factor. So a tail probability tau is
possible if and only if the resulting total is at most r / m. The bound rejects every curve for which a tail probability
equal to the level is impossible. The curves of a family are nested, so the rejected curves are those below the bound.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from fl_audit.array_types import Flags, Floats, in_one_axis
from fl_audit.errors import require
from fl_audit.root_finding import last_true
from fl_audit.statistics.beta_expectation import argument_at_level
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class Guesses:
    """The counts of a guessing attack on coins: the number of coins, of guesses, and of right guesses."""

    coins: int  # number of coins, at least 1; m in the module's docstring
    guessed: int  # number of coins that the attacker guessed, from 0 to `coins`; r in the module's docstring
    right: int  # number of right guesses, from 0 to `guessed`; v in the module's docstring

    def __post_init__(self) -> None:
        ordered = 0 <= self.right <= self.guessed <= self.coins and self.coins >= 1
        problem = f"{self.right} right of {self.guessed} guesses about {self.coins} coins"
        require(ordered, f"{problem}: accepted are 0 <= right <= guesses <= coins, 1 coin or more")


def guesses_of_scores(scores: ArrayLike, is_in: ArrayLike, positive: int, negative: int) -> Guesses:
    """Guess the coins of canaries from their scores, and return the number of right guesses.

    The canaries with the highest scores are guessed `in`, those with the lowest scores are guessed `out`, and the other
    coins are not guessed. Ties are broken at random, by a seed that depends only on the scores. If all scores are
    equal, half of the guesses count as right. Raises `InputError` as `checked_scores` does, or if the numbers are out
    of range.

    Parameters
    ----------
    scores
        Scores of the canaries, no NaN, any shape; a higher score indicates that the canary was in. Several trials count
        as one run.
    is_in
        Whether each canary was in, bool, of the shape of `scores`.
    positive
        Number of canaries that are guessed `in`, at least 0. It must be chosen before the scores are seen, since the
        best of several choices gives no valid bound.
    negative
        Number of canaries that are guessed `out`, at least 0. `positive` and `negative` together are at most the number
        of canaries. It must also be chosen beforehand.

    Examples
    --------
    >>> guesses_of_scores([3.0, 1.0, 2.0, 0.0], [True, False, False, True], positive=1, negative=1)
    Guesses(coins=4, guessed=2, right=1)
    """
    values, coins = checked_scores(scores, is_in)
    guessed = positive + negative
    fits = positive >= 0 and negative >= 0 and guessed <= values.size
    requested = f"{positive} positive and {negative} negative guesses"
    require(fits, f"{requested} about {values.size} coins: accepted are numbers from 0, together at most the coins")
    if np.all(values == values[0]):
        return Guesses(values.size, guessed, guessed // 2)
    # The seed depends on the scores. A seed by the number of coins alone would break all ties alike, in favour of some
    # data.
    digest = hashlib.blake2b(values.astype("<f8").tobytes(), digest_size=16).digest()
    lots = np.random.Philox(key=np.frombuffer(digest, "<u8")).random_raw(values.size)
    ordered = coins[np.lexsort((lots, -values))]
    right = ordered[:positive].sum() + (~ordered[values.size - negative :]).sum()
    return Guesses(values.size, guessed, int(right))


def checked_scores(scores: ArrayLike, is_in: ArrayLike) -> tuple[Floats, Flags]:
    """Return scores as floats and coins as bools, both flattened to one dimension.

    Raises `InputError` if the shapes differ, coins are neither bool nor 0 and 1, there is no score, or a score is NaN.

    Parameters
    ----------
    scores
        Scores, of any shape; a higher score indicates that the canary was in.
    is_in
        Whether each canary was in, bool or 0 and 1, of the shape of `scores`.
    """
    score_values = in_one_axis(scores)
    tossed = in_one_axis(is_in)
    values = np.asarray(score_values, dtype=np.float64).ravel()
    coins = tossed.ravel()
    require(score_values.shape == tossed.shape, f"coins have shape {np.shape(is_in)}: accepted is {np.shape(scores)}")
    require(bool(np.isin(coins, (0, 1)).all()), "coins are not all 0 or 1: accepted are 0 (out) and 1 (in)")
    require(values.size > 0, "scores are empty: accepted is at least one")
    require(not bool(np.isnan(values).any()), "scores contain NaN: accepted are numbers")
    return values, coins.astype(np.bool_)


Inverse = Callable[[float], float]
"""The function F^-1 of the module's docstring: from an event's probability to its smallest one under a neighbour."""

LARGEST_MU = 30.0
_LARGEST_EPSILON = 36.0  # beyond it e^epsilon / (1 + e^epsilon) is 1 in floating point
_STEPS = 50


def one_run_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability of `guesses.right` or more right guesses under (epsilon, delta)-DP.

    Source: Steinke, Nasr & Jagielski 2023, theorem 5.2. Let m be the number of coins, r of guesses, and v of right
    guesses. With q = e^epsilon / (1 + e^epsilon), beta = P(Bin(r, q) >= v), and alpha = max over i = 1, ..., v of P(v >
    Bin(r, q) >= v - i) / i, the value is min(1, beta + 2 m delta alpha).

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses.
    epsilon
        Epsilon of the tested guarantee, at least 0.
    delta
        Delta of the tested guarantee, at least 0 and below 1.
    """
    require_number("epsilon is", epsilon, "numbers from 0")
    require_number("delta is", delta, "numbers from 0 to below 1")
    v = guesses.right
    r = guesses.guessed
    q = float(expit(epsilon))
    if v == 0:
        return 1.0
    below: Floats = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, q))
    alpha = float((below / np.arange(1, v + 1)).max())
    return min(1.0, float(binom.sf(v - 1, r, q)) + 2 * guesses.coins * delta * alpha)


def steinke_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """Return the lower bound on epsilon by Steinke et al. 2023: the smallest epsilon whose p-value reaches the level.

    The p-value of an epsilon is computed by `one_run_p_value`. The bound is at most 36.

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses.
    delta
        The delta for which epsilon is bounded, at least 0 and below 1.
    level
        One minus the confidence of the bound, above 0 and below 0.5.
    """
    require_number("delta is", delta, "numbers from 0 to below 1")
    if guesses.right == 0:
        return 0.0
    reached = argument_at_level(lambda epsilon: one_run_p_value(guesses, epsilon, delta), level, _LARGEST_EPSILON)
    return min(reached, _LARGEST_EPSILON)


def gaussian_inverse(mu: float) -> Inverse:
    """Return the inverse of F(x) = 1 - f(x) for mu-Gaussian DP: y -> Phi(Phi^-1(y) - mu).

    Here f is the trade-off function (Dong, Roth & Su 2022, definition 2.6), Phi the standard normal distribution
    function, and `mu` is at least 0.
    """
    return lambda y: float(ndtr(ndtri(y) - mu))


def approximate_inverse(epsilon: float, delta: float) -> Inverse:
    """Return the inverse of F(x) = 1 - f(x), where f is the trade-off function of (epsilon, delta)-DP.

    It is y -> max(0, (y - delta) e^-epsilon, 1 - delta - e^epsilon (1 - y)).

    Parameters
    ----------
    epsilon
        Epsilon of the guarantee, at least 0.
    delta
        Delta of the guarantee, at least 0 and below 1.
    """
    up = math.exp(epsilon)
    down = math.exp(-epsilon)
    return lambda y: max(0.0, (y - delta) * down, 1 - delta - up * (1 - y))


def is_possible(guesses: Guesses, tail: float, inverse: Inverse) -> bool:
    """Return whether a trade-off curve allows at least `guesses.right` right guesses with probability `tail`.

    The computation is explained in the module's docstring.

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses; m, r and v of the module's docstring.
    tail
        The probability, from 0 to 1; tau of the module's docstring.
    inverse
        The function F^-1 of the trade-off curve f, with F(x) = 1 - f(x); convex, increasing, and at most its argument.
    """
    m = guesses.coins
    r = guesses.guessed
    v = guesses.right
    a = tail * v / m
    b = tail * (r - v) / m
    for t in range(v, 0, -1):
        lower = max(b, inverse(a))
        gained = lower - b
        b = lower
        a += gained * (t - 1) / (r - t + 1)
        if a + b > r / m:
            return False
        if gained == 0:
            return True  # no later step changes the sums
    return True


def tradeoff_mu(guesses: Guesses, level: float) -> float:
    """Return the lower bound on the mu of Gaussian DP from the guesses of one run, at most 30.

    The epsilon that `gdp_epsilon` gives for this mu is a lower bound only if the mechanism's trade-off function
    **equals** that of a Gaussian mechanism. It is not enough that the mechanism is mu-GDP: for randomised response with
    epsilon 1, `gdp_epsilon` would give 5.58 at delta 1e-5.

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses.
    level
        One minus the confidence of the bound, above 0 and below 0.5.

    Examples
    --------
    >>> round(tradeoff_mu(Guesses(coins=1000, guessed=1000, right=700), 0.05), 2)
    0.36
    """
    return _largest_rejected(guesses, gaussian_inverse, LARGEST_MU, level)


def tradeoff_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """Return a lower bound on epsilon, at most 36, from the guesses of one run.

    The bound is valid for every mechanism.

    Parameters
    ----------
    guesses
        Counts of coins, guesses and right guesses.
    delta
        The delta for which epsilon is bounded, at least 0 and below 1.
    level
        One minus the confidence of the bound, above 0 and below 0.5.
    """
    require_number("delta is", delta, "numbers from 0 to below 1")
    return _largest_rejected(guesses, lambda epsilon: approximate_inverse(epsilon, delta), _LARGEST_EPSILON, level)


def _largest_rejected(guesses: Guesses, family: Callable[[float], Inverse], largest: float, level: float) -> float:
    """Return the largest parameter, up to `largest`, whose trade-off curve the guesses reject; 0 if they reject none.

    `family` maps a parameter to the function F^-1 of its curve, as in the module docstring. `level` is the significance
    level of the rejection.
    """
    return last_true(lambda parameter: not is_possible(guesses, level, family(parameter)), 0.0, largest, _STEPS)
