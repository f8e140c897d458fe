"""Compute the area under the ROC curve of scores, and true-positive rates at given false-positive rates.

Each has a confidence interval. The intervals assume only that scores are independent, and identically distributed
within each group.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import betainc, betaincinv

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.statistics.interval_estimates import EstimateWithConfidence
from fl_audit.value_checks import require_number


def area_under_curve(members: Floats, nonmembers: Floats, confidence: float) -> EstimateWithConfidence:
    """Return the area under the ROC curve: the probability that a member scores higher than a nonmember.

    Ties count half. The interval is that of Hoeffding 1963, section 5b, for U-statistics of two samples. It holds for
    every distribution and number of scores, and is wider than intervals from a normal approximation.

    Shapes: `members` (n1,), `nonmembers` (n0,).

    Examples
    --------
    >>> found = area_under_curve(np.arange(5.0, 105.0), np.arange(100.0), 0.95)
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.549, 0.413, 0.685)
    """
    fewest = _require_scores(members, nonmembers)
    ranks = scipy.stats.rankdata(np.concatenate([members, nonmembers]))[: len(members)]
    pairs = len(members) * len(nonmembers)
    area = float((ranks.sum() - len(members) * (len(members) + 1) / 2) / pairs)
    reach = math.sqrt(math.log(2 / (1 - confidence)) / (2 * fewest))
    return EstimateWithConfidence(area, max(0.0, area - reach), min(1.0, area + reach), confidence)


@dataclass(frozen=True)
class TradeoffBand:
    """True-positive rates at given false-positive rates, with a confidence band; each field has the shape (points,)."""

    alarms: Floats  # false-positive rates: shares of the reference group above the threshold
    rates: Floats  # measured true-positive rates, at thresholds with at most these measured false-positive rates
    low: Floats  # lower end of the band, which holds with its confidence at each point by itself
    high: Floats  # upper end of the band


def tradeoff_band(members: Floats, nonmembers: Floats, alarms: Floats, confidence: float) -> TradeoffBand:
    """Return the true-positive rates at given false-positive rates, with a confidence interval at each of them.

    The threshold at a false-positive rate is estimated from scores, too. A band that ignores this error covers 77 to 81
    % instead of 95 %. So each end of an interval may fail in two ways, each with probability e = (1 - confidence) / 4:
    by an error of the threshold, or by an error of the rate above the threshold.

    Let V be the share of the reference distribution above the k-th largest of n reference scores. V follows Beta(k, n +
    1 - k), whatever the distribution is. For the lower end, k is the largest number for which V exceeds the given rate
    with probability at most e. The number of scores of the other group above this score is binomial, and gets a
    Clopper-Pearson bound. For the upper end, k is the smallest number for which V falls below the given rate with
    probability at most e.

    Shapes: `members` (n1,), `nonmembers` (n0,), `alarms` (points,).

    Examples
    --------
    >>> scores = np.arange(500.0)
    >>> band = tradeoff_band(scores + 100, scores, np.array([0.1]), 0.95)
    >>> [round(float(end[0]), 3) for end in (band.low, band.rates, band.high)]
    [0.226, 0.3, 0.383]
    """
    _require_scores(members, nonmembers)
    require(bool(((alarms >= 0) & (alarms <= 1)).all()), f"alarms are {alarms}: accepted are numbers from 0 to 1")
    require_number("confidence is", confidence, "numbers above 0 and below 1")
    n1 = members.size
    n0 = nonmembers.size
    side = (1 - confidence) / 4
    ascending = np.sort(members)
    # Index k holds the k-th largest reference score; index 0 is infinity, and the last index is minus infinity.
    reference = np.concatenate([[np.inf], np.sort(nonmembers)[::-1], [-np.inf]])
    ranks = np.arange(1, n0 + 1)
    share = alarms[:, np.newaxis]
    # P(V > a) grows with k, and P(V < a) falls.
    low_rank = (betainc(ranks, n0 + 1 - ranks, share) >= 1 - side).sum(axis=1)
    high_rank = 1 + (betainc(ranks, n0 + 1 - ranks, share) > side).sum(axis=1)
    alarm_count = np.floor(alarms * n0 + 1e-9).astype(np.int64)
    above = n1 - np.searchsorted(ascending, reference[low_rank], side="right")
    reaching = n1 - np.searchsorted(ascending, reference[high_rank], side="left")
    rates = (n1 - np.searchsorted(ascending, reference[alarm_count + 1], side="right")) / n1
    low = np.where(above > 0, betaincinv(np.maximum(above, 1), n1 - above + 1, side), 0.0)
    high = np.where(reaching < n1, betaincinv(reaching + 1, np.maximum(n1 - reaching, 1), 1 - side), 1.0)
    return TradeoffBand(alarms, rates, low, high)


def _require_scores(members: Floats, nonmembers: Floats) -> int:
    """Return the number of scores in the smaller group; raise `InputError` if it is 0."""
    fewest = min(members.size, nonmembers.size)
    require(fewest > 0, "a group of scores is empty: accepted is at least one score in each")
    return fewest
