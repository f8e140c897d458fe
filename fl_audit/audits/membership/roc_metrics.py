"""Rates of scores that distinguish members from nonmembers: ROC, AUC, TPR at small FPR, balanced accuracy, intervals.

Scores of one trial share its model, so they are not independent: a thousand records of three trials say little about a
fourth trial. Therefore the bootstrap resamples **trials**, each with all its targets.

**The AUC compares scores of the same trial**, as is usual when models are attacked one by one and results are averaged.
A coin decides for each target of a trial whether it is a member. The attack computes a trial's scores without looking
at this trial's coins. (A white-box attack looks at half of them, and judges the targets of the other half.) Therefore,
without a leak, the AUC of a trial has the mean 1/2 over coins, for any attack and any shadow trials.

Pairs of two trials that are each other's shadows would bias the AUC. Suppose that trial w used a target and trial v did
not. The score of w is computed without w's own value among the trials that used the target, and comes out too low. The
score of v is computed without v's value among the other trials, and comes out too high. On such pairs alone, without
any leak, online LiRA has an AUC of 0.41, 0.43 and 0.44 with 24, 48 and 96 trials. This biases an AUC over all pairs by
about (0.41 - 0.5) / targets. The ROC and the TPR at a small FPR need more records than a trial has, so for these all
trials share a threshold.

**The AUC of insiders compares scores of different trials.** Each insider knows all coins of its trial but one, so the
scores of two insiders in one trial reveal each other's coins. They also share the noise of the trial. For example, if
the contributions of two targets are equal, the noise cancels in the comparison of their scores, and a member always
gets a higher score than a nonmember of the same trial. But the guarantee limits what a single insider learns in
repeated trials. If all trials share a threshold, the error rates of each insider obey the guarantee. The average of
these error rates over insiders obeys it, too, because the trade-off curve is convex. Therefore `largest_auc` is an
upper bound on this AUC. For the same reason insiders call a target a member if its log-odds are above 0, and not if
they are above the median of the trial.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtr, ndtri, stdtrit
from scipy.stats import rankdata

from fl_audit.array_types import Floats
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.statistics.interval_estimates import IntervalEstimate
from fl_audit.value_checks import require_number

SMALL_RATES = (0.001, 0.01)  # the false-positive rates at which the TPR is reported (Carlini et al. 2022)
_CELLS_AT_ONCE = 500_000
_ROOM = 1.5
"""Factor on the allowed false positives, which gives the number of top scores that the bootstrap ranks at first."""


@dataclass(frozen=True)
class RocCurve:
    """The ROC curve for the scores of all trials together.

    The curve is stored as its corners, which are joined by straight lines.
    """

    fpr: Floats  # share of nonmembers at or above each threshold, ascending from 0 to 1, shape (corners,)
    tpr: Floats  # share of members at or above each threshold, ascending from 0 to 1, shape (corners,)

    @property
    def area(self) -> float:
        """Area under the curve, from 0 to 1.

        It counts all pairs of a member and a nonmember. `RocSummary.auc` counts only pairs of the same trial, or for
        insiders only pairs of different trials.
        """
        return float(np.trapezoid(self.tpr, self.fpr))


@dataclass(frozen=True)
class RocSummary:
    """AUC, TPR at FPR 0.1 %, TPR at FPR 1 % and balanced accuracy of an attack, each from 0 to 1 with an interval."""

    # Share of pairs of a member and a nonmember in which the member has the higher score, ties counting half; 1/2
    # without a leak. The pairs are of the same trial, and for insiders of different trials.
    auc: IntervalEstimate
    # Largest TPR of a threshold whose FPR is at most 0.1 %, not interpolated: with fewer than 1000 nonmembers no false
    # positive is allowed.
    tpr_at_fpr_0001: IntervalEstimate
    # Largest TPR of a threshold whose FPR is at most 1 %, not interpolated.
    tpr_at_fpr_001: IntervalEstimate
    # (TPR + TNR) / 2 of the rule that calls a target a member if its score is above its trial's median, or for insiders
    # above 0. The best of all thresholds would be above 1/2 even without a leak.
    balanced_accuracy: IntervalEstimate
    confidence: float  # joint confidence of all four intervals, approximate because of the bootstrap
    trials: int  # number of trials
    members: int  # number of members, summed over trials
    others: int  # number of nonmembers, summed over trials


def roc_curve(scores: ArrayLike, membership: TargetMembership) -> RocCurve:
    """Return the ROC curve of the scores of all trials together.

    Shapes: `scores` (trials, targets).
    """
    ranked = _RankedScores(_checked(scores, membership), membership, 0.0)
    hits, alarms = (count[0, ranked.last] for count in ranked.counts(np.ones((1, membership.trials))))
    return RocCurve(fpr=np.append(0.0, alarms / alarms[-1]), tpr=np.append(0.0, hits / hits[-1]))


def membership_rates(
    scores: ArrayLike,
    membership: TargetMembership,
    generator: np.random.Generator,
    confidence: float = 0.95,
    resamples: int = 1000,
    shadows_of_each_other: bool = True,
    of_insiders: bool = False,
) -> RocSummary:
    """Return the rates of an attack, with intervals from a bootstrap over trials.

    The half-width of an interval is the largest of three numbers: the distances to two bootstrap quantiles, and t
    standard errors. Here t is the quantile of Student's distribution with W - 1 degrees of freedom for W trials. The
    standard error is that of the bootstrap times sqrt(W / (W - 1)). The bootstrap quantiles are those at Phi(-t sqrt(W
    / (W - 1))) and at one minus this value, which widens them for few trials (Hesterberg 2015, What teachers should
    know about the bootstrap, section 3.5).

    If trials are each other's shadows, their scores are dependent, and the interval is made wider by the square root of
    2. Without a leak, the variance of the mean over trials is then at most twice the variance that resampled trials
    show, to first order (Cauchy-Schwarz). With a leak, the interval is wider than necessary.

    Shapes: `scores` (trials, targets).

    `confidence`: Each interval has a quarter of the error probability (Bonferroni).

    `of_insiders`: The interval of the AUC then uses the jackknife over trials; it is 0 to 1 with fewer than three
    trials.
    """
    values = _checked(scores, membership)
    trials = membership.trials
    require(trials >= 2, f"there are {trials} trials: accepted are 2 or more, for a trial is what is drawn again")
    require_number("confidence is", confidence, "numbers above 0.5 and below 1")
    require_number("number of resamples is", resamples, "whole numbers from 100")
    ranked = _RankedScores(values, membership, 0.0 if of_insiders else np.median(values, axis=1, keepdims=True))
    require(bool(ranked.pairs.any()), "no trial has members and others: accepted is one at least, to compare scores")
    point = ranked.rates(np.ones((1, trials)))[0]
    weights = generator.multinomial(trials, np.full(trials, 1 / trials), size=resamples).astype(np.float64)
    step = max(1, _CELLS_AT_ONCE // ranked.top)
    rates_drawn = np.concatenate([ranked.rates(weights[start : start + step]) for start in range(0, resamples, step)])
    stretch = math.sqrt(2) if shadows_of_each_other else 1.0
    level = (1 - confidence) / point.size
    reach = math.sqrt(trials / (trials - 1)) * float(stdtrit(trials - 1, 1 - level / 2))
    below, above = np.nanquantile(rates_drawn, [float(ndtr(-reach)), 1 - float(ndtr(-reach))], axis=0)
    half = stretch * np.maximum(reach * np.nanstd(rates_drawn, axis=0), np.maximum(point - below, above - point))
    low, high = np.clip(point - half, 0, 1), np.clip(point + half, 0, 1)
    auc, tpr_0001, tpr_001, balanced = (
        IntervalEstimate(*map(float, ends)) for ends in zip(point, low, high, strict=True)
    )
    if of_insiders:
        auc = _share_of(_areas_between_trials(values, membership), level)
    members = int(membership.is_in.sum())
    return RocSummary(auc, tpr_0001, tpr_001, balanced, confidence, trials, members, values.size - members)


def _areas_between_trials(scores: ArrayLike, membership: TargetMembership) -> Floats:
    """Return jackknife pseudo-values of the trials, (trials,), whose mean is the AUC over pairs of different trials.

    A value is NaN if no pairs remain without its trial.
    """
    # Of the P pairs of different trials, let T have the member's score higher. Let p_w and t_w be the same numbers for
    # the pairs with trial w. The value of w among W trials is W T/P - (W - 1) (T - t_w) / (P - p_w) (Tukey's
    # pseudo-values of a U-statistic).
    values = _checked(scores, membership)
    is_in = membership.is_in
    members = np.sort(values[is_in])
    nonmembers = np.sort(values[~is_in])

    def beside(these: Floats, those: Floats) -> Floats:
        """Return, for each number in `these`, how many numbers in `those` are smaller; ties count one half."""
        return (np.searchsorted(those, these, "left") + np.searchsorted(those, these, "right")) / 2

    below = np.where(is_in, beside(values, nonmembers), 0.0).sum(axis=1)
    above = np.where(is_in, 0.0, len(members) - beside(values, members)).sum(axis=1)
    size = is_in.sum(axis=1)
    nonmember_count = (~is_in).sum(axis=1)
    rank_sums = np.where(is_in, rankdata(values, axis=1), 0.0).sum(axis=1) - size * (size + 1) / 2
    won = below + above - 2 * rank_sums
    pairs = size * (len(nonmembers) - nonmember_count) + nonmember_count * (len(members) - size)
    all_won = won.sum() / 2
    all_pairs = pairs.sum() / 2
    trials = len(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        without_trial = (all_won - won) / (all_pairs - pairs)
        return np.asarray(trials * all_won / all_pairs - (trials - 1) * without_trial, dtype=np.float64)


def _share_of(values: Floats, level: float) -> IntervalEstimate:
    """Return the mean of `values`, one for each trial, as a share with an interval of confidence 1 - `level`.

    If a value is NaN, the estimate is 0.5 and the interval 0 to 1.
    """
    # The interval of Clopper and Pearson for the number of independent trials with the same standard error, corrected
    # by the quantile of Student's distribution (Korn & Graubard 1998). If the error is 0, it is the number of trials.
    # Student's own interval covers too seldom if few pairs are out of order. Coverage at 98.75 % with 10 to 100 trials
    # and mu from 0.3 to 3: 95.3 % to 100 %, least if all noise is shared and the AUC is 0.98.
    trials = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    if not math.isfinite(error):
        return IntervalEstimate(0.5, 0.0, 1.0)
    share = float(np.clip(values.mean(), 0.0, 1.0))
    freedom = float(ndtri(1 - level / 2) / stdtrit(trials - 1, 1 - level / 2)) ** 2
    attempts = share * (1 - share) / error**2 * freedom if error > 0 and 0 < share < 1 else float(trials)
    right = attempts * share
    wrong = attempts * (1 - share)
    low = float(betaincinv(right, wrong + 1, level / 2)) if right > 0 else 0.0
    high = float(betaincinv(right + 1, wrong, 1 - level / 2)) if wrong > 0 else 1.0
    return IntervalEstimate(share, low, high)


class _RankedScores:
    """All scores in descending order, prepared to compute rates for many sets of weights of the trials."""

    def __init__(self, values: Floats, membership: TargetMembership, threshold: Floats | float) -> None:
        order = np.argsort(-values.ravel(), kind="stable")
        ordered = values.ravel()[order]
        self.last = np.append(ordered[1:] != ordered[:-1], True)
        self._trial = order // membership.targets
        self._is_in = membership.is_in.ravel()[order]
        alarms = np.cumsum(~self._is_in)
        self.top = 1 + int(np.searchsorted(alarms[:-1], _ROOM * SMALL_RATES[-1] * alarms[-1], side="right"))
        called = values > threshold
        self._size = membership.is_in.sum(axis=1), (~membership.is_in).sum(axis=1)
        self._right = (called & membership.is_in).sum(axis=1), (~called & ~membership.is_in).sum(axis=1)
        members, nonmember_count = self._size
        self.pairs = members * nonmember_count
        ranks = np.where(membership.is_in, rankdata(values, axis=1), 0.0)
        self._won = ranks.sum(axis=1) - members * (members + 1) / 2

    def counts(self, weights: Floats, top: int | None = None) -> tuple[Floats, Floats]:
        """Return how many members, and how many nonmembers, have each score or a higher one, both (resamples, scores).

        A trial counts with its weight in each resample, `weights`, (resamples, trials). Only the `top` highest scores
        are used; None uses all.
        """
        weight = weights[:, self._trial[:top]]
        is_in = self._is_in[:top]
        return np.cumsum(weight * is_in, axis=1), np.cumsum(weight * ~is_in, axis=1)

    def _top_counts(self, weights: Floats, nonmember_count: Floats) -> tuple[Floats, Floats]:
        """Return the results of `counts` at the highest distinct scores, which suffice for the TPR at FPR 1 %.

        The last of these scores has an FPR above 1 % in every resample. `nonmember_count` are the weighted numbers of
        all nonmembers, (resamples,).
        """
        all_scores = len(self._trial)
        most_alarms = SMALL_RATES[-1] * (1 + 1e-12) * nonmember_count
        count = self.top
        while True:
            hits, alarms = self.counts(weights, count)
            if count == all_scores or bool(((alarms[:, -1] > most_alarms) | (nonmember_count == 0)).all()):
                return hits[:, self.last[:count]], alarms[:, self.last[:count]]
            count = min(all_scores, 2 * count)

    def rates(self, weights: Floats) -> Floats:
        """Return AUC, TPR at FPR 0.1 % and at 1 %, and balanced accuracy, (resamples, 4).

        They are NaN in a resample without members or without nonmembers.
        """
        members, nonmember_count = (weights @ size for size in self._size)
        hits, alarms = self._top_counts(weights, nonmember_count)
        with np.errstate(invalid="ignore", divide="ignore"):
            # The rank sum of Mann and Whitney in each trial.
            rates_found = [weights @ self._won / (weights @ self.pairs)]
            for rate in SMALL_RATES:
                # The slack keeps rounding from turning 3 of 3000 into more than 0.001.
                allowed = alarms <= (rate * nonmember_count * (1 + 1e-12))[:, np.newaxis]
                rates_found.append(np.where(allowed, hits, 0.0).max(axis=1, initial=0.0) / members)
            shares = [weights @ right / (weights @ size) for right, size in zip(self._right, self._size, strict=True)]
        defined = (members > 0) & (nonmember_count > 0)
        return np.where(defined[:, np.newaxis], np.stack([*rates_found, sum(shares) / 2], axis=1), np.nan)


def _checked(scores: ArrayLike, membership: TargetMembership) -> Floats:
    """Return scores as float64; raise `InputError` if they do not fit, are NaN, or lack members or nonmembers."""
    values = np.asarray(scores, dtype=np.float64)
    shape = (membership.trials, membership.targets)
    require(values.shape == shape, f"scores have shape {values.shape}: accepted is {shape}, trials and targets")
    require(not bool(np.isnan(values).any()), "scores contain NaN: accepted are numbers, of attacked trials alone")
    members = int(membership.is_in.sum())
    problem = f"there are {members} members and {values.size - members} others"
    require(0 < members < values.size, f"{problem}: accepted is at least one of each")
    return values
