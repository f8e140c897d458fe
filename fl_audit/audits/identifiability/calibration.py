"""Calibration of the insider's beliefs: among trials with a belief near p, a share of about p should have used D.

The module computes a reliability diagram with exact confidence intervals, and exact tests. Given the insider's
observations, the correctness of its guesses are independent coins with known probabilities, so every number of right
guesses has a Poisson-binomial distribution.
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
    """One bin of the reliability diagram: the trials whose beliefs lie in an interval."""

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
    """The calibration test of beliefs, with the bins of the reliability diagram."""

    wins: int  # trials won
    expected_wins: float  # sum of the chances that the beliefs gave them
    wins_p_value: float  # exact two-sided p-value of the number of wins
    p_value: float  # of calibration: the smallest p-value of the bins times their number, never too small
    bins: tuple[ReliabilityBin, ...]  # the bins of a reliability diagram, from the smallest beliefs to the largest
    confidence: float  # of each bin's interval


def calibration(
    log_odds: Floats, members: Flags, confidence: float, prior: float = 0.5, coin: float = 0.5, bins: int = 10
) -> Calibration:
    """Test whether the insider's beliefs are calibrated.

    Parameters
    ----------
    log_odds
        LLR of D against D' in each trial, i.e. log-odds without a prior, shape (trials,), at least one trial.
    members
        Whether D was used in each trial, bool, shape (trials,).
    confidence
        Confidence of the intervals of the bins, above 0 and below 1.
    prior
        The prior belief in D by which the insider guesses.
    coin
        Probability with which the challenger uses D. Beliefs are computed with this prior, the only one at which they
        can be calibrated.
    bins
        Largest number of bins, at least 1. Bins have equal numbers of trials, at least 10 if there are so many.

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
    """Return the two-sided p-value of a number of successes among independent trials with known probabilities.

    It is twice the smaller tail probability, at most 1. It is computed exactly, and conservative because the count is
    discrete.
    """
    distribution = _poisson_binomial(chances)
    return min(1.0, 2 * min(float(distribution[: count + 1].sum()), float(distribution[count:].sum())))


def _poisson_binomial(chances: Floats) -> Floats:
    """Return the Poisson-binomial probabilities of 0 to n successes, shape (n + 1,), to about 1e-15 each.

    The distributions are convolved pairwise by FFT in n log^2 n steps; `scipy.stats.poisson_binom` takes n^2.
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
