"""The order-statistic bound: a threshold at a rank of the reference scores has a false-positive rate of known law.

Why the bound holds, assuming no more than that scores are independent, and alike within each group:

* The direction and the rank k are chosen on scores that are not measured. Ties are broken at random, which is a step
  after the mechanism and so leaves its (epsilon, delta)-DP as it is, and makes all measured scores different.
* The threshold is the k-th largest of n measured reference scores. The share V of the reference law above it then
  follows Beta(k, n + 1 - k), whatever that law is: it is the k-th smallest of n uniform numbers.
* Given the threshold, the hits among the n1 scores of the other group are binomial. Under (epsilon, delta)-DP in both
  directions their rate is at most g(V) = min(e^epsilon V + delta, 1 - e^-epsilon (1 - delta - V)) (Kairouz, Oh &
  Viswanath 2015, theorem 2.1, for the event and for its complement).
* So the probability of so many hits is at most p(epsilon) = E P(Binomial(n1, g(V)) >= hits), the mean over that beta
  law. It falls with the hits, hence p at the true epsilon is at most a level with at most that probability: p is a
  p-value. It rises with epsilon, so the bound, where p reaches the level, exceeds the true epsilon only if p is below
  the level there: with at most the probability of the level.

Against two Clopper-Pearson intervals nothing is paid for the false-positive rate: its law is known, the level is not
shared, and V enters by its mean rather than by its worst case. Where scores have few values Clopper-Pearson is better,
for its threshold can stand between two of them.
"""

from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincinv

from fl_audit.arrays import Floats
from fl_audit.confidence.beta_mean import BetaMean, where_it_reaches
from fl_audit.evidence.bounds.selection import Counts, ScoreReading, above, ranks
from fl_audit.evidence.bounds.threshold_bounds import LARGEST_EPSILON, bend_at, largest_tpr

_SLOPE_PLACES = 3
_SHARE_OF_LEVEL_TO_CHOOSE = 0.5
_CERTAIN = 1e7


def order_statistic_epsilon(ways: tuple[ScoreReading, ...], delta: float, level: float) -> float:
    """Return the order-statistic bound on epsilon, at least 0; see the module's text.

    Parameters
    ----------
    ways
        The four directions, of a split with broken ties.
    delta
        At least 0, below 1.
    level
        1 - confidence.
    """
    return order_statistic_of(*_chosen(ways, delta, level), delta, level)


@lru_cache(maxsize=4096)  # splits of few values give the same counts again and again
def order_statistic_of(counts: Counts, rank: int, delta: float, level: float) -> float:
    """Return the bound of a rank that was fixed before these scores were seen.

    Parameters
    ----------
    counts
        What was measured: `hits` scores of the first group above the reference's `rank`-th largest.
    rank
        k, 1 to the number of reference scores.
    delta, level
        As for `order_statistic_epsilon`.
    """
    if counts.hits == 0:
        return 0.0
    tail = (float(counts.hits), counts.first - counts.hits + 1.0)
    law = BetaMean(float(rank), counts.second - rank + 1.0)

    def p_value(epsilon: float) -> float:
        return law.mean(lambda v: betainc(*tail, largest_tpr(v, epsilon, delta)), kink=bend_at(epsilon, delta))

    return where_it_reaches(p_value, level, LARGEST_EPSILON)


def _chosen(ways: tuple[ScoreReading, ...], delta: float, level: float) -> tuple[Counts, int]:
    """Return the counts and the rank with the largest bound to be expected in sight of the choosing scores."""
    best, found, rank = -np.inf, Counts(0, ways[0].first.size, 0, ways[0].second.size), 1
    for way in ways:
        n1, n0 = way.first.size, way.second.size
        tried = ranks(n0)
        fpr = tried / (n0 + 1)
        # What the choosing scores show is uncertain as well: the harmonic sum of both numbers counts.
        weights = (1 / (1 / n1 + 1 / way.first_choosing.size), 1 / (1 / n0 + 1 / way.second_choosing.size))
        expected = _expected_bound(_rate_at(way, fpr), fpr, weights, delta, _SHARE_OF_LEVEL_TO_CHOOSE * level)
        at = int(np.argmax(expected))
        if expected[at] > best:
            best, rank = expected[at], int(tried[at])
            threshold = float(way.second[n0 - rank])
            found = Counts(int(above(way.first, threshold)), n1, int(above(way.second, threshold)), n0)
    return found, rank


def _rate_at(way: ScoreReading, fpr: Floats) -> Floats:
    """Return the first group's rate above the thresholds with these false-positive rates, by the choosing scores.

    Between choosing reference scores it is interpolated. Beyond the largest it falls as a power of the rate, the one
    between the largest and the third largest: a threshold so far out must neither be taken for as good as the largest
    score, nor be given up where the first group lies far above the reference.
    """
    hits = above(way.first_choosing, way.second_choosing[::-1]) + 0.5
    size = way.second_choosing.size
    place = fpr * (size + 1)
    last = min(_SLOPE_PLACES, size)
    power = min(1.0, float(np.log(hits[last - 1] / hits[0]) / np.log(last))) if last > 1 else 1.0
    inner = np.interp(place, np.arange(1, size + 1), hits)
    return np.asarray(np.where(place < 1, hits[0] * place**power, inner) / (way.first_choosing.size + 1))


def _expected_bound(tpr: Floats, fpr: Floats, sizes: tuple[float, float], delta: float, level: float) -> Floats:
    """Return about the bound of some rates: rare events of Poisson numbers, whose ratio has an exact bound.

    Of Poisson numbers h and k the share h / (h + k) is binomial, so the ratio of their means has a bound by a quantile
    of a beta law. Rates that are not small vary less than Poisson numbers: h / (1 - tpr) in place of h says so.
    """
    with np.errstate(divide="ignore", over="ignore"):
        h, k = (
            np.minimum(rate * size / np.maximum(1 - rate, 1 / _CERTAIN), _CERTAIN)
            for rate, size in zip((tpr, fpr), sizes, strict=True)
        )
        odds = betaincinv(h, k, level)
        lowest = tpr * odds / np.maximum(1 - odds, 1 / _CERTAIN) * k / h
        return np.asarray(np.log(np.maximum(lowest - delta, 0.0) / fpr), dtype=np.float64)
