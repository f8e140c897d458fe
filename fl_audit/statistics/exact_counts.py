"""Compute exact p-values of counts: sums of independent nonnegative integers, and 2 x 2 tables with given margins.

All distributions are discrete. A two-sided p-value is twice the smaller tail probability, so it is never too small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, gammaln
from scipy.stats import binom

from fl_audit.array_types import Floats, Integers

_REACH = 20  # a distribution is computed within this number of standard deviations on either side of its mean
_LEAST = 1e-12  # below it the rounding of a Fourier transform is larger than a tail
_STEPS = 8  # whole steps of a score for each unit of a squared standardised deviation
_MOST = 40  # a squared standardised deviation counts as no more than this


@dataclass(frozen=True)
class CountDistribution:
    """Distribution of a random nonnegative integer, and how many independent integers with it are summed."""

    probabilities: Floats  # probabilities of 0, 1, ...
    copies: int  # number of independent integers with this distribution


def sum_tails(distributions: Sequence[CountDistribution], observed: int) -> tuple[float, float]:
    """Return the probabilities that a sum of independent integers is at most, and at least, an observed value.

    They are exact up to rounding within twenty standard deviations of the mean.

    Examples
    --------
    >>> lower, upper = sum_tails([CountDistribution(np.array([0.5, 0.5]), 4)], 3)
    >>> round(lower, 4), round(upper, 4)
    (0.9375, 0.3125)
    """
    mean = 0.0
    variance = 0.0
    highest = 0
    for distribution in distributions:
        values = np.arange(distribution.probabilities.size)
        distribution_mean = float(values @ distribution.probabilities)
        mean += distribution.copies * distribution_mean
        variance += distribution.copies * float(np.square(values - distribution_mean) @ distribution.probabilities)
        highest += distribution.copies * (distribution.probabilities.size - 1)
    if variance < 1e-12:  # nothing is random
        return float(observed >= round(mean)), float(observed <= round(mean))
    spread = min(highest + 1, 2 * math.ceil(_REACH * math.sqrt(variance)) + 2)
    size = 1 << max(4, (spread + max(distribution.probabilities.size for distribution in distributions)).bit_length())
    first = max(0, round(mean) - size // 2) if highest >= size else 0
    if not first <= observed < first + size:
        return (_LEAST, 1.0) if observed < first else (1.0, _LEAST)
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    for distribution in distributions:
        product *= np.fft.rfft(distribution.probabilities, size) ** distribution.copies
    shares = np.roll(np.maximum(np.fft.irfft(product, size), 0.0), -(first % size))
    at = observed - first
    lower = float(shares[: at + 1].sum())
    upper = float(shares[at:].sum())
    return tuple(min(1.0, max(_LEAST, tail)) for tail in (lower, upper))  # type: ignore[return-value]


@dataclass(frozen=True)
class BinomialHistogram:
    """Histogram of independent binomial counts with the same distribution: how often each value occurred."""

    trials: int  # number of trials behind each count, at least 1
    probability: float  # probability of a success, above 0 and below 1
    often: Integers  # number of times that the count was 0, 1, ..., trials

    @property
    def _squared_deviations(self) -> Floats:
        deviations = np.arange(self.trials + 1) - self.trials * self.probability
        return np.asarray(np.square(deviations), dtype=np.float64)

    @property
    def _variance(self) -> float:
        return self.trials * self.probability * (1 - self.probability)

    @property
    def scores(self) -> Integers:
        """Score of every possible count from 0 to `trials`, shape (trials + 1,): how far the count is from its mean.

        The score is 8 (count - mean)^2 / variance, rounded to a whole number. Squared deviations above 40 variances
        count as 40.
        """
        standardised = np.minimum(self._squared_deviations / self._variance, _MOST)
        return np.asarray(np.rint(_STEPS * standardised), dtype=np.int64)

    @property
    def distribution(self) -> CountDistribution:
        """Distribution of one count's score as defined by `scores`, with the number of counts in the histogram."""
        shares = binom.pmf(np.arange(self.trials + 1), self.trials, self.probability)
        return CountDistribution(np.bincount(self.scores, weights=shares).astype(np.float64), int(self.often.sum()))

    @property
    def total(self) -> int:
        """Sum of the scores of all observed counts. `scores` gives the score of each possible count."""
        return int(self.often @ self.scores)

    @property
    def squares(self) -> float:
        """Sum over all observed counts of (count - mean)^2 / variance; its expectation is the number of counts."""
        return float(self.often @ self._squared_deviations) / self._variance


@dataclass(frozen=True)
class Dispersion:
    """The ratio of the variance of counts to that of independent binomial counts, with its tail probabilities."""

    ratio: float  # ratio of the measured to the binomial variance
    lower: float  # probability of a ratio at most this large
    upper: float  # probability of a ratio at least this large

    @property
    def p_value(self) -> float:
        """Two-sided p-value: twice the smaller tail probability, at most 1."""
        return min(1.0, 2 * min(self.lower, self.upper))


def dispersion(counts: Sequence[BinomialHistogram]) -> Dispersion:
    """Return the variance of counts relative to that of binomial counts, with exact tail probabilities.

    `counts`: There is at least one count in all.
    """
    number = sum(int(histogram.often.sum()) for histogram in counts)
    lower, upper = sum_tails(
        [histogram.distribution for histogram in counts], sum(histogram.total for histogram in counts)
    )
    return Dispersion(sum(histogram.squares for histogram in counts) / number, lower, upper)


def binomial_p(observed: Integers | int, trials: int, probability: float) -> Floats:
    """Return the two-sided p-value of each observed binomial count, in the shape of `observed`."""
    values = np.asarray(observed, dtype=np.float64)
    upper = np.where(values <= 0, 1.0, bdtrc(np.maximum(values - 1, 0), trials, probability))
    return np.asarray(np.minimum(1.0, 2 * np.minimum(bdtr(values, trials, probability), upper)), dtype=np.float64)


def table_p(inside: int, total: int, first: int, second: int) -> float:
    """Return the two-sided p-value for independence in a 2 x 2 table with given margins (hypergeometric distribution).

    Each element of the table is in one of two rows and is marked or not.
    """
    lowest = max(0, total - second)
    highest = min(first, total)
    # All probabilities that matter lie within twenty standard deviations of the mean.
    whole = first + second
    mean = first * total / whole
    spread = math.sqrt(max(1.0, mean * (1 - total / whole) * second / max(1, whole - 1)))
    low = max(lowest, math.floor(mean - _REACH * spread))
    high = min(highest, math.ceil(mean + _REACH * spread))
    if not low <= inside <= high:
        return _LEAST
    values = np.arange(low, high + 1)
    logs = _log_choose(first, values) + _log_choose(second, total - values)
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    lower = float(shares[: inside - low + 1].sum())
    upper = float(shares[inside - low :].sum())
    return min(1.0, max(_LEAST, 2 * min(lower, upper)))


def _log_choose(number: int, chosen: Integers) -> Floats:
    return np.asarray(gammaln(number + 1) - gammaln(chosen + 1) - gammaln(number - chosen + 1), dtype=np.float64)
