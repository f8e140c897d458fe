"""One-run auditing (Steinke, Nasr & Jagielski 2023): a lower bound on epsilon from a single trained model.

Each of m targets was in by the toss of a fair coin. Somebody who sees what was released guesses r of the coins and
abstains from the others; v guesses are right. Under (epsilon, delta)-DP no more can be right, in law, than if each was
right with probability q = e^epsilon / (1 + e^epsilon), up to the mistakes that delta allows.

**What it asks for.** The coins are independent and fair; the guesses follow from the release and from whatever else is
independent of the coins (other worlds, but not these worlds' own coins); the number of guesses is fixed beforehand.
Records need not be independent, nor need their scores be. Several worlds count as one run of all their coins: what
flips one coin changes one world's release.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.stats import binom

from fl_audit.errors import require
from fl_audit.evidence.bounds.beta_mean import where_it_reaches

LARGEST_EPSILON = 36.0
"""Beyond it e^epsilon / (1 + e^epsilon) is 1 in floating point."""


@dataclass(frozen=True)
class Guesses:
    """How well a number of coins was guessed.

    Parameters
    ----------
    coins
        m, how many were tossed, at least 1.
    guessed
        r, how many the attacker spoke about, from 0 to `coins`.
    right
        v, how many of these it got right, from 0 to `guessed`.
    """

    coins: int
    guessed: int
    right: int

    def __post_init__(self) -> None:
        ordered = 0 <= self.right <= self.guessed <= self.coins and self.coins >= 1
        found = f"{self.right} right of {self.guessed} guesses about {self.coins} coins"
        require(ordered, f"{found}: accepted are 0 <= right <= guesses <= coins, 1 coin or more")


@dataclass(frozen=True)
class OneRunBound:
    """A lower bound from one run and the most that it could have been.

    Parameters
    ----------
    epsilon
        The bound on epsilon at `delta`, at least 0; 0 certifies nothing.
    delta, confidence
        Whatever the mechanism, its epsilon at delta is at least the bound with this probability or more.
    ceiling
        The bound if every guess had been right.
    guesses
        What it rests on.
    """

    epsilon: float
    delta: float
    confidence: float
    ceiling: float
    guesses: Guesses


def guesses_of_scores(scores: ArrayLike, is_in: ArrayLike, positive: int, negative: int) -> Guesses:
    """Guess `in` of the highest scores and `out` of the lowest, abstain from those between, and count.

    Parameters
    ----------
    scores
        Higher for a likelier member, no NaN, any shape; of one world, or of several that are counted as one run.
    is_in
        The coins, bool, same shape.
    positive, negative
        How many to call members and how many not, each at least 0, together at most the number of scores. They must be
        chosen before the scores are seen: a choice of the best of several is no bound.

    Returns
    -------
    Guesses
        Of equal scores the first in order is taken for the higher, which coins do not touch.

    Raises
    ------
    InputError
        If shapes do not fit, a score is NaN, or the numbers are out of range.

    Examples
    --------
    >>> guesses_of_scores([3.0, 1.0, 2.0, 0.0], [True, False, False, True], positive=1, negative=1)
    Guesses(coins=4, guessed=2, right=1)
    """
    values, coins = np.asarray(scores, dtype=np.float64).ravel(), np.asarray(is_in).ravel()
    require(np.shape(scores) == np.shape(is_in), f"coins have shape {np.shape(is_in)}: accepted is {np.shape(scores)}")
    require(coins.dtype == np.bool_, f"coins are {coins.dtype}: accepted is bool")
    require(not bool(np.isnan(values).any()), "scores contain NaN: accepted are numbers")
    fits = positive >= 0 and negative >= 0 and positive + negative <= values.size
    asked = f"{positive} positive and {negative} negative guesses"
    require(fits, f"{asked} about {values.size} coins: accepted are numbers from 0, together at most the coins")
    order = np.argsort(-values, kind="stable")
    right = coins[order[:positive]].sum() + (~coins[order[values.size - negative :]]).sum()
    return Guesses(values.size, positive + negative, int(right))


def one_run_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of so many right guesses under (epsilon, delta)-DP, from 0 to 1.

    Parameters
    ----------
    guesses
        What was counted.
    epsilon
        At least 0.
    delta
        At least 0, below 1.

    Notes
    -----
    Source: Steinke, Nasr & Jagielski 2023, theorem 5.2. With q = e^epsilon / (1 + e^epsilon), beta = P(Bin(r, q) >= v)
    and alpha = max over i of P(v > Bin(r, q) >= v - i) / i, i from 1 to m, the value is
    min(1, beta + 2 m delta alpha). Beyond i = v the probability grows no more, so i stops there.
    """
    require(epsilon >= 0, f"epsilon is {epsilon}: accepted are numbers from 0")
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
    tail, alpha = _tail_and_slope(guesses, float(expit(epsilon)))
    return min(1.0, tail + 2 * guesses.coins * delta * alpha)


def one_run_epsilon(guesses: Guesses, delta: float, confidence: float = 0.95) -> OneRunBound:
    """Return the lower bound on epsilon at delta from one run.

    Parameters
    ----------
    guesses
        What was counted.
    delta
        At least 0, below 1.
    confidence
        Above 0.5, below 1.

    Returns
    -------
    OneRunBound
        With the smallest epsilon at which the p-value reaches 1 - confidence, at most 36.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> round(one_run_epsilon(Guesses(coins=1000, guessed=100, right=100), 1e-5).epsilon, 3)
    3.465
    """
    require(0 <= delta < 1, f"delta is {delta}: accepted are numbers from 0 to below 1")
    require(0.5 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0.5 and below 1")
    perfect = Guesses(guesses.coins, guesses.guessed, guesses.guessed)
    found = _bound(guesses, delta, 1 - confidence)
    return OneRunBound(found, delta, confidence, _bound(perfect, delta, 1 - confidence), guesses)


def _bound(guesses: Guesses, delta: float, level: float) -> float:
    """Return the smallest epsilon at which the p-value reaches the level."""
    if guesses.right == 0:
        return 0.0
    return min(where_it_reaches(lambda e: one_run_p_value(guesses, e, delta), level, LARGEST_EPSILON), LARGEST_EPSILON)


def _tail_and_slope(guesses: Guesses, q: float) -> tuple[float, float]:
    """Return beta and alpha of the theorem."""
    v, r = guesses.right, guesses.guessed
    if v == 0:
        return 1.0, 0.0
    below: NDArray[np.float64] = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, q))
    return float(binom.sf(v - 1, r, q)), float((below / np.arange(1, v + 1)).max())
