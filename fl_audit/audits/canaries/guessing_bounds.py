"""One-run bounds for any mechanism from the number of right guesses: on epsilon, or on a whole trade-off curve.

Nothing is assumed about the mechanism: its outputs for different coins may depend on each other in any way.

**Setting.** Each of m canaries is in if a fair coin says so. An attacker sees the release, guesses r of the coins,
those it is most confident of, and abstains from the others; v guesses are right.

**Assumptions of every bound.** The coins are independent and fair; the guesses depend on the release and on things
independent of these coins; r is fixed before the scores are seen. Several rounds or trials count as one run with all
their coins.

**Steinke, Nasr & Jagielski 2023.** Under (epsilon, delta)-DP the number of right guesses is stochastically dominated by
Bin(r, q) with q = e^epsilon / (1 + e^epsilon), up to a correction for delta. This treats every guess as if it were made
under the worst-case event. If the mechanism has a trade-off function f, a tighter bound holds (after Mahloujifar, Melis
& Chaudhuri 2024).

**Why that bound holds.** Let F(x) = 1 - f(x), increasing and concave, and P(event | one neighbour) <= F(P(event |
other)) in both directions. Of r guesses N are right, and p_i = P(N = i). Take coins S, a place j and a set T of
numbers. Consider the outcomes whose guess j is right and whose number of right guesses is in T. If coin j is flipped,
each of them has guess j wrong and one right guess less. So the probability of these outcomes under S is at most F of
their probability under the flipped coins. Average over fair coins and over the m places; F is concave, so Jensen's
inequality gives

    sum over i in T of (i / m) p_i <= F(sum over i in T of ((r - i + 1) / m) p_(i-1)).

Take T = {t, t + 1, ...} for t = 1, ..., r. Let A_t be the sum over i >= t of i p_i / m, and B_t the same sum of (r - i)
p_i / m. Then B_(t-1) >= F^-1(A_t). If the probability of N >= v is tau, then A_v + B_v = tau r / m, and in total A_0 +
B_0 = r / m. From p_(t-1) = m (B_(t-1) - B_t) / (r - t + 1) follows A_(t-1) = A_t + (B_(t-1) - B_t) (t - 1) / (r - t +
1). Suppose that all of tau lies at v and every B_(t-1) is as small as allowed, max(B_t, F^-1(A_t)). Then both sums stay
smallest at every step: any other choice whose B is larger by d at t has an A larger by d t / (r - t) or more, and t /
(r - t) shrinks as t does. So a tail probability tau is possible under these constraints exactly if the resulting total
is at most r / m; if the total is more, P(N >= v) < tau. The bound rejects every curve for which a tail probability
equal to the level is impossible. Curves of a family are nested, so the rejected ones are those below the bound.
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
from fl_audit.errors import require, require_number
from fl_audit.root_finding import last_true
from fl_audit.statistics.beta_mean import where_it_reaches


@dataclass(frozen=True)
class Guesses:
    """The numbers of coins, guesses and right guesses."""

    coins: int  # m, how many were tossed, at least 1
    guessed: int  # r, how many the attacker spoke about, from 0 to `coins`
    right: int  # v, how many of these it got right, from 0 to `guessed`
    # Number of the other coins that the same order of scores gets right, from 0 to `coins - guessed`. Only the
    # order-statistic bound uses it, to break ties; 0, where it is not known, is cautious.
    rest_right: int = 0

    def __post_init__(self) -> None:
        ordered = 0 <= self.right <= self.guessed <= self.coins and self.coins >= 1
        found = f"{self.right} right of {self.guessed} guesses about {self.coins} coins"
        require(ordered, f"{found}: accepted are 0 <= right <= guesses <= coins, 1 coin or more")
        rest = self.coins - self.guessed
        accepted = 0 <= self.rest_right <= rest
        require(accepted, f"{self.rest_right} right of the other {rest} coins: accepted are 0 to {rest}")


def guesses_of_scores(scores: ArrayLike, is_in: ArrayLike, positive: int, negative: int) -> Guesses:
    """Guess `in` for the highest scores and `out` for the lowest, abstain from the rest, and count right guesses.

    Ties are broken at random, so that the order of the canaries reveals nothing; the random seed depends on all scores
    and not on the coins. For `rest_right`, the higher half of the remaining coins is called `in`. If all scores are
    equal, half of the guesses, and half of the rest, count as right. Raises `InputError` if shapes do not match, a
    score is NaN, or the numbers are out of range.

    Parameters
    ----------
    scores
        Scores, no NaN, any shape; a higher score indicates that the canary was in. They are of one trial, or of several
        that are treated as one run.
    is_in
        Whether each canary was in, bool, of the shape of `scores`.
    positive
        Number of scores that are guessed `in`, at least 0. It must be chosen before the scores are seen, since the best
        of several choices gives no valid bound.
    negative
        Number of scores that are guessed `out`, at least 0, together with `positive` at most the number of scores. It
        must be chosen before the scores are seen.

    Examples
    --------
    >>> guesses_of_scores([3.0, 1.0, 2.0, 0.0], [True, False, False, True], positive=1, negative=1)
    Guesses(coins=4, guessed=2, right=1, rest_right=1)
    """
    values, coins = checked_scores(scores, is_in)
    guessed = positive + negative
    fits = positive >= 0 and negative >= 0 and guessed <= values.size
    asked = f"{positive} positive and {negative} negative guesses"
    require(fits, f"{asked} about {values.size} coins: accepted are numbers from 0, together at most the coins")
    if np.all(values == values[0]):
        return Guesses(values.size, guessed, guessed // 2, (values.size - guessed) // 2)
    # Drawn from the scores: lots by the number of coins alone would fall alike for all scores, and suit some files.
    digest = hashlib.blake2b(values.astype("<f8").tobytes(), digest_size=16).digest()
    lots = np.random.Philox(key=np.frombuffer(digest, "<u8")).random_raw(values.size)
    ordered = coins[np.lexsort((lots, -values))]
    rest = ordered[positive : values.size - negative]
    half = (rest.size + 1) // 2
    right = ordered[:positive].sum() + (~ordered[values.size - negative :]).sum()
    rest_right = rest[:half].sum() + (~rest[half:]).sum()
    return Guesses(values.size, guessed, int(right), int(rest_right))


def checked_scores(scores: ArrayLike, is_in: ArrayLike) -> tuple[Floats, Flags]:
    """Return scores and coins as one-dimensional arrays.

    Raises `InputError` if shapes do not match, coins are neither bool nor 0 and 1, there is no score, or one is NaN.

    Parameters
    ----------
    scores
        Scores, of any shape; a higher score indicates that the canary was in.
    is_in
        Whether each canary was in, bool or 0 and 1, of the shape of `scores`.
    """
    given, tossed = in_one_axis(scores), in_one_axis(is_in)
    values, coins = np.asarray(given, dtype=np.float64).ravel(), tossed.ravel()
    require(given.shape == tossed.shape, f"coins have shape {np.shape(is_in)}: accepted is {np.shape(scores)}")
    require(bool(np.isin(coins, (0, 1)).all()), "coins are not all 0 or 1: accepted are 0 (out) and 1 (in)")
    require(values.size > 0, "scores are empty: accepted is at least one")
    require(not bool(np.isnan(values).any()), "scores contain NaN: accepted are numbers")
    return values, coins.astype(np.bool_)


Inverse = Callable[[float], float]
"""The function F^-1: the smallest probability under a neighbour of an event with a given probability."""

LARGEST_MU = 30.0
_LARGEST_EPSILON = 36.0  # beyond it e^epsilon / (1 + e^epsilon) is 1 in floating point
_STEPS = 50


def one_run_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability of at least this many right guesses under (epsilon, delta)-DP.

    Source: Steinke, Nasr & Jagielski 2023, theorem 5.2. With q = e^epsilon / (1 + e^epsilon), beta = P(Bin(r, q) >= v)
    and alpha = max over i of P(v > Bin(r, q) >= v - i) / i, i from 1 to m, the value is min(1, beta + 2 m delta alpha).
    Beyond i = v the probability does not increase, so i ends there. Raises `InputError` if epsilon or delta is out of
    its range.

    Parameters
    ----------
    guesses
        Counts of guesses.
    epsilon
        Epsilon of the tested guarantee, at least 0.
    delta
        Delta of the tested guarantee, at least 0 and below 1.
    """
    require_number("epsilon is", epsilon, "numbers from 0")
    require_number("delta is", delta, "numbers from 0 to below 1")
    v, r, q = guesses.right, guesses.guessed, float(expit(epsilon))
    if v == 0:
        return 1.0
    below: Floats = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, q))
    alpha = float((below / np.arange(1, v + 1)).max())
    return min(1.0, float(binom.sf(v - 1, r, q)) + 2 * guesses.coins * delta * alpha)


def steinke_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """Return the lower bound on epsilon by Steinke et al., the smallest one whose p-value reaches the level.

    It is at most 36. Raises `InputError` if delta is out of its range.

    Parameters
    ----------
    guesses
        Counts of guesses.
    delta
        Delta of the bound, at least 0 and below 1.
    level
        One minus the confidence, above 0 and below 0.5.
    """
    require_number("delta is", delta, "numbers from 0 to below 1")
    if guesses.right == 0:
        return 0.0
    reached = where_it_reaches(lambda epsilon: one_run_p_value(guesses, epsilon, delta), level, _LARGEST_EPSILON)
    return min(reached, _LARGEST_EPSILON)


def gaussian_inverse(mu: float) -> Inverse:
    """Return F^-1 of mu-Gaussian DP, mu at least 0: Phi(Phi^-1(y) - mu) (Dong, Roth & Su 2022, definition 2.6)."""
    return lambda y: float(ndtr(ndtri(y) - mu))


def approximate_inverse(epsilon: float, delta: float) -> Inverse:
    """Return F^-1 of (epsilon, delta)-DP: max(0, (y - delta) e^-epsilon, 1 - delta - e^epsilon (1 - y)).

    Parameters
    ----------
    epsilon
        Epsilon of the guarantee, at least 0.
    delta
        Delta of the guarantee, at least 0 and below 1.
    """
    up, down = math.exp(epsilon), math.exp(-epsilon)
    return lambda y: max(0.0, (y - delta) * down, 1 - delta - up * (1 - y))


def is_possible(guesses: Guesses, tail: float, inverse: Inverse) -> bool:
    """Return whether P(N >= v) can be as large as `tail` under a trade-off curve; see the module's docstring.

    Parameters
    ----------
    guesses
        The counts m, r and v of the module's docstring.
    tail
        Tail probability, from 0 to 1.
    inverse
        Inverse F^-1 of a symmetric trade-off function: convex, increasing, at most its argument.
    """
    m, r, v = guesses.coins, guesses.guessed, guesses.right
    a, b = tail * v / m, tail * (r - v) / m
    for t in range(v, 0, -1):
        lower = max(b, inverse(a))
        gained, b = lower - b, lower
        a += gained * (t - 1) / (r - t + 1)
        if a + b > r / m:
            return False
        if gained == 0:
            return True  # from here on no step changes anything: a million coins take no longer than a thousand
    return True


def tradeoff_mu(guesses: Guesses, level: float) -> float:
    """Return the lower bound on mu of Gaussian DP from one run, at most 30.

    It gives a bound on epsilon at a delta through `gdp_epsilon` only if the mechanism's trade-off function **equals**
    that of a Gaussian, and is not merely bounded by it: randomised response at epsilon 1 is mu-GDP with mu = 1.23,
    whose epsilon at 1e-5 is 5.58.

    Parameters
    ----------
    guesses
        Counts, as returned by `guesses_of_scores`.
    level
        One minus the confidence, above 0 and below 0.5.

    Examples
    --------
    >>> round(tradeoff_mu(Guesses(coins=1000, guessed=1000, right=700), 0.05), 2)
    0.36
    """
    return _largest_rejected(guesses, gaussian_inverse, LARGEST_MU, level)


def tradeoff_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """Return the lower bound on epsilon at delta from one run for any mechanism, at most 36.

    Raises `InputError` if delta is out of its range.

    Parameters
    ----------
    guesses
        Counts, as returned by `guesses_of_scores`.
    delta
        Delta of the bound, at least 0 and below 1.
    level
        One minus the confidence, above 0 and below 0.5.
    """
    require_number("delta is", delta, "numbers from 0 to below 1")
    return _largest_rejected(guesses, lambda epsilon: approximate_inverse(epsilon, delta), _LARGEST_EPSILON, level)


def _largest_rejected(guesses: Guesses, family: Callable[[float], Inverse], largest: float, level: float) -> float:
    """Return the largest parameter whose curve is rejected at the level, to a precision of 2^-50 of the range.

    0 if none.
    """
    return last_true(lambda parameter: not is_possible(guesses, level, family(parameter)), 0.0, largest, _STEPS)
