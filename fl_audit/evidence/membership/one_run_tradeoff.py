"""One-run auditing of a whole trade-off curve (after Mahloujifar, Melis & Chaudhuri 2024).

`one_run` treats every right guess as if it were as hard as the hardest event allows. If the mechanism keeps a trade-off
function f, more can be ruled out. Coins, guesses and what they ask for are those of `one_run`.

**Why it holds.** Let F(x) = 1 - f(x), increasing and concave, with P(event | one neighbour) <= F(P(event | other)) both
ways. There are m fair coins and r guesses, N of them right, p_i = P(N = i). Take coins S, a place j and a set T of
numbers. Of the outcomes whose guess j is right and whose number of right guesses is in T, all have guess j wrong and
one right guess less if coin j is flipped. So the probability of these outcomes under S is at most F of that under the
flipped coins. Average over fair coins and over the m places; F is concave, so with Jensen's inequality

    sum over i in T of (i / m) p_i <= F(sum over i in T of ((r - i + 1) / m) p_(i-1)).

Take T = {t, t + 1, ...} for t = 1, ..., r. With A_t = sum over i >= t of i p_i / m and B_t the same sum of
(r - i) p_i / m, this says B_(t-1) >= F^-1(A_t). A mass tau at or above v means A_v + B_v = tau r / m, and all mass
together A_0 + B_0 = r / m. From p_(t-1) = m (B_(t-1) - B_t) / (r - t + 1) follows
A_(t-1) = A_t + (B_(t-1) - B_t) (t - 1) / (r - t + 1). If all of tau lies at v and every B_(t-1) is as small as allowed,
max(B_t, F^-1(A_t)), then both sums stay smallest at every step: another choice that has B larger by d at t has A larger
by d t / (r - t) or more, and t / (r - t) shrinks as t does. So a tail tau is possible under these constraints exactly
if the total so found is at most r / m, and if it is more, P(N >= v) < tau. The bound rejects every curve for which the
level itself is impossible. Curves of a family are nested, so the rejected ones are those below the bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtr, ndtri

from fl_audit.errors import require
from fl_audit.evidence.membership.one_run import LARGEST_EPSILON, Guesses
from fl_audit.privacy.gaussian import gdp_epsilon

Inverse = Callable[[float], float]
"""F^-1: the least probability that an event of this probability may have under a neighbour; both from 0 to 1."""

LARGEST_MU = 30.0
_STEPS = 50


@dataclass(frozen=True)
class TradeoffBound:
    """A lower bound on the parameter of a family of trade-off curves.

    Parameters
    ----------
    parameter
        The bound: mu of Gaussian DP, or epsilon at a delta. At least 0; 0 certifies nothing.
    confidence
        Least probability with which a mechanism that keeps the curve of a parameter has this at or above the bound.
    ceiling
        The bound if every guess had been right.
    guesses
        What it rests on.
    """

    parameter: float
    confidence: float
    ceiling: float
    guesses: Guesses

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at delta of a Gaussian mechanism with this mu.

        It bounds the mechanism's own epsilon only where its trade-off function **is** a Gaussian's, and not merely
        bounded by one: randomised response at epsilon 1 is mu-GDP with mu = 1.23, whose epsilon at 1e-5 is 5.58.

        Parameters
        ----------
        delta
            Above 0, below 1.
        """
        return gdp_epsilon(delta, self.parameter)


def gaussian_inverse(mu: float) -> Inverse:
    """Return F^-1 of mu-Gaussian DP: Phi(Phi^-1(y) - mu) (Dong, Roth & Su 2022, definition 2.6).

    Parameters
    ----------
    mu
        At least 0.
    """
    return lambda y: float(ndtr(ndtri(y) - mu))


def approximate_inverse(epsilon: float, delta: float) -> Inverse:
    """Return F^-1 of (epsilon, delta)-DP: max(0, (y - delta) e^-epsilon, 1 - delta - e^epsilon (1 - y)).

    Parameters
    ----------
    epsilon, delta
        At least 0; delta below 1.
    """
    up, down = math.exp(epsilon), math.exp(-epsilon)
    return lambda y: max(0.0, (y - delta) * down, 1 - delta - up * (1 - y))


def is_possible(guesses: Guesses, tail: float, inverse: Inverse) -> bool:
    """Return whether P(N >= right) may be as large as `tail` under a trade-off curve, see the module's text.

    Parameters
    ----------
    guesses
        With m, r and v.
    tail
        From 0 to 1.
    inverse
        F^-1 of a symmetric trade-off function: convex, increasing, at most its argument.
    """
    m, r, v = guesses.coins, guesses.guessed, guesses.right
    a, b = tail * v / m, tail * (r - v) / m
    for t in range(v, 0, -1):
        lower = max(b, inverse(a))
        a += (lower - b) * (t - 1) / (r - t + 1)
        b = lower
        if a + b > r / m:
            return False
    return True


def one_run_mu(guesses: Guesses, confidence: float = 0.95) -> TradeoffBound:
    """Return the lower bound on mu of Gaussian DP from one run, at most 30.

    Parameters
    ----------
    guesses
        What was counted, see `one_run.guesses_of_scores`.
    confidence
        Above 0.5, below 1.

    Raises
    ------
    InputError
        If the confidence is out of its range.

    Examples
    --------
    >>> round(one_run_mu(Guesses(coins=1000, guessed=1000, right=700)).parameter, 2)
    0.36
    """
    return _searched(guesses, gaussian_inverse, LARGEST_MU, confidence)


def one_run_epsilon_by_tradeoff(guesses: Guesses, delta: float, confidence: float = 0.95) -> TradeoffBound:
    """Return the lower bound on epsilon at delta from one run, whatever the mechanism, at most 36.

    Parameters
    ----------
    guesses, confidence
        As for `one_run_mu`.
    delta
        At least 0, below 1.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
    return _searched(guesses, lambda epsilon: approximate_inverse(epsilon, delta), LARGEST_EPSILON, confidence)


def _searched(guesses: Guesses, family: Callable[[float], Inverse], largest: float, confidence: float) -> TradeoffBound:
    """Return the bound in a nested family of curves, by bisection from below."""
    require(0.5 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0.5 and below 1")
    perfect = Guesses(guesses.coins, guesses.guessed, guesses.guessed)
    found, ceiling = (_largest_rejected(one, family, largest, 1 - confidence) for one in (guesses, perfect))
    return TradeoffBound(found, confidence, ceiling, guesses)


def _largest_rejected(guesses: Guesses, family: Callable[[float], Inverse], largest: float, level: float) -> float:
    """Return a parameter at which the level is impossible, 2^-50 of the range from where it is possible; or 0."""
    if is_possible(guesses, level, family(0.0)):
        return 0.0
    low, high = 0.0, largest
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_possible(guesses, level, family(middle)) else (middle, high)
    return low
