"""Calibration of the insider's beliefs: of the trials with a belief near p, a share p should hold D.

The numbers of a reliability diagram with exact intervals, and exact tests. Given what the insider saw, its guesses are
independent coins with known chances, so any count of wins follows a Poisson-binomial distribution.
"""

from dataclasses import dataclass

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import expit, logit

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.identifiability.likelihood_estimates import chance_of_being_right
from fl_audit.errors import require, require_number
from fl_audit.privacy.identifiability_bounds import require_prior
from fl_audit.statistics.advantage import clopper_pearson


@dataclass(frozen=True)
class ReliabilityBin:
    """The trials whose beliefs lie in one interval."""

    lowest: float  # smallest belief in D in it
    highest: float  # largest one
    trials: int  # number of trials
    members: int  # in how many of them D was used
    mean_belief: float  # the share of members that the beliefs expect
    share: float  # the share of members that there was
    low: float  # lower end of its Clopper-Pearson interval
    high: float  # upper end
    p_value: float  # exact two-sided probability of a share as far from the expected one, or farther


@dataclass(frozen=True)
class Calibration:
    """The comparison of beliefs with the shares of trials that held D."""

    wins: int  # trials won
    expected_wins: float  # sum of the chances that the beliefs gave them
    wins_p_value: float  # exact two-sided p-value of the number of wins
    p_value: float  # of calibration: the smallest p-value of the bins times their number, never too small
    bins: tuple[ReliabilityBin, ...]  # the bins of a reliability diagram, from the smallest beliefs to the largest
    confidence: float  # of each bin's interval


def calibration(
    log_odds: Floats, members: Flags, confidence: float, prior: float = 0.5, coin: float = 0.5, bins: int = 10
) -> Calibration:
    """Return statistics of the agreement between the insider's beliefs and the truth.

    Parameters
    ----------
    log_odds
        Log-odds of D against D' in each trial, without a prior, shape (trials,), at least one trial.
    members
        Whether D was used in each trial, bool, shape (trials,).
    confidence
        Confidence of the intervals of the bins, above 0 and below 1.
    prior
        The prior belief in D by which the insider guesses.
    coin
        Probability with which the challenger uses D: beliefs are taken at this prior, at which alone they can be
        calibrated.
    bins
        Largest number of bins, at least 1. They hold equally many trials each, at least 10.

    Raises
    ------
    InputError
        If shapes disagree or a number is out of its range.
    """
    require(log_odds.ndim == 1 and log_odds.size > 0, f"log-odds have shape {log_odds.shape}: accepted is (trials,)")
    require(members.shape == log_odds.shape, f"bits have shape {members.shape}: accepted is {log_odds.shape}")
    require_number("number of bins is", bins, "whole numbers from 1")
    require_prior(coin)
    beliefs = np.asarray(expit(log_odds + logit(coin)), dtype=np.float64)
    order = np.argsort(log_odds, kind="stable")
    parts = np.array_split(order, max(1, min(bins, log_odds.size // 10)))
    found = tuple(_bin(beliefs[part], members[part], confidence) for part in parts)
    right = chance_of_being_right(log_odds, prior, coin)
    wins = int(np.count_nonzero((log_odds + logit(prior) > 0) == members))
    p_value = min(1.0, len(found) * min(one.p_value for one in found))
    return Calibration(wins, float(right.sum()), _poisson_binomial_p(wins, right), p_value, found, confidence)


def _poisson_binomial_p(count: int, chances: Floats) -> float:
    """Return the two-sided p-value of a count of successes of independent trials with known chances.

    It is twice the smaller tail, at most 1: exact and, as the count is discrete, never too small.
    """
    distribution = _poisson_binomial(chances)
    return min(1.0, 2 * min(float(distribution[: count + 1].sum()), float(distribution[count:].sum())))


def _poisson_binomial(chances: Floats) -> Floats:
    """Return the probabilities of 0 to n successes of independent trials, shape (n + 1,), to about 1e-15 each.

    The distributions of halves are convolved, recursively: n log^2 n steps, where `scipy.stats.poisson_binom` takes
    n^2.
    """
    distributions = np.stack([1 - chances, chances], axis=1)
    while len(distributions) > 1:
        if len(distributions) % 2:
            certain = np.zeros((1, distributions.shape[1]))
            certain[0, 0] = 1.0
            distributions = np.concatenate([distributions, certain])
        distributions = np.maximum(0.0, fftconvolve(distributions[0::2], distributions[1::2], axes=1))
    return np.asarray(distributions[0, : chances.size + 1], dtype=np.float64)


def _bin(beliefs: Floats, members: Flags, confidence: float) -> ReliabilityBin:
    trials, count = int(beliefs.size), int(np.count_nonzero(members))
    low, high = clopper_pearson(count, trials, confidence)
    return ReliabilityBin(
        lowest=float(beliefs.min()),
        highest=float(beliefs.max()),
        trials=trials,
        members=count,
        mean_belief=float(beliefs.mean()),
        share=count / trials,
        low=low,
        high=high,
        p_value=_poisson_binomial_p(count, beliefs),
    )
