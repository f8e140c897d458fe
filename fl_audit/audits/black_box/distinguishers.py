"""Distinguishers: every group of features of every scenario, ranked on trials that do not count as evidence.

Rules turn features into one score. They are learned on trials that serve no other purpose.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fl_audit.arrays import Flags, Floats
from fl_audit.audits.black_box.claim import Limit
from fl_audit.audits.black_box.features import LOW_BITS, feature_groups
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
    """Learn the linear rule that best separates D from D' if both are normal with the same spread (Fisher's).

    The rule gives a score to each new trial; where no column varies, all scores are 0.

    Parameters
    ----------
    features
        Features of each trial, finite, shape (trials, columns).
    present
        Whether D was used in each trial, shape (trials,); both cases have to occur.
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
    """Return the sign of each column's mean under D minus that under D'; a column without errors needs no more."""
    return np.asarray(np.sign(columns[present].mean(axis=0) - columns[~present].mean(axis=0)))


def _weights(columns: Floats, present: Flags) -> Floats:
    """Return the weights of Fisher's linear discriminant for columns with standard deviation 1 within each group.

    `present` says for each row whether D was used, and so to which of the two groups it belongs.
    """
    if columns.shape[1] == 1:
        return _signs(columns, present)
    # With few trials for so many columns their correlations are hardly known, and are drawn towards none.
    shrinkage = 1e-6 if len(columns) >= 10 * columns.shape[1] else "auto"
    rule = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.5, 0.5])
    rule.fit(columns, present.astype(int))
    return np.asarray(rule.coef_[0])


@dataclass(frozen=True)
class Distinguisher:
    """A way to tell D from D', to be tested on trials of its own."""

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
    """Return the best distinguisher over all groups of features, and the best of those that use low bits alone.

    The rules are learned from half of the trials and ranked on the other half; then the best are learned from all
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
        The inequalities that follow from the claim.
    fresh
        Number of fresh trials that may test a distinguisher; few trials prove little at a small delta.
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
    """Return a mask of every second trial with D, and of every second one with D'.

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
    """Return the expected margin over a limit, and that limit, by the shift of the scores or by their tails.

    Parameters
    ----------
    scores
        Score of each trial, shape (trials,).
    truth
        Whether D was used in each trial, shape (trials,); both cases have to occur.
    limits
        The inequalities that follow from the claim.
    fresh
        Number of fresh trials with D, and as many with D'.
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
    """Return hit and false alarm rates at thresholds in both directions, each worsened by one standard error."""
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
    """Return the bound that refutes a limit most often on fresh scores like these; this choice certifies nothing.

    A bound that proves more where scores are many may prove nothing where they are few: of 120 scores of each truth the
    order statistic shows no epsilon above 0 at delta .38 and this confidence, even where a normal distribution is
    shifted by 3 spreads. So each bound is tried on as many scores as there will be, drawn from these, and at the lowest
    and the highest confidence that it may be asked for, which depends on the number of distinguishers that are tested.
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
    """Return the smallest shift, in spreads of normal releases, with which fresh trials mostly refute a limit.

    Mostly means in about nine of ten audits that follow it (simulated in `tests/black_box`). The shift is infinite
    where no shift refutes the limit.

    Parameters
    ----------
    limit
        An inequality that follows from the claim.
    trials
        Number of fresh trials. Four fifths of them measure, half with D and half with D'.
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
    """Return the shift of two normal distributions with this area under the ROC curve, less one standard error."""
    if np.min(one) > np.max(zero):
        spread = math.sqrt((np.var(one) + np.var(zero)) / 2)
        gap = float(np.mean(one) - np.mean(zero))
        return min(_SURE, gap / spread if spread > gap / _SURE else _SURE)
    ordered, pairs = rankdata(np.concatenate([one, zero])), one.size * zero.size
    area = (ordered[: one.size].sum() - one.size * (one.size + 1) / 2) / pairs
    shift = math.sqrt(2) * float(ndtri(min(max(area, 0.5 / pairs), 1 - 0.5 / pairs)))
    return max(0.0, shift - math.sqrt(1 / one.size + 1 / zero.size))


def _best_threshold(scores: Floats, present: Flags) -> float:
    """Return the score threshold at which the most trials are guessed right."""
    order = np.argsort(scores)
    ordered, truth = scores[order], present[order]
    right = np.concatenate([[truth.sum()], truth.sum() - np.cumsum(truth) + np.cumsum(~truth)])
    # Between equal scores there is no threshold.
    right[1:-1][ordered[1:] == ordered[:-1]] = -1
    best = int(np.argmax(right))
    if best == 0:
        return float(ordered[0]) - 1.0
    return float(ordered[-1]) + 1.0 if best == len(ordered) else float((ordered[best - 1] + ordered[best]) / 2)
