"""Distinguishers: for each scenario and each group of features, a trained rule that scores trials as D or D'.

Rules are trained and ranked on search trials, which do not count as evidence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.black_box.claim import Limit
from fl_audit.audits.black_box.features import LOW_BITS, MOST_CORRELATED, feature_groups
from fl_audit.audits.black_box.transcript import Transcripts
from fl_audit.randomness import Purpose, generator
from fl_audit.root_finding import last_true
from fl_audit.statistics.lower_bounds import epsilon_lower_bound
from fl_audit.statistics.methods import BoundMethod

Rule = Callable[[Floats], Floats]  # from features (trials, columns) to scores (trials,): higher where D is the likelier

METHODS = (BoundMethod.ORDER_STATISTIC, BoundMethod.CLOPPER_PEARSON)
"""The bounds that assume nothing about the scores."""
_SURE = 12.0  # a shift, in spreads, beyond which two groups never overlap in any number of trials that anybody plays
_LARGE_DELTA = 0.03  # from here on counting guesses is the better bound where so few trials prove nothing by either
_RANKING_CONFIDENCES = (0.975, 0.995)
"""Confidences of the bounds that are compared, as if several distinguishers were tested; they certify nothing."""
_TRIED, _MOST_TRIED = 9, 500  # how often a bound is tried, and on how many scores of each truth at most
_RANKING_QUANTILE = 2.3  # standard errors that a bound of fresh trials is expected to lose on each of its two rates
_POWER = 0.9  # standard errors on either rate that make it likely that a shift is shown; together about 1.28 of them
_RATES = np.geomspace(1e-4, 0.5, 200)  # rates of false alarms at which a bound is expected
_FLOOR = 1e-9
"""Smallest spread within a group, as a share of a column's range; no spread at all would be certain evidence."""


def learned_rule(features: Floats, present: Flags) -> Rule:
    """Train Fisher's linear discriminant, the best linear rule if D and D' give normal features of equal covariance.

    The rule returns a score for each new trial; all scores are 0 if no feature varies.

    Parameters
    ----------
    features
        Features of each trial, finite, shape (trials, columns).
    present
        Whether D was used in each trial, shape (trials,); both D and D' must occur.
    """
    one, zero = features[present], features[~present]
    within = np.sqrt((one.var(axis=0) + zero.var(axis=0)) / 2)
    scale = np.maximum(within, _FLOOR * np.ptp(features, axis=0))
    kept = scale > 0
    if not np.any(kept):
        return lambda values: np.zeros(len(values))
    centre, width = features[:, kept].mean(axis=0), scale[kept]
    columns = (features[:, kept] - centre) / width
    certain = within[kept] == 0
    weights = _signs(columns, present) * certain if np.any(certain) else _weights(columns, present)
    return lambda values: np.asarray(((values[:, kept] - centre) / width) @ weights)


def _signs(columns: Floats, present: Flags) -> Floats:
    """Return the sign of each column's mean under D minus that under D', as weights of columns without variance."""
    return np.asarray(np.sign(columns[present].mean(axis=0) - columns[~present].mean(axis=0)))


def _weights(columns: Floats, present: Flags) -> Floats:
    """Return the coefficients of Fisher's linear discriminant for columns with within-group standard deviation 1.

    `present` is true for the rows of D.
    """
    if columns.shape[1] == 1:
        return _signs(columns, present)
    if columns.shape[1] > 2 * MOST_CORRELATED:  # each has an indicator beside it
        return np.asarray(columns[present].mean(axis=0) - columns[~present].mean(axis=0))
    # With few trials for so many columns their correlations are hardly known, and are drawn towards none.
    shrinkage = 1e-6 if len(columns) >= 10 * columns.shape[1] else "auto"
    rule = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.5, 0.5])
    rule.fit(columns, present.astype(int))
    return np.asarray(rule.coef_[0])


@dataclass(frozen=True)
class Distinguisher:
    """A trained rule that distinguishes D from D', to be tested on fresh trials."""

    kind: str  # the scenario
    group: str  # the group of features
    rule: Rule  # from this group's features to scores
    limit: Limit  # the part of the claim that it is most likely to break
    method: BoundMethod  # the bound that did best
    margin: float  # by how much it seems to pass the claim's epsilon; only its order counts
    threshold: float  # score above which D is believed, for the share of right guesses


def find_distinguishers(
    kind: str, trials: Transcripts, present: Flags, limits: tuple[Limit, ...], fresh: int
) -> list[Distinguisher]:
    """Return the best distinguisher of all groups of features but low bits, and the best one that uses only low bits.

    Rules are trained on one half of the trials and ranked on the other half. The best are then trained again on all
    trials. The distinguisher with the larger margin comes first.

    Parameters
    ----------
    kind
        Name of the scenario.
    trials
        Transcripts of the trials of this scenario.
    present
        Whether D was used in each trial, shape (trials,).
    limits
        The inequalities that the claim implies.
    fresh
        Number of fresh trials that would test a distinguisher; few trials give only weak bounds at a small delta.
    """
    teaches = every_second(present)
    truth, groups = present[~teaches], feature_groups(trials)
    ranked = list[tuple[float, Limit, str, Floats]]()
    for group, features in groups.items():
        scores = learned_rule(features[teaches], present[teaches])(features[~teaches])
        margin, limit = margin_of(scores, truth, limits, fresh // 2)
        ranked.append((margin, limit, group, scores))
    ranked.sort(key=lambda entry: -entry[0])
    best = [[entry for entry in ranked if (entry[2] in LOW_BITS) == low][:1] for low in (False, True)]
    found = []
    for margin, limit, group, scores in (*best[0], *best[1]):
        rule = learned_rule(groups[group], present)
        threshold = _best_threshold(rule(groups[group]), present)
        method = _method(scores, truth, limit, fresh // 2)
        found.append(Distinguisher(kind, group, rule, limit, method, margin, threshold))
    return sorted(found, key=lambda distinguisher: -distinguisher.margin)


def every_second(present: Flags) -> Flags:
    """Return a mask that selects every second trial with D and every second trial with D'.

    Parameters
    ----------
    present
        Whether D was used in each trial, shape (trials,).
    """
    chosen = np.zeros(len(present), dtype=bool)
    for side in (True, False):
        chosen[np.flatnonzero(present == side)[::2]] = True
    return chosen


def margin_of(scores: Floats, truth: Flags, limits: tuple[Limit, ...], fresh: int) -> tuple[float, Limit]:
    """Return the largest expected margin over an inequality of the claim, and that inequality.

    The margin is the expected lower bound minus the claimed epsilon. The bound is estimated from the shift of the
    scores and from their tails, and the larger estimate counts.

    Parameters
    ----------
    scores
        Score of each trial, shape (trials,).
    truth
        Whether D was used in each trial, shape (trials,); both D and D' must occur.
    limits
        The inequalities that the claim implies.
    fresh
        Number of fresh trials with D; there are as many with D'.
    """
    one, zero = np.sort(scores[truth]), np.sort(scores[~truth])
    mu = _cautious_shift(one, zero)
    shifted, tails = (ndtr(mu + ndtri(_RATES)), _RATES), _cautious_rates(one, zero)
    entries = []
    for limit in limits:
        by_shift, by_tail = (_expected_epsilon(*rates, limit.delta, fresh) for rates in (shifted, tails))
        # The addition decides between distinguishers that no number of trials could tell apart.
        entries.append((max(by_shift, by_tail) - limit.epsilon + 1e-6 * mu, limit))
    return max(entries, key=lambda entry: entry[0])


def _cautious_rates(one: Floats, zero: Floats) -> tuple[Floats, Floats]:
    """Return TPR and FPR at all thresholds in both directions, each worsened by one standard error."""
    # Both are of ascending scores, under D and under D'.
    thresholds = np.unique(np.concatenate([one, zero]))[:-1]
    shares = [1 - np.searchsorted(group, thresholds, side="right") / group.size for group in (one, zero)]
    # An alarm for D above a threshold, or for D' at and below it.
    pairs = ((shares[0], one.size, shares[1], zero.size), (1 - shares[1], zero.size, 1 - shares[0], one.size))
    found, alarms = [], []
    for hits, of_hits, wrong, of_wrong in pairs:
        hits, wrong = (hits * of_hits + 0.5) / (of_hits + 1), (wrong * of_wrong + 0.5) / (of_wrong + 1)
        found.append(hits - np.sqrt(hits * (1 - hits) / of_hits))
        alarms.append(wrong + np.sqrt(wrong * (1 - wrong) / of_wrong))
    return np.maximum(np.concatenate(found), 0.0), np.minimum(np.concatenate(alarms), 1.0)


def _method(scores: Floats, truth: Flags, limit: Limit, fresh: int) -> BoundMethod:
    """Return the bound method that most often refutes an inequality on resampled scores; the choice proves nothing.

    A method that gives the better bound from many scores may prove nothing from few: with 120 scores each under D and
    D', the order statistic gives no epsilon above 0 at delta 0.38 and this confidence, even for normal scores with a
    shift of 3 standard deviations. So each method is applied to bootstrap samples of the number of fresh scores, at the
    lowest and the highest confidence that may be needed, which depends on the number of tested distinguishers.
    """
    methods = METHODS if limit.delta < _LARGE_DELTA else METHODS[::-1]
    count, draws = min(fresh, _MOST_TRIED), generator(0, Purpose.BOUND_CHOICE)
    drawn = [(draws.choice(scores[truth], count), draws.choice(scores[~truth], count)) for _ in range(_TRIED)]

    def success(method: BoundMethod) -> tuple[float, float]:
        bounds = [
            epsilon_lower_bound(*pair, limit.delta, confidence, method).epsilon
            for pair in drawn
            for confidence in _RANKING_CONFIDENCES
        ]
        return float(np.mean(np.array(bounds) > limit.epsilon)), float(np.mean(bounds))

    return max(methods, key=success)


def _expected_epsilon(
    found: Floats, alarms: Floats, delta: float, fresh: int, quantile: float = _RANKING_QUANTILE
) -> float:
    """Return the approximate epsilon that fresh trials of each truth will prove for a rule, at its best threshold."""
    # `found` and `alarms` are at each threshold the shares of trials of one truth that the rule calls rightly, and of
    # the other that it mistakes for it; `quantile` standard errors are lost on either rate. Below 0 for none.
    if not found.size:
        return -math.inf
    lost = quantile / math.sqrt(fresh)
    at_least = found - lost * np.sqrt(found * (1 - found)) - delta
    at_most = alarms + lost * np.sqrt(alarms * (1 - alarms)) + lost**2
    return float(np.max(np.log(np.maximum(at_least, 1e-300) / at_most)))


def least_shift(limit: Limit, trials: int, level: float) -> float:
    """Return the smallest shift of normal releases, in standard deviations, at which tests usually refute the limit.

    Usually means in about nine of ten audits (simulated in `tests/black_box`). The result is infinite if no shift is
    enough.

    Parameters
    ----------
    limit
        An inequality that the claim implies.
    trials
        Number of fresh trials. Four fifths of them enter the bound, half with D and half with D'.
    level
        One minus the confidence of the bound, above 0 and below 0.5.
    """
    quantile = float(ndtri(1 - level / 2)) + _POWER
    fresh = max(1, int(0.4 * trials))

    def is_hidden(mu: float) -> bool:
        found = ndtr(mu + ndtri(_RATES))
        return _expected_epsilon(found, _RATES, limit.delta, fresh, quantile) <= limit.epsilon

    return math.inf if is_hidden(_SURE) else last_true(is_hidden, 0.0, _SURE)


def _cautious_shift(one: Floats, zero: Floats) -> float:
    """Return the shift of two unit-variance normal distributions with the scores' AUC, less one standard error."""
    if np.min(one) > np.max(zero):
        spread = math.sqrt((np.var(one) + np.var(zero)) / 2)
        gap = float(np.mean(one) - np.mean(zero))
        return min(_SURE, gap / spread if spread > gap / _SURE else _SURE)
    ordered, pairs = rankdata(np.concatenate([one, zero])), one.size * zero.size
    area = (ordered[: one.size].sum() - one.size * (one.size + 1) / 2) / pairs
    shift = math.sqrt(2) * float(ndtri(min(max(area, 0.5 / pairs), 1 - 0.5 / pairs)))
    return max(0.0, shift - math.sqrt(1 / one.size + 1 / zero.size))


def _best_threshold(scores: Floats, present: Flags) -> float:
    """Return the score threshold with the highest accuracy."""
    order = np.argsort(scores)
    ordered, truth = scores[order], present[order]
    right = np.concatenate([[truth.sum()], truth.sum() - np.cumsum(truth) + np.cumsum(~truth)])
    # Between equal scores there is no threshold.
    right[1:-1][ordered[1:] == ordered[:-1]] = -1
    best = int(np.argmax(right))
    if best == 0:
        return float(ordered[0]) - 1.0
    return float(ordered[-1]) + 1.0 if best == len(ordered) else float((ordered[best - 1] + ordered[best]) / 2)
