"""Guesses about the secret coins of one run: what every one-run bound but one counts.

Each of m canaries was in by the toss of a fair coin. Somebody who sees what was released guesses r of the coins, those
it is surest of, and abstains from the others; v guesses are right.

**What every bound asks for.** The coins are independent and fair; the guesses follow from the release and from whatever
else is independent of these coins; r is fixed before the scores are seen. Several rounds, or several worlds, count as
one run of all their coins.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Flags, Floats
from fl_audit.errors import require


@dataclass(frozen=True)
class Guesses:
    """How well a number of coins was guessed."""

    coins: int  # m, how many were tossed, at least 1
    guessed: int  # r, how many the attacker spoke about, from 0 to `coins`
    right: int  # v, how many of these it got right, from 0 to `guessed`
    # How many of the other coins the same order of scores gets right, from 0 to `coins - guessed`. Only the
    # order-statistic bound reads it, to break ties; 0, where it is not known, is cautious.
    rest_right: int = 0

    def __post_init__(self) -> None:
        ordered = 0 <= self.right <= self.guessed <= self.coins and self.coins >= 1
        found = f"{self.right} right of {self.guessed} guesses about {self.coins} coins"
        require(ordered, f"{found}: accepted are 0 <= right <= guesses <= coins, 1 coin or more")
        rest = self.coins - self.guessed
        accepted = 0 <= self.rest_right <= rest
        require(accepted, f"{self.rest_right} right of the other {rest} coins: accepted are 0 to {rest}")


def guesses_of_scores(scores: ArrayLike, is_in: ArrayLike, positive: int, negative: int) -> Guesses:
    """Guess `in` of the highest scores and `out` of the lowest, abstain from those between, and count.

    Of equal scores a lot takes one for the higher, so that nothing is told by the order in which canaries are listed;
    it follows from all scores, and the coins do not touch it. Of the coins between, the higher half is called `in`.
    Where all scores are equal, half of the guesses, and of the others, count as right.

    Parameters
    ----------
    scores
        Higher for a likelier member, no NaN, any shape; of one world, or of several that are counted as one run.
    is_in
        The coins, bool, same shape.
    positive, negative
        How many scores to call members, and not members, at least 0 and together at most the number of scores. They
        must be chosen before the scores are seen: a choice of the best of several is no bound.

    Raises
    ------
    InputError
        If shapes do not fit, a score is NaN, or the numbers are out of range.

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
    """Return scores and coins along one axis, or refuse them.

    Parameters
    ----------
    scores, is_in
        Numbers of one shape: scores, larger where "in" is likelier, and the coins, bool or 0 and 1.

    Raises
    ------
    InputError
        If shapes do not fit, coins are neither bool nor 0 and 1, there is no score, or one is NaN.
    """
    values, coins = np.asarray(scores, dtype=np.float64).ravel(), np.asarray(is_in).ravel()
    require(np.shape(scores) == np.shape(is_in), f"coins have shape {np.shape(is_in)}: accepted is {np.shape(scores)}")
    require(bool(np.isin(coins, (0, 1)).all()), "coins are not all 0 or 1: accepted are 0 (out) and 1 (in)")
    require(values.size > 0, "scores are empty: accepted is at least one")
    require(not bool(np.isnan(values).any()), "scores contain NaN: accepted are numbers")
    return values, coins.astype(np.bool_)
