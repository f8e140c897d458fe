"""Train distinguishers: rules that score a trial higher if it seems to be a trial with D, and lower for D'.

There is one rule for each scenario (the surroundings of a trial) and each group of features. Rules are trained and
ranked on search trials, which do not count as evidence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fl_audit.app_audits.claim_audit.claim import EpsilonDeltaLimit
from fl_audit.app_audits.claim_audit.features import LOW_BITS, MOST_CORRELATED, feature_groups
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.array_types import Flags, Floats
from fl_audit.randomness import Purpose, generator
from fl_audit.root_finding import last_true
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import epsilon_lower_bound

Rule = Callable[[Floats], Floats]  # from features (trials, columns) to scores (trials,): higher if D is more likely

IsOfTrialsAlone = Callable[[str, str], bool]
"""Function of a scenario and a number beside the model: whether only clients of the trials are known to report it."""

METHODS = (BoundMethod.ORDER_STATISTIC, BoundMethod.CLOPPER_PEARSON)
"""The bound methods that assume nothing about the distribution of the scores."""
_SURE = 12.0  # largest shift considered, in standard deviations; beyond it no two trials with D and D' are confused
_LARGE_DELTA = 0.03  # delta from which Clopper-Pearson is preferred if both methods do equally well
_RANKING_CONFIDENCES = (0.975, 0.995)
"""Confidences at which the bound methods are compared, as if several distinguishers were tested."""
_SEEMING_ERRORS = 2.0  # standard errors that TPR and FPR each lose before search trials seem to refute an inequality
_TRIED, _MOST_TRIED = 9, 500  # number of bootstrap samples, and the largest number of scores with D (or D') in one
_RANKING_QUANTILE = 2.3  # standard errors that TPR and FPR each lose in the expected bound from fresh trials
_POWER = 0.9  # further standard errors on TPR and FPR each, so that a shift is found in about nine of ten audits
_RATES = np.geomspace(1e-4, 0.5, 200)  # false-positive rates at which the expected bound is computed
_FLOOR = 1e-9
"""Smallest standard deviation that a column may have within D or D', as a share of the column's range."""


def learned_rule(features: Floats, present: Flags) -> Rule:
    """Train Fisher's linear discriminant, and return it as a function from features to scores.

    It is the best linear rule if D and D' give normal features of equal covariance. All scores are 0 if no feature
    varies.

    Shapes: `features` (trials, columns), `present` (trials,).
    """
    ones, zeros = features[present], features[~present]
    within = np.sqrt((ones.var(axis=0) + zeros.var(axis=0)) / 2)
    scale = np.maximum(within, _FLOOR * np.ptp(features, axis=0))
    is_varying = scale > 0
    if not np.any(is_varying):
        return lambda values: np.zeros(len(values))
    centre = features[:, is_varying].mean(axis=0)
    width = scale[is_varying]
    columns = (features[:, is_varying] - centre) / width
    certain = within[is_varying] == 0
    weights = _signs(columns, present) * certain if np.any(certain) else _weights(columns, present)
    return lambda values: np.asarray(((values[:, is_varying] - centre) / width) @ weights)


def _signs(columns: Floats, present: Flags) -> Floats:
    """Return the sign of each column's mean under D minus its mean under D', shape (columns,)."""
    return np.asarray(np.sign(columns[present].mean(axis=0) - columns[~present].mean(axis=0)))


def _weights(columns: Floats, present: Flags) -> Floats:
    """Return the coefficients of Fisher's linear discriminant for standardised columns, shape (columns,)."""
    if columns.shape[1] == 1:
        return _signs(columns, present)
    if columns.shape[1] > 2 * MOST_CORRELATED:  # each has an indicator of missing values
        return np.asarray(columns[present].mean(axis=0) - columns[~present].mean(axis=0))
    # Few trials determine the correlations of many columns poorly, so they are shrunk towards 0.
    shrinkage = 1e-6 if len(columns) >= 10 * columns.shape[1] else "auto"
    rule = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=[0.5, 0.5])
    rule.fit(columns, present.astype(int))
    return np.asarray(rule.coef_[0])


class FeatureSort(Enum):
    """Sort of the features of a distinguisher."""

    RELEASE = "the released model"
    LOW_BITS = "the low bits of the released model"
    BESIDE_MODEL = "a number beside the model"


@dataclass(frozen=True)
class Distinguisher:
    """A trained rule for one scenario and one group of features.

    A distinguisher also names the inequality of the claim that its rule is most likely to refute.
    """

    kind: str  # name of the scenario
    group: str  # name of the group of features, a key of `feature_groups`
    rule: Rule  # function from the features of this group to scores
    limit: EpsilonDeltaLimit  # the inequality of the claim that the rule is most likely to refute
    method: BoundMethod  # the bound method that refuted this inequality most often on resampled scores
    margin: float  # expected lower bound on epsilon minus the claimed epsilon; used only to rank distinguishers
    threshold: float  # score above which the guess is D
    # Whether the search trials that ranked the rule would refute the claim, if this were the only tested rule.
    seems_to_refute: bool = False
    sort: FeatureSort = FeatureSort.RELEASE  # sort of the features that the rule uses


def find_distinguishers(
    kind: str,
    transcripts: Transcripts,
    present: Flags,
    limits: tuple[EpsilonDeltaLimit, ...],
    fresh: int,
    is_of_trials_alone: IsOfTrialsAlone = lambda *_: False,
) -> list[Distinguisher]:
    """Return the best distinguisher of each sort for a scenario: by the release, by its low bits, by numbers beside it.

    Low bits are the last bits of floating-point numbers. A distinguisher by a number that is released beside the model
    is returned only if its margin is positive; it does not take the place of one by the release, whose noise and
    clipping would stay untested. Rules are trained on half of the trials and ranked on the other half. The best rules
    are then trained again on all trials. The distinguisher with the larger margin comes first. The margin is the
    expected bound on epsilon minus the claimed epsilon. Of numbers with equal margins, those that only clients of the
    trials report come last, since they refute nothing.

    Shapes: `present` (trials,), `limits` (epsilon, delta).
    """
    teaches = every_second(present)
    truth = present[~teaches]
    groups = feature_groups(transcripts)
    ranked = list[tuple[float, EpsilonDeltaLimit, str, Floats]]()
    for group, features in groups.items():
        scores = learned_rule(features[teaches], present[teaches])(features[~teaches])
        margin, limit = margin_of(scores, truth, limits, fresh // 2)
        ranked.append((margin, limit, group, scores))
    ranked.sort(key=lambda entry: (-entry[0], is_of_trials_alone(kind, entry[2])))
    best = dict[FeatureSort, tuple[float, EpsilonDeltaLimit, str, Floats]]()
    for entry in ranked:
        best.setdefault(sort_of(entry[2], transcripts), entry)
    distinguishers = []
    for sort, (margin, limit, group, scores) in best.items():
        if sort is FeatureSort.BESIDE_MODEL and margin <= 0:
            continue
        rule = learned_rule(groups[group], present)
        threshold = _best_threshold(rule(groups[group]), present)
        method = _method(scores, truth, limit, fresh // 2)
        refutes = _seems_to_refute(scores[truth], scores[~truth], limits)
        distinguishers.append(Distinguisher(kind, group, rule, limit, method, margin, threshold, refutes, sort))
    return sorted(distinguishers, key=lambda distinguisher: -distinguisher.margin)


def sort_of(group: str, transcripts: Transcripts) -> FeatureSort:
    """Return the sort of a group of features."""
    if group in LOW_BITS:
        return FeatureSort.LOW_BITS
    return FeatureSort.BESIDE_MODEL if transcripts.is_beside_model(group) else FeatureSort.RELEASE


def _seems_to_refute(ones: Floats, zeros: Floats, limits: tuple[EpsilonDeltaLimit, ...]) -> bool:
    """Return whether scores under D, `ones`, and under D', `zeros`, refute an inequality without further trials."""
    rates, alarms = _cautious_rates(ones, zeros, _SEEMING_ERRORS)
    return any(bool(np.any(rates - limit.delta > np.exp(limit.epsilon) * alarms)) for limit in limits)


def every_second(present: Flags) -> Flags:
    """Return a mask of every second trial with D and every second trial with D', shape (trials,).

    `present` is true for trials with D.
    """
    chosen = np.zeros(len(present), dtype=bool)
    for side in (True, False):
        chosen[np.flatnonzero(present == side)[::2]] = True
    return chosen


def margin_of(
    scores: Floats, truth: Flags, limits: tuple[EpsilonDeltaLimit, ...], fresh: int
) -> tuple[float, EpsilonDeltaLimit]:
    """Return the largest margin by which scores are expected to refute an inequality, and this inequality.

    The margin is the lower bound on epsilon that fresh trials are expected to prove, minus the claimed epsilon.

    Shapes: `scores` (trials,), `truth` (trials,), `limits` (epsilon, delta).
    """
    ones, zeros = np.sort(scores[truth]), np.sort(scores[~truth])
    mu = _cautious_shift(ones, zeros)
    shifted = (ndtr(mu + ndtri(_RATES)), _RATES)
    tails = _cautious_rates(ones, zeros)
    entries = []
    for limit in limits:
        by_shift, by_tail = (_expected_epsilon(*rates, limit.delta, fresh) for rates in (shifted, tails))
        # The last term orders distinguishers whose expected bounds are equal.
        entries.append((max(by_shift, by_tail) - limit.epsilon + 1e-6 * mu, limit))
    return max(entries, key=lambda entry: entry[0])


def _cautious_rates(ones: Floats, zeros: Floats, errors: float = 1.0) -> tuple[Floats, Floats]:
    """Return TPR and FPR at all thresholds, each made worse by `errors` standard errors, so that luck counts less.

    `ones` and `zeros` are the ascending scores under D and D'. Each threshold gives two tests: the first guesses D
    above the threshold, and the second guesses D' up to the threshold.
    """
    # Shares of the scores under D and under D' that exceed each threshold.
    thresholds = np.unique(np.concatenate([ones, zeros]))[:-1]
    shares = [1 - np.searchsorted(group, thresholds, side="right") / group.size for group in (ones, zeros)]
    # D is guessed above a threshold, or D' is guessed up to it.
    pairs = ((shares[0], ones.size, shares[1], zeros.size), (1 - shares[1], zeros.size, 1 - shares[0], ones.size))
    rates = []
    alarms = []
    for hits, of_hits, wrong, of_wrong in pairs:
        hits = (hits * of_hits + 0.5) / (of_hits + 1)
        wrong = (wrong * of_wrong + 0.5) / (of_wrong + 1)
        rates.append(hits - errors * np.sqrt(hits * (1 - hits) / of_hits))
        alarms.append(wrong + errors * np.sqrt(wrong * (1 - wrong) / of_wrong))
    return np.maximum(np.concatenate(rates), 0.0), np.minimum(np.concatenate(alarms), 1.0)


def _method(scores: Floats, truth: Flags, limit: EpsilonDeltaLimit, fresh: int) -> BoundMethod:
    """Return the bound method that refutes `limit` most often on bootstrap samples of the scores.

    The samples have the size of the test, because the method that is best with many scores may prove nothing with few.
    """
    methods = METHODS if limit.delta < _LARGE_DELTA else METHODS[::-1]
    count = min(fresh, _MOST_TRIED)
    draws = generator(0, Purpose.BOUND_CHOICE)
    resamples = [(draws.choice(scores[truth], count), draws.choice(scores[~truth], count)) for _ in range(_TRIED)]

    def success(method: BoundMethod) -> tuple[float, float]:
        bounds = [
            epsilon_lower_bound(*pair, limit.delta, confidence, method).epsilon
            for pair in resamples
            for confidence in _RANKING_CONFIDENCES
        ]
        return float(np.mean(np.array(bounds) > limit.epsilon)), float(np.mean(bounds))

    return max(methods, key=success)


def _expected_epsilon(
    rates: Floats, alarms: Floats, delta: float, fresh: int, quantile: float = _RANKING_QUANTILE
) -> float:
    """Return the epsilon that a test on 2 x `fresh` trials is expected to prove at the best threshold; may be negative.

    Each TPR (`rates`) and FPR (`alarms`) is first worsened by `quantile` standard errors.
    """

    if not rates.size:
        return -math.inf
    lost = quantile / math.sqrt(fresh)
    at_least = rates - lost * np.sqrt(rates * (1 - rates)) - delta
    at_most = alarms + lost * np.sqrt(alarms * (1 - alarms)) + lost**2
    return float(np.max(np.log(np.maximum(at_least, 1e-300) / at_most)))


def least_shift(limit: EpsilonDeltaLimit, trials: int, level: float) -> float:
    """Return the smallest shift between normal releases under D and D' with which nine of ten audits refute `limit`.

    The shift is in standard deviations of the release. It is infinite if even a shift of 12 is not enough.

    `trials`: Four fifths of them are used in the bound, half with D and half with D'.
    """
    quantile = float(ndtri(1 - level / 2)) + _POWER
    fresh = max(1, int(0.4 * trials))

    def is_hidden(mu: float) -> bool:
        powers = ndtr(mu + ndtri(_RATES))
        return _expected_epsilon(powers, _RATES, limit.delta, fresh, quantile) <= limit.epsilon

    return math.inf if is_hidden(_SURE) else last_true(is_hidden, 0.0, _SURE)


def _cautious_shift(ones: Floats, zeros: Floats) -> float:
    """Return a cautious estimate, at least 0, of the shift between the scores under D and under D'.

    The shift is given in standard deviations. It is computed from the AUC as if the scores were normal, and its
    standard error is subtracted. If the scores do not overlap, the shift is the difference of the means, at most 12.
    """
    if np.min(ones) > np.max(zeros):
        spread = math.sqrt((np.var(ones) + np.var(zeros)) / 2)
        gap = float(np.mean(ones) - np.mean(zeros))
        return min(_SURE, gap / spread if spread > gap / _SURE else _SURE)
    ordered = rankdata(np.concatenate([ones, zeros]))
    pairs = ones.size * zeros.size
    area = (ordered[: ones.size].sum() - ones.size * (ones.size + 1) / 2) / pairs
    shift = math.sqrt(2) * float(ndtri(min(max(area, 0.5 / pairs), 1 - 0.5 / pairs)))
    return max(0.0, shift - math.sqrt(1 / ones.size + 1 / zeros.size))


def _best_threshold(scores: Floats, present: Flags) -> float:
    """Return the threshold above which guessing D is right in most trials."""
    order = np.argsort(scores)
    ordered = scores[order]
    truth = present[order]
    right = np.concatenate([[truth.sum()], truth.sum() - np.cumsum(truth) + np.cumsum(~truth)])
    # No threshold separates equal scores.
    right[1:-1][ordered[1:] == ordered[:-1]] = -1
    best = int(np.argmax(right))
    if best == 0:
        return float(ordered[0]) - 1.0
    return float(ordered[-1]) + 1.0 if best == len(ordered) else float((ordered[best - 1] + ordered[best]) / 2)
