"""One-run auditing of any mechanism: lower bounds from right guesses, of epsilon alone and of a whole trade-off curve.

What is asked of coins and guesses stands in `guesses`; nothing is asked of the mechanism besides: what it says of
different coins may depend on each other in any way.

**Steinke, Nasr & Jagielski 2023.** Under (epsilon, delta)-DP no more of r guesses can be right, in law, than if each
was right with probability q = e^epsilon / (1 + e^epsilon), up to the mistakes that delta allows. That treats every
right guess as if it were as hard as the hardest event allows. If the mechanism keeps a trade-off function f, more can
be ruled out (after Mahloujifar, Melis & Chaudhuri 2024).

**Why that holds.** Let F(x) = 1 - f(x), increasing and concave, and P(event | one neighbour) <= F(P(event | other))
both ways. There are m fair coins and r guesses, N of them right, p_i = P(N = i). Take coins S, a place j and a set T of
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

import numpy as np
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from fl_audit.arrays import Floats
from fl_audit.canaries.guesses import Guesses
from fl_audit.confidence.beta_mean import where_it_reaches
from fl_audit.errors import require

Inverse = Callable[[float], float]
"""F^-1: the least probability that an event of this probability may have under a neighbour; both from 0 to 1."""

LARGEST_MU = 30.0
_LARGEST_EPSILON = 36.0  # beyond it e^epsilon / (1 + e^epsilon) is 1 in floating point
_STEPS = 50


def one_run_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of so many right guesses under (epsilon, delta)-DP, from 0 to 1.

    Source: Steinke, Nasr & Jagielski 2023, theorem 5.2. With q = e^epsilon / (1 + e^epsilon), beta = P(Bin(r, q) >= v)
    and alpha = max over i of P(v > Bin(r, q) >= v - i) / i, i from 1 to m, the value is
    min(1, beta + 2 m delta alpha). Beyond i = v the probability grows no more, so i stops there.

    Parameters
    ----------
    guesses, epsilon, delta
        What was counted; at least 0; at least 0, below 1.

    Raises
    ------
    InputError
        If epsilon is below 0.
    """
    require(epsilon >= 0, f"epsilon is {epsilon}: accepted are numbers from 0")
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
    v, r, q = guesses.right, guesses.guessed, float(expit(epsilon))
    if v == 0:
        return 1.0
    below: Floats = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, q))
    alpha = float((below / np.arange(1, v + 1)).max())
    return min(1.0, float(binom.sf(v - 1, r, q)) + 2 * guesses.coins * delta * alpha)


def steinke_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """Return the smallest epsilon at which the p-value reaches the level, at most 36.

    Parameters
    ----------
    guesses, delta, level
        What was counted; as for `tradeoff_epsilon`.

    Raises
    ------
    InputError
        If delta is out of its range.
    """
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
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
    epsilon, delta
        At least 0, and delta below 1.
    """
    up, down = math.exp(epsilon), math.exp(-epsilon)
    return lambda y: max(0.0, (y - delta) * down, 1 - delta - up * (1 - y))


def is_possible(guesses: Guesses, tail: float, inverse: Inverse) -> bool:
    """Return whether P(N >= right) may be as large as `tail` under a trade-off curve, see the module's text.

    Parameters
    ----------
    guesses, tail, inverse
        With m, r and v; from 0 to 1; F^-1 of a symmetric trade-off function: convex, increasing, at most its argument.
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


def tradeoff_mu(guesses: Guesses, level: float) -> float:
    """Return the lower bound on mu of Gaussian DP from one run, at most 30.

    It bounds the mechanism's epsilon at a delta, through `gdp_epsilon`, only where its trade-off function **is** a
    Gaussian's, and not merely bounded by one: randomised response at epsilon 1 is mu-GDP with mu = 1.23, whose epsilon
    at 1e-5 is 5.58.

    Parameters
    ----------
    guesses, level
        What was counted, see `guesses.guesses_of_scores`; 1 - confidence, above 0 and below 0.5.

    Examples
    --------
    >>> round(tradeoff_mu(Guesses(coins=1000, guessed=1000, right=700), 0.05), 2)
    0.36
    """
    return _largest_rejected(guesses, gaussian_inverse, LARGEST_MU, level)


def tradeoff_epsilon(guesses: Guesses, delta: float, level: float) -> float:
    """Return the lower bound on epsilon at delta from one run, whatever the mechanism, at most 36.

    Parameters
    ----------
    guesses, delta, level
        As for `tradeoff_mu`; delta is at least 0 and below 1.

    Raises
    ------
    InputError
        If delta is out of its range.
    """
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
    return _largest_rejected(guesses, lambda epsilon: approximate_inverse(epsilon, delta), _LARGEST_EPSILON, level)


def _largest_rejected(guesses: Guesses, family: Callable[[float], Inverse], largest: float, level: float) -> float:
    """Return a parameter at which the level is impossible, 2^-50 of the range from where it is possible; or 0."""
    if is_possible(guesses, level, family(0.0)):
        return 0.0
    low, high = 0.0, largest
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_possible(guesses, level, family(middle)) else (middle, high)
    return low
