"""Intervals, standard errors and predictions of the reproductions."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri, stdtrit
from scipy.stats import binomtest, ttest_ind

from experiments.reproductions.papers import CONFIDENCE, ItemRow, measured_row
from fl_audit.arrays import Floats
from fl_audit.evidence.membership.rates import Interval
from fl_audit.privacy.scores import gaussian_advantage

RESAMPLES = 400


def resampling(name: str) -> np.random.Generator:
    """Return the generator of all random draws of one item, resamples and simulated games: the same for every call."""
    return np.random.default_rng(list(name.encode()))


def bootstrap(values: Floats, statistic: Callable[[Floats], float], random: np.random.Generator) -> Interval:
    """Return a statistic with its percentile interval by resampling worlds, since worlds are independent.

    Parameters
    ----------
    values
        Shape (worlds, ...).
    statistic, random
        Computes the statistic from an array of this shape; source of the resamples.
    """
    worlds = len(values)
    found = [statistic(values[random.integers(worlds, size=worlds)]) for _ in range(RESAMPLES)]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(found, [tail, 100 - tail])
    return Interval(float(statistic(values)), float(low), float(high))


def t_interval(values: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of independent values with its t interval.

    Parameters
    ----------
    values, confidence
        Shape (repetitions,), at least two of them; confidence of the interval, above 0 and below 1.
    """
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(values.size)
    reach = float(stdtrit(values.size - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - reach, mean + reach)


def mean_row(setting: str, quantity: str, values: Floats, note: str = "", **more: float) -> ItemRow:
    """Return the row of the mean of repetitions with its t interval.

    Parameters
    ----------
    setting, quantity, note
        As of `ItemRow`.
    values
        One of each repetition, (repetitions,), at least two.
    **more
        The published number and that of theory, if there are any.
    """
    return measured_row(setting, quantity, t_interval(values), len(values), note, **more)


def predicted_advantage(mu: Floats) -> float:
    """Return the mean of 2 Phi(mu_w / 2) - 1 over worlds, (worlds,): exact where mu is fixed, else an approximation.

    Under global scaling mu_w depends on how training went, and thereby on the log-odds, so the formula is not exact.
    """
    return float(np.mean([gaussian_advantage(float(one)) for one in mu]))


def predicted_exceedance(mu: Floats, belief: float) -> float:
    """Return the mean over worlds of P(belief in the truth > `belief`).

    The log-odds of the truth are taken to be N(mu_w^2/2, mu_w^2) in world w, and the prior to be 1/2.

    Parameters
    ----------
    mu, belief
        mu of each world, (worlds,); the belief that is passed, in (0, 1).
    """
    positive = mu[mu > 0]
    tails = ndtr(positive / 2 - logit(belief) / positive)
    return float(np.sum(tails) / len(mu))


def largest_exceedance(mu: float, belief: float) -> float:
    """Return what P(belief in the truth > `belief`) is at most, however the rounds' mu depend on what was seen.

    Parameters
    ----------
    mu, belief
        Root of the largest sum over rounds of mu_i^2, above 0; the belief that is passed, above .5.

    Notes
    -----
    The log-odds of the truth are a Brownian motion with drift 1/2 at the time sum mu_i^2, which is mu^2 at most: what
    they exceed at an end that was chosen on the way, they exceed somewhere before mu^2 (reflection principle).
    """
    passed = float(logit(belief))
    return float(ndtr(mu / 2 - passed / mu) + np.exp(passed) * ndtr(-mu / 2 - passed / mu))


def mean_belief(mu: float, points: int = 2001) -> float:
    """Return the mean belief in the truth: E sigmoid(L) with L ~ N(mu^2/2, mu^2), averaged over quantiles of L.

    Parameters
    ----------
    mu, points
        At least 0; how many quantiles are averaged.
    """
    quantiles = ndtri((np.arange(points) + 0.5) / points)
    return float(np.mean(expit(mu * mu / 2 + mu * quantiles)))


def median_of_largest(mu: float, worlds: int) -> float:
    """Return the median of the largest of `worlds` log-odds of the truth, each N(mu^2/2, mu^2).

    Parameters
    ----------
    mu, worlds
        At least 0; how many log-odds there are, at least 1.
    """
    return max(0.0, mu * mu / 2 - mu * float(ndtri(-math.expm1(-math.log(2) / worlds))))


def z_against(advantage: float, expected: float, worlds: int) -> float:
    """Return how far an advantage over `worlds` games lies above its expected value, in standard errors.

    Parameters
    ----------
    advantage, expected, worlds
        The measured and the expected advantage, both in [-1, 1]; number of games.
    """
    return (advantage - expected) / math.sqrt((1 - expected**2) / worlds)


def z_between(advantage: float, worlds: int, other: float, other_worlds: int) -> float:
    """Return the difference of two measured advantages in standard errors of the difference.

    Parameters
    ----------
    advantage, worlds, other, other_worlds
        One advantage, in [-1, 1]; number of its games; the same of the other.
    """
    variance = (1 - advantage**2) / worlds + (1 - other**2) / other_worlds
    return (advantage - other) / math.sqrt(variance) if variance > 0 else math.inf


def welch_interval(one: Floats, other: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Return the difference of two means, first minus second, with its t interval by Welch's degrees of freedom.

    Parameters
    ----------
    one, other, confidence
        Independent values, shapes (n,) and (m,), at least two of each; confidence of the interval, above 0 and below 1.
    """
    found = ttest_ind(one, other, equal_var=False).confidence_interval(confidence)
    return Interval(float(np.mean(one) - np.mean(other)), float(found.low), float(found.high))


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share.

    Parameters
    ----------
    successes, trials
        How many trials succeeded; number of trials, at least 1.
    """
    found = binomtest(successes, trials).proportion_ci(CONFIDENCE)
    return float(found.low), float(found.high)


def mean_of_shares(shares: Floats) -> Interval:
    """Return the mean of shares of repetitions with its t interval, that of coins that fell alike where all agree.

    A t interval would have no width where all repetitions agree. Shares are in [0, 1], (repetitions,), at least two.
    """
    found = t_interval(shares)
    low, high = found.low, found.high
    if np.ptp(shares) == 0:
        low, high = share_interval(round(float(shares[0]) * len(shares)), len(shares))
    return Interval(found.value, max(low, 0.0), min(high, 1.0))


def end_by_end(statistic: Callable[[Sequence[float]], float], found: Iterable[Interval]) -> Interval:
    """Return a statistic of several numbers, and of the lower and the upper ends of their intervals.

    Parameters
    ----------
    statistic, found
        What is computed of values and ends, such as the largest; the numbers, at least one.
    """
    return Interval(*(float(statistic(ends)) for ends in zip(*map(astuple, found), strict=True)))
