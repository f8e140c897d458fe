"""Advantages over worlds with confidence intervals: from won and lost games, and as a mean of rates."""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom

from fl_audit.arrays import Flags, Floats
from fl_audit.errors import require
from fl_audit.evidence.belief.bounded_mean import mean_interval


@dataclass(frozen=True)
class AdvantageEstimate:
    """The insider's advantage over a number of games."""

    # `worlds`, `wins`: games played and games won.
    worlds: int
    wins: int
    advantage: float  # 2 wins/worlds - 1, from -1 to 1
    # `low`, `high`: two-sided Clopper-Pearson interval of the advantage.
    low: float
    high: float
    confidence: float  # least probability with which the interval covers


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided confidence interval of a success probability (Clopper & Pearson 1934).

    Parameters
    ----------
    successes
        How many trials succeeded, from 0 to `trials`.
    trials
        Number of trials, at least 1.
    confidence
        Least probability with which the interval covers, above 0 and below 1; each side has half of the rest.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 100, 0.95)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    require(trials >= 1, f"number of trials is {trials}: accepted are whole numbers from 1")
    require(0 <= successes <= trials, f"number of successes is {successes}: accepted are 0 to {trials}, the trials")
    require(0 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0 and below 1")
    side = (1 - confidence) / 2
    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, side)) if successes else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - side)) if failures else 1.0
    return low, high


def empirical_advantage(won: Flags, confidence: float) -> AdvantageEstimate:
    """Return the advantage 2p - 1 of an insider who won a share p of its games (Bernau et al. 2021, definition 5).

    Parameters
    ----------
    won
        Whether the insider guessed right, shape (worlds,), at least one world.
    confidence
        Least probability with which the interval covers, above 0 and below 1.

    Raises
    ------
    InputError
        If there is no world or a number is out of its range.
    """
    worlds, wins = int(won.size), int(np.count_nonzero(won))
    require(worlds >= 1, "number of worlds is 0: accepted are whole numbers from 1")
    low, high = clopper_pearson(wins, worlds, confidence)
    return AdvantageEstimate(worlds, wins, 2 * wins / worlds - 1, 2 * low - 1, 2 * high - 1, confidence)


@dataclass(frozen=True)
class MeanAdvantage:
    """The mean of an advantage that each world has for itself."""

    worlds: int  # worlds averaged over
    advantage: float  # their mean, from -1 to 1
    # `low`, `high`: two-sided interval of the mean, within -1 to 1.
    low: float
    high: float
    confidence: float  # least probability with which the interval covers


def mean_advantage(advantages: Floats, confidence: float) -> MeanAdvantage:
    """Return the mean advantage over worlds with an interval that holds for every law and number of worlds.

    Worlds are independent given D, D' and the population sample, and the interval is about these: it covers the mean
    over bits, initial weights and noise. How much another D or another sample would change lies outside it.

    Parameters
    ----------
    advantages
        TPR - FPR per world, from -1 to 1, shape (worlds,), at least one world.
    confidence
        Above 0 and below 1.

    Raises
    ------
    InputError
        If there is no world or a number is out of its range.

    Notes
    -----
    By betting (`bounded_mean`). Student's interval is narrower, by a third to a half with 300 worlds of 10 to 100
    records, and untrue where advantages are rare: of 5 worlds of 2 records each it covered 8 %.

    Examples
    --------
    >>> found = mean_advantage(np.tile([0.1, 0.2, 0.3], 100), 0.95)
    >>> round(found.advantage, 4), round(found.low, 2), round(found.high, 2)
    (0.2, 0.18, 0.22)
    """
    require(advantages.size >= 1, "number of worlds is 0: accepted are whole numbers from 1")
    found = mean_interval(advantages, confidence, -1.0, 1.0)
    return MeanAdvantage(found.count, float(advantages.mean()), found.low, found.high, confidence)


def most_wins(worlds: int, largest_advantage: float, level: float) -> int:
    """Return how many games are won at most, but for a chance of `level`, by an insider whose advantage is bounded.

    Parameters
    ----------
    worlds
        Games played, at least 1; a fair coin decides each.
    largest_advantage
        The largest advantage that the promise allows, 0 to 1.
    level
        Largest probability with which more games may be won, above 0 and below 1.

    Raises
    ------
    InputError
        If there is no game.

    Examples
    --------
    >>> most_wins(800, 0.286, 0.001)
    556
    """
    require(worlds >= 1, f"number of games is {worlds}: accepted are whole numbers from 1")
    require(0 <= largest_advantage <= 1, f"advantage is {largest_advantage}: accepted are numbers from 0 to 1")
    require(0 < level < 1, f"level is {level}: accepted are numbers above 0 and below 1")
    return int(binom.isf(level, worlds, (1 + largest_advantage) / 2))
