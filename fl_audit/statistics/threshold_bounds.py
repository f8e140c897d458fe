"""Compute lower bounds on epsilon from the numbers of scores of each group above a threshold.

All bounds depend only on the order of the scores: a strictly increasing transformation changes nothing, and infinite
scores are allowed. The maximum of a lower bound over thresholds is no valid lower bound. So threshold and direction are
chosen on a fifth of the scores (`score_split`), and the other scores give the bound. In simulations with 500 + 500
scores of a Gaussian with mu = 1, leaving out this fifth widens a bound by 12 %. The alternative is to use all scores
and to correct for many thresholds: ten thresholds in two directions widen it by 80 %.

**The order-statistic bound**: a threshold at a rank of the reference scores has a false-positive rate of known
distribution. The bound holds if scores are independent, and identically distributed within each group. The proof:

* The direction and the rank k are chosen on scores that are not measured. Ties are broken at random, so all measured
  scores differ. This is post-processing and leaves (epsilon, delta)-DP as it is.
* The threshold is the k-th largest of n measured reference scores. The probability V of a reference score above this
  threshold is random, and follows Beta(k, n + 1 - k) for every distribution of reference scores. For V is the k-th
  smallest of n uniform numbers.
* Hits are scores of the other group above the threshold. Given the threshold, the number of hits among its n1 scores is
  binomial. Under (epsilon, delta)-DP in both directions the rate of hits is at most g(V) = min(e^epsilon V + delta, 1 -
  e^-epsilon (1 - delta - V)) (Kairouz, Oh & Viswanath 2015, theorem 2.1, for the event and for its complement).
* So the probability of at least the observed hits is at most p(epsilon) = E P(Binomial(n1, g(V)) >= hits), where E is
  over the beta distribution of V. Since p falls with the number of hits, p at the true epsilon is a p-value. Since p
  rises with epsilon, the bound is the epsilon at which p reaches the level. So the bound exceeds the true epsilon only
  if the p-value at the true epsilon is below the level. This happens with a probability of at most the level.

With two Clopper-Pearson intervals, half of the level is spent on the false-positive rate. The order-statistic bound
spends nothing on it, because the distribution of this rate is known, and V enters by its mean and not by its worst
case. If scores have few different values, Clopper-Pearson is better, because its threshold can lie between two of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincinv, ndtr, ndtri

from fl_audit.array_types import Floats, Integers
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.beta_expectation import BetaExpectation, argument_at_level
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.score_split import ScoreSplit

_LARGEST_EPSILON = 700.0  # no search goes far beyond it: e^epsilon overflows soon after
_LARGEST_MU = 75.0
_CANDIDATES = 64
_SLOPE_PLACES = 3
_SHARE_OF_LEVEL_TO_CHOOSE = 0.5
_CERTAIN = 1e7
# Number of standard errors that are subtracted from a rule's estimated shift before rules are compared. Without this an
# extreme threshold is chosen by chance: at mu = 1 and 500 + 500 scores the bound falls from 80 % to 57 % of the truth;
# with 8, 82 %, but where only a fifth of the members leak, a third of what 2.5 finds.
_CAUTION = 2.5


@dataclass(frozen=True)
class CountsAboveThreshold:
    """Numbers of scores above a threshold in both groups, among the scores that did not choose the threshold."""

    hits: int  # number of scores of the first group above the threshold
    first: int  # number of all scores of the first group
    # Scores of the reference group above the threshold: k - 1 for `ORDER_STATISTIC` and `GDP`, whose threshold is its
    # k-th largest score.
    alarms: int
    second: int  # number of all scores of the reference group


_Rules = tuple[Floats, Floats, Integers]
"""Candidate rules, as arrays of shape (rules,): criterion to maximise, threshold, `CountsAboveThreshold.alarms`."""


def chosen_rule(method: BoundMethod, split: ScoreSplit, delta: float, level: float) -> CountsAboveThreshold:
    """Choose a threshold and a direction on one part of the scores, and count the scores above it in the other part.

    `split`: For `ORDER_STATISTIC`, equal scores must have been given different ranks.
    """
    best = -np.inf
    first, second = split.measuring
    counts = CountsAboveThreshold(0, first.size, 0, second.size)
    for direction in split.directions():
        expected, thresholds, alarms = _CHOICES[method](direction, delta, level)
        at = int(np.argmax(expected))
        first, second = direction.measuring
        if expected[at] > best:
            best = expected[at]
            counts = CountsAboveThreshold(int(_above(first, thresholds[at])), first.size, int(alarms[at]), second.size)
    return counts


def bound_of(method: BoundMethod, counts: CountsAboveThreshold, delta: float, level: float) -> float:
    """Return the lower bound on epsilon, at least 0, from counts of scores above a threshold chosen on other scores."""
    return _BOUNDS[method](counts, delta, level)


def _above(scores: Floats, threshold: Floats | float) -> Integers:
    """Return how many of the ascending scores are strictly above each threshold."""
    return np.asarray(scores.size - np.searchsorted(scores, threshold, side="right"), dtype=np.int64)


@lru_cache(maxsize=256)
def _ranks(size: int) -> Integers:
    """Return the ranks of the scores that are tried as thresholds: at most 64 ranks from 1 to `size`.

    The ranks are about a geometric progression, so they are dense near 1.
    """
    ranks = np.unique(np.geomspace(1, size, _CANDIDATES).round().astype(np.int64))
    ranks.flags.writeable = False
    return ranks


def _ratio_bound(hits: Floats, first: float, alarms: Floats, second: float, delta: float, level: float) -> Floats:
    """Return the lower bound log((TPR_low - delta) / FPR_high) on epsilon; -infinity if it is undefined.

    `hits` of `first` scores with D and `alarms` of `second` scores with D' are above the threshold; they need not be
    whole. TPR_low and FPR_high are Clopper-Pearson bounds, each at half of `level`.
    """
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-9), first - hits + 1, level / 2), 0.0)
    high = np.where(alarms < second, betaincinv(alarms + 1, np.maximum(second - alarms, 1e-9), 1 - level / 2), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(low - delta, 0.0)) - np.log(high))


def _by_value(split: ScoreSplit, delta: float, level: float) -> _Rules:
    """Return candidate thresholds, with the bound on epsilon that each of them is expected to give.

    The thresholds are scores of the part of the data that chooses a threshold. The first array holds the expected
    Clopper-Pearson bounds, and the second the thresholds. The third holds, for each threshold, the number of larger
    scores with D' in the other part of the data, which measures error rates.
    """
    # The threshold is the value of a score, so ties need no care. A threshold at one group's j-th largest score of n
    # leaves a share of j / (n + 1) of its distribution above it on average; between two of its scores, half a step
    # less. The expected bound is computed for a number of scores that is the geometric mean of the numbers of choosing
    # and measuring scores: the latter number would trust an extreme threshold's few hits too much.
    first, second = split.choosing
    top = [second[second.size - _ranks(second.size)], first[first.size - _ranks(first.size)]]
    thresholds = np.concatenate([*top, first[_ranks(first.size) - 1]])
    is_first_group = np.arange(thresholds.size) >= top[0].size
    tpr = (_above(first, thresholds) + np.where(is_first_group, 1.0, 0.5)) / (first.size + 1)
    fpr = (_above(second, thresholds) + np.where(is_first_group, 0.5, 1.0)) / (second.size + 1)
    weight1 = math.sqrt(split.measuring.first.size * first.size)
    weight0 = math.sqrt(split.measuring.second.size * second.size)
    expected = _ratio_bound(tpr * weight1, weight1, fpr * weight0, weight0, delta, level)
    return expected, thresholds, _above(split.measuring.second, thresholds)


def _clopper_pearson(counts: CountsAboveThreshold, delta: float, level: float) -> float:
    """Return log((TPR_low - delta) / FPR_high), at least 0; each rate is bounded at half the level."""
    # (epsilon, delta)-DP allows no event with TPR > e^epsilon FPR + delta (Kairouz, Oh & Viswanath 2015, theorem 2.1).
    # TPR and FPR are bounded at half the level each (Clopper & Pearson 1934), on scores that did not choose the event.
    # The only assumption is that scores are independent, and identically distributed within each group.
    hits = np.array([float(counts.hits)])
    alarms = np.array([float(counts.alarms)])
    return max(0.0, float(_ratio_bound(hits, counts.first, alarms, counts.second, delta, level)[0]))


def _where_allowed(tpr: tuple[float, float], fpr_expectation: BetaExpectation, delta: float, level: float) -> float:
    """Return the epsilon at which a random pair (FPR, TPR) satisfies (epsilon, delta)-DP with probability `level`.

    The TPR has a beta distribution with the parameters `tpr`. The result is 0 if the probability exceeds `level`
    already at epsilon 0.
    """

    def largest_tpr(v: Floats, epsilon: float) -> Floats:
        line = np.exp(np.minimum(epsilon + np.log(np.maximum(v, 1e-300)), 1.0)) + delta
        mirror = 1 - math.exp(-epsilon) * (1 - delta - v)
        return np.clip(np.minimum(line, mirror), 0.0, 1.0)

    def covered(epsilon: float) -> float:
        bend = (1 - delta) / (1 + math.exp(min(epsilon, _LARGEST_EPSILON)))  # the FPR at which both lines meet
        return fpr_expectation.mean(lambda v: betainc(*tpr, largest_tpr(v, epsilon)), kink=bend)

    return argument_at_level(covered, level, _LARGEST_EPSILON)


def _by_rank(split: ScoreSplit) -> _Rules:
    """Return candidate thresholds, which are scores with D' from the measuring part, at some of their ranks.

    The first array holds the expected FPR of each threshold, and the second array the thresholds. The third array holds
    how many scores with D' in the measuring part exceed each threshold.
    """
    size = split.measuring.second.size
    tried = _ranks(size)
    return tried / (size + 1), split.measuring.second[size - tried], tried - 1


def _by_estimated_mu(split: ScoreSplit, _: float, __: float) -> _Rules:
    """Return the candidate thresholds of `_by_rank`, with a cautious estimate of mu at each as the criterion of choice.

    The cautious estimate is the estimate minus 2.5 of its standard errors.
    """
    # The criterion is Phi^-1(TPR) - Phi^-1(FPR), less `_CAUTION` of its standard errors over the choosing scores.
    first, second = split.choosing
    fpr, thresholds, alarms = _by_rank(split)
    position = np.clip(fpr * (second.size + 1), 1, second.size)
    hits = np.interp(position, np.arange(1, second.size + 1), _above(first, second[::-1]))
    tpr = (hits + 0.5) / (first.size + 1)
    shift = ndtri(tpr) - ndtri(fpr)
    spread = np.sqrt(_probit_variance(tpr, first.size) + _probit_variance(fpr, second.size))
    return shift - _CAUTION * spread, thresholds, alarms


def _probit_variance(share: Floats, size: int) -> Floats:
    """Return the approximate variance of Phi^-1(share), for a share estimated from `size` scores (delta method)."""
    density = np.exp(-(ndtri(share) ** 2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(share * (1 - share) / (size * density**2))


def gdp_mu(counts: CountsAboveThreshold, level: float) -> float:
    """Return a lower confidence bound on mu from the number of first-group scores above a given reference score.

    The reference score is the k-th largest of the n scores of the second group. Under mu-GDP, TPR <= Phi(Phi^-1(FPR) +
    mu) for every event (Dong, Roth & Su 2022, definition 2.6). The FPR V at the reference score has the distribution
    Beta(k, n - k + 1), whatever the distribution of the scores (ties only lower V). Let `hits` be the observed number
    of the n1 first-group scores above the reference score. The probability of at least `hits` is at most the mean of
    P(Binomial(n1, Phi(Phi^-1(V) + mu)) >= hits) over that beta distribution. This mean is an exact p-value, and the
    bound is the mu at which the p-value equals the level.

    `counts`: Their rank k, which is the number of second-group scores above the threshold plus 1, was fixed beforehand.
    """
    if counts.hits == 0:
        return 0.0
    tpr, distribution = _distributions_of_rank(counts)
    normal = ndtri(distribution.values)
    return argument_at_level(
        lambda mu: distribution.mean(lambda _: betainc(*tpr, ndtr(normal + mu))), level, _LARGEST_MU
    )


def _distributions_of_rank(counts: CountsAboveThreshold) -> tuple[tuple[float, float], BetaExpectation]:
    """Return the two parameters of a beta distribution for the TPR, and the beta distribution of the FPR.

    The CDF of the TPR's distribution at x is the probability of at least the observed number of hits if the TPR is x.
    The FPR belongs to a threshold at a rank that is fixed beforehand.
    """
    tpr = (float(counts.hits), counts.first - counts.hits + 1.0)
    return tpr, BetaExpectation(counts.alarms + 1.0, float(counts.second - counts.alarms))


def _by_order(split: ScoreSplit, delta: float, level: float) -> _Rules:
    """Return the candidate thresholds of `_by_rank`, and how well each is expected to do.

    The first array holds the order-statistic bound that is expected for each threshold. The other arrays are those of
    `_by_rank`.
    """
    fpr, thresholds, alarms = _by_rank(split)
    # The choosing scores are uncertain as well, so the effective number is 1 / (1 / measuring + 1 / choosing).
    groups = zip(split.measuring, split.choosing, strict=True)
    n1, n0 = (1 / (1 / measuring.size + 1 / choosing.size) for measuring, choosing in groups)
    expected = _expected_bound(_rate_at(split, fpr), fpr, (n1, n0), delta, _SHARE_OF_LEVEL_TO_CHOOSE * level)
    return expected, thresholds, alarms


def _rate_at(split: ScoreSplit, fpr: Floats) -> Floats:
    """Return an estimate of the true-positive rate at each false-positive rate in `fpr`."""
    # Between choosing reference scores the TPR is interpolated. Beyond the largest it falls as a power of the FPR, with
    # the exponent between the largest and the third largest score. A threshold so far out is then neither taken to be
    # as good as the largest score, nor excluded where the first group lies far above the reference.
    hits = _above(split.choosing.first, split.choosing.second[::-1]) + 0.5
    size = split.choosing.second.size
    position = fpr * (size + 1)
    last = min(_SLOPE_PLACES, size)
    power = min(1.0, float(np.log(hits[last - 1] / hits[0]) / np.log(last))) if last > 1 else 1.0
    inner = np.interp(position, np.arange(1, size + 1), hits)
    return np.asarray(np.where(position < 1, hits[0] * position**power, inner) / (split.choosing.first.size + 1))


def _expected_bound(tpr: Floats, fpr: Floats, sizes: tuple[float, float], delta: float, level: float) -> Floats:
    """Return lower bounds on epsilon that are to be expected at given TPRs and FPRs, at confidence 1 - `level`.

    `sizes` are the numbers of members and nonmembers. The counts of positives are treated as Poisson variables.
    """
    # For Poisson counts h and k, h given h + k is binomial, so a quantile of a beta distribution bounds the ratio of
    # their means. Counts at rates that are not small vary less than Poisson counts; h / (1 - tpr) in place of h allows
    # for that.
    with np.errstate(divide="ignore", over="ignore"):
        shares = zip((tpr, fpr), sizes, strict=True)
        h, k = (np.minimum(rate * n / np.maximum(1 - rate, 1 / _CERTAIN), _CERTAIN) for rate, n in shares)
        odds = betaincinv(h, k, level)
        lowest = tpr * odds / np.maximum(1 - odds, 1 / _CERTAIN) * k / h
        return np.asarray(np.log(np.maximum(lowest - delta, 0.0) / fpr), dtype=np.float64)


@lru_cache(maxsize=4096)  # splits of few values give the same counts again and again
def _order_statistic(counts: CountsAboveThreshold, delta: float, level: float) -> float:
    """Return the order-statistic bound, at least 0, which the module's docstring proves."""
    return 0.0 if counts.hits == 0 else _where_allowed(*_distributions_of_rank(counts), delta, level)


_CHOICES: dict[BoundMethod, Callable[[ScoreSplit, float, float], _Rules]] = {
    BoundMethod.CLOPPER_PEARSON: _by_value,
    BoundMethod.ORDER_STATISTIC: _by_order,
    BoundMethod.GDP: _by_estimated_mu,
}
_BOUNDS: dict[BoundMethod, Callable[[CountsAboveThreshold, float, float], float]] = {
    BoundMethod.CLOPPER_PEARSON: _clopper_pearson,
    BoundMethod.ORDER_STATISTIC: _order_statistic,
    BoundMethod.GDP: lambda counts, delta, level: gdp_epsilon(delta, gdp_mu(counts, level)),
}
