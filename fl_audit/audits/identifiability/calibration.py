"""Test whether the insider's beliefs are calibrated: of the trials with a belief near p, a share near p should use D.

The module computes a reliability diagram with exact confidence intervals, and exact tests. If the beliefs are
calibrated, the guesses of the trials are right independently, with known probabilities. So the number of right guesses
has a Poisson-binomial distribution.
"""

from dataclasses import dataclass

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import expit, logit

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.identifiability.estimates_from_beliefs import chance_of_being_right
from fl_audit.errors import require
from fl_audit.privacy.identifiability_bounds import require_prior
from fl_audit.statistics.advantage import clopper_pearson
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class ReliabilityBin:
    """One bin of a reliability diagram: the trials whose beliefs in D lie in an interval."""

    lowest: float  # smallest belief in D in the bin
    highest: float  # largest belief in D in the bin
    trials: int  # number of trials in the bin
    members: int  # number of these trials that used D
    mean_belief: float  # mean belief in D, which is the expected share of trials with D
    share: float  # observed share of trials with D
    low: float  # lower end of the Clopper-Pearson interval of the share
    high: float  # upper end of the Clopper-Pearson interval of the share
    p_value: float  # exact two-sided p-value of the number of trials with D, given the beliefs


@dataclass(frozen=True)
class Calibration:
    """The result of testing whether beliefs are calibrated: two p-values, and the bins of the reliability diagram."""

    wins: int  # number of trials that the insider guessed right
    expected_wins: float  # expected number of right guesses, if the beliefs are calibrated
    wins_p_value: float  # exact two-sided p-value of the number of right guesses
    p_value: float  # p-value of calibration: smallest p-value of the bins times their number (Bonferroni), at most 1
    bins: tuple[ReliabilityBin, ...]  # the bins of the reliability diagram, ordered by increasing belief
    confidence: float  # confidence of the interval of each bin


def calibration(
    log_odds: Floats, members: Flags, confidence: float, prior: float = 0.5, coin: float = 0.5, bins: int = 10
) -> Calibration:
    """Test whether the insider's beliefs in D are calibrated, and return the p-values and the reliability diagram.

    Shapes: `log_odds` (trials,), `members` (trials,).

    `log_odds`: log-odds without a prior, shape (trials,), at least one trial.

    `prior`: The insider guesses the data set with the larger posterior belief.

    `coin`: The tested beliefs are computed with this prior instead of `prior`, since beliefs with any other prior are
    not calibrated.

    `bins`: Bins have equal numbers of trials, at least 10 if there are so many.
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
    """Return the exact two-sided p-value of a number of successes among independent trials with the given chances."""
    distribution = _poisson_binomial(chances)
    return min(1.0, 2 * min(float(distribution[: count + 1].sum()), float(distribution[count:].sum())))


def _poisson_binomial(chances: Floats) -> Floats:
    """Return the probabilities of 0 to n successes in n independent trials, (n + 1,), each to about 1e-15.

    FFT convolutions need n log^2 n steps, while `scipy.stats.poisson_binom` needs n^2.
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
