"""Compute confidence intervals of advantages: Clopper-Pearson for won trials, betting intervals for mean rates.

The betting interval of the mean of bounded numbers holds for every distribution and every sample size. Suppose that
somebody bets against a candidate mean m, with stakes that depend only on earlier numbers. If m is the true mean, the
capital is a nonnegative martingale, which exceeds 2/alpha with a probability of at most alpha/2 (Ville). A candidate is
in the interval unless the capital of bets on a larger mean, or that of bets on a smaller mean, exceeded 2/alpha. The
width of the interval adapts to the variance.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.root_finding import last_true
from fl_audit.statistics.interval_estimates import EstimateWithConfidence
from fl_audit.value_checks import require_number

_LARGEST_STAKE = 0.75  # largest share of the capital that a single number may cost

_STEPS = 50


def mean_interval(
    values: Floats, confidence: float, smallest: float = 0.0, largest: float = 1.0
) -> EstimateWithConfidence:
    """Return the mean of independent bounded numbers and a confidence interval of its expectation, by betting.

    Shapes: `values` (n,).

    `values`: Their order affects the interval a little, but never its coverage.

    Notes
    -----
    Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", theorem 3 (hedged capital)
    with the stakes of their section 4.2 for a fixed sample size.

    Examples
    --------
    >>> mean = mean_interval(np.tile([0.4, 0.6], 500), 0.95)
    >>> mean.value, round(mean.low, 2), round(mean.high, 2)
    (0.5, 0.49, 0.51)
    """
    bets = MeanBettingTest.of(values, confidence, smallest, largest)
    scaled = bets.values
    width = largest - smallest
    mean = float(scaled.mean())
    low = last_true(bets.refutes_too_small, 0.0, mean, _STEPS) if mean > 0 else 0.0
    high = last_true(bets.refutes_too_large, 1.0, mean, _STEPS) if mean < 1 else 1.0
    value, lowest, highest = (smallest + width * share for share in (mean, low, high))
    return EstimateWithConfidence(value, lowest, highest, confidence)


@dataclass(frozen=True, eq=False)
class MeanBettingTest:
    """Bets that test candidates for the mean of some numbers: a candidate is refuted if bets against it win enough.

    `values` are the numbers scaled to [0, 1]. `stakes`, one for each number, depend only on earlier numbers. The
    capital starts at 1. A bet on a larger mean multiplies it by 1 + stake (value - candidate) for each number, and a
    bet on a smaller mean by 1 - stake (value - candidate). `log_threshold` is the log of the capital that refutes a
    candidate.
    """

    values: Floats
    stakes: Floats
    log_threshold: float

    @classmethod
    def of(cls, values: Floats, confidence: float, smallest: float = 0.0, largest: float = 1.0) -> "MeanBettingTest":
        """Return a betting test for the expectation of some numbers.

        The test refutes or keeps candidate values of the expectation. The values that it keeps form a confidence
        interval. Raises `InputError` as `mean_interval` does.

        Shapes: `values` (n,).
        """
        require(values.ndim == 1 and values.size > 0, f"values have shape {values.shape}: accepted is (n,), n from 1")
        require_number("confidence is", confidence, "numbers above 0 and below 1")
        within = bool(np.all((values >= smallest) & (values <= largest)))
        require(within, f"a value lies outside {smallest:g} to {largest:g}: accepted are numbers within")
        scaled = (np.asarray(values, dtype=np.float64) - smallest) / (largest - smallest)
        log_threshold = math.log(2 / (1 - confidence))
        count = np.arange(1, scaled.size + 1)
        means = (0.5 + np.cumsum(scaled)) / (count + 1)
        variances = (0.25 + np.cumsum(np.square(scaled - means))) / (count + 1)
        # Each stake follows from the numbers before its own: sqrt(2 log(2/alpha) / (n variance so far)).
        before = np.concatenate([[0.25], variances[:-1]])
        return cls(scaled, np.sqrt(2 * log_threshold / (scaled.size * before)), log_threshold)

    def refutes_too_small(self, mean: float) -> bool:
        """Return True if the observed numbers show that their expectation is larger than `mean`.

        They show it if bets on numbers above `mean` have won enough.
        """
        stakes = np.minimum(self.stakes, _LARGEST_STAKE / mean) if mean > 0 else self.stakes
        return self._wins(stakes * (self.values - mean))

    def refutes_too_large(self, mean: float) -> bool:
        """Return True if the betting test refutes that the expected value is `mean` or more."""
        stakes = np.minimum(self.stakes, _LARGEST_STAKE / (1 - mean)) if mean < 1 else self.stakes
        return self._wins(-stakes * (self.values - mean))

    def _wins(self, gains: Floats) -> bool:
        return bool(np.log1p(gains).cumsum().max() >= self.log_threshold)


@dataclass(frozen=True)
class AdvantageInterval:
    """An advantage over trials, with its two-sided confidence interval."""

    trials: int  # number of trials
    advantage: float  # the advantage, from -1 to 1
    low: float  # lower end of the interval, at least -1
    high: float  # upper end of the interval, at most 1
    confidence: float  # smallest probability with which the interval covers the true advantage


@dataclass(frozen=True)
class AdvantageFromWins(AdvantageInterval):
    """The insider's advantage 2 wins/trials - 1, with its Clopper-Pearson interval."""

    wins: int  # number of trials that were won


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided confidence interval (low, high) of a success probability (Clopper & Pearson 1934).

    `confidence`: The true value lies below the interval with probability at most (1 - confidence) / 2. The same holds
    for values above the interval.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 100, 0.95)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    require_number("number of trials is", trials, "whole numbers from 1")
    require(0 <= successes <= trials, f"number of successes is {successes}: accepted are 0 to {trials}, the trials")
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    side = (1 - confidence) / 2
    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, side)) if successes else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - side)) if failures else 1.0
    return low, high


def empirical_advantage(won: Flags, confidence: float) -> AdvantageFromWins:
    """Return the advantage 2p - 1 of an insider who won a share p of its trials, with its confidence interval.

    Source: Bernau et al. 2021, definition 5.

    Shapes: `won` (trials,).
    """
    trials = int(won.size)
    wins = int(np.count_nonzero(won))
    require(trials >= 1, "number of trials is 0: accepted are whole numbers from 1")
    return AdvantageFromWins(trials, 2 * wins / trials - 1, *advantage_ends(wins, trials, confidence), confidence, wins)


def advantage_ends(wins: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided confidence interval (low, high) of an advantage 2p - 1.

    p is the probability of a win. Raises `InputError` if a number is out of its range.
    """
    low, high = clopper_pearson(wins, trials, confidence)
    return 2 * low - 1, 2 * high - 1


def mean_advantage(advantages: Floats, confidence: float) -> AdvantageInterval:
    """Return the mean advantage over trials, with an interval that holds for every distribution and number of trials.

    Trials are independent given D, D' and the population sample. The interval covers the mean over secret bits, initial
    weights and noise. It does not account for the variation between data sets or samples. `mean_interval` computes it.
    Student's interval is narrower, by a third to a half with 300 trials of 10 to 100 records. But with 5 trials of 2
    records, it contained the mean in only 8 % of cases.

    Shapes: `advantages` (trials,).

    Examples
    --------
    >>> found = mean_advantage(np.tile([0.1, 0.2, 0.3], 100), 0.95)
    >>> round(found.advantage, 4), round(found.low, 2), round(found.high, 2)
    (0.2, 0.18, 0.22)
    """
    require(advantages.size >= 1, "number of trials is 0: accepted are whole numbers from 1")
    estimate = mean_interval(advantages, confidence, -1.0, 1.0)
    return AdvantageInterval(int(advantages.size), float(advantages.mean()), estimate.low, estimate.high, confidence)


def most_wins(trials: int, largest_advantage: float, level: float) -> int:
    """Return the smallest number of wins that an insider of bounded advantage exceeds with probability at most `level`.

    Examples
    --------
    >>> most_wins(800, 0.286, 0.001)
    556
    """
    require_number("number of trials is", trials, "whole numbers from 1")
    require_number("advantage is", largest_advantage, "numbers from 0 to 1")
    require_number("level is", level, "numbers above 0 and below 1")
    return int(binom.isf(level, trials, (1 + largest_advantage) / 2))
