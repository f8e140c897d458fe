"""Statistics of the reproductions: intervals of means, differences and shares, and predicted advantages and beliefs."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple

import numpy as np
from scipy.special import expit, ndtri, stdtrit
from scipy.stats import binomtest, ttest_ind

from fl_audit.array_types import Floats
from fl_audit.experiments.papers.item_results import CONFIDENCE
from fl_audit.privacy.identifiability_bounds import gaussian_advantage
from fl_audit.statistics.interval_estimates import IntervalEstimate

RESAMPLES = 400


def reproducible_generator(name: str) -> np.random.Generator:
    """Return a random generator whose seed is derived from a name, so that its random numbers can be reproduced."""
    return np.random.default_rng(list(name.encode()))


def bootstrap(values: Floats, statistic: Callable[[Floats], float], random: np.random.Generator) -> IntervalEstimate:
    """Return a statistic of independent trials, with its percentile bootstrap interval of 95 %.

    Shapes: `values` (trials, ...).
    """
    trials = len(values)
    resampled = [statistic(values[random.integers(trials, size=trials)]) for _ in range(RESAMPLES)]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return IntervalEstimate(float(statistic(values)), float(low), float(high))


def t_interval(values: Floats, confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Return the mean of independent values with its t interval.

    Shapes: `values` (repetitions,).
    """
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(values.size)
    reach = float(stdtrit(values.size - 1, (1 + confidence) / 2)) * error
    return IntervalEstimate(mean, mean - reach, mean + reach)


def predicted_advantage(mu: Floats) -> float:
    """Return the predicted advantage of an adversary that tells D from D': the mean of 2 Phi(mu_w / 2) - 1.

    `mu` holds the Gaussian-DP parameter mu_w of each trial w, shape (trials,). The prediction is exact if mu_w is known
    before the training. Under global noise scaling mu_w depends on the training, so the prediction is approximate.
    """
    return float(np.mean([gaussian_advantage(float(mu_of_trial)) for mu_of_trial in mu]))


def mean_belief(mu: float, points: int = 2001) -> float:
    """Return the mean belief in the data set that was used, E sigmoid(L) for log-odds L ~ N(mu^2/2, mu^2)."""
    quantiles = ndtri((np.arange(points) + 0.5) / points)
    return float(np.mean(expit(mu * mu / 2 + mu * quantiles)))


def welch_interval(first: Floats, second: Floats, confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Return the difference of two means, first minus second, with Welch's t interval.

    Shapes: `first` (n,), `second` (m,).
    """
    interval = ttest_ind(first, second, equal_var=False).confidence_interval(confidence)
    return IntervalEstimate(float(np.mean(first) - np.mean(second)), float(interval.low), float(interval.high))


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the ends of the 95 % Clopper-Pearson interval of a success probability."""
    interval = binomtest(successes, trials).proportion_ci(CONFIDENCE)
    return float(interval.low), float(interval.high)


def mean_of_shares(shares: Floats) -> IntervalEstimate:
    """Return the mean of the shares of several repetitions, with its t interval, cut to [0, 1].

    `shares` are numbers in [0, 1], shape (repetitions,), at least two. If all are equal, the t interval would have the
    width 0, and a Clopper-Pearson interval is given instead.
    """
    interval = t_interval(shares)
    low = interval.low
    high = interval.high
    if np.ptp(shares) == 0:
        low, high = share_interval(round(float(shares[0]) * len(shares)), len(shares))
    return IntervalEstimate(interval.value, max(low, 0.0), min(high, 1.0))


def end_by_end(
    statistic: Callable[[Sequence[float]], float], intervals: Iterable[IntervalEstimate]
) -> IntervalEstimate:
    """Return a statistic of several intervals, computed separately for their values, lower ends and upper ends."""
    return IntervalEstimate(*(float(statistic(ends)) for ends in zip(*map(astuple, intervals), strict=True)))
