"""Epsilon*, a model's privacy risk, by definition 2 of Negoescu et al. 2023, from error rates or observed losses.

An attack with a loss threshold classifies a record as a member if its loss is at most the threshold. FPR is the share
of population records classified as members, and FNR the share of members that are not. The empirical Epsilon* uses
every observed loss as a threshold. Epsilon* is the logarithm of the largest of several ratios of error rates. The
largest ratios occur at rates near 0 and 1, where a single loss decides. The paper therefore ignores thresholds with
error rates beyond a stability cut (appendix 8.1: 0.001 and 0.999).

Epsilon* should be read together with the results of simple threshold attacks: the area under the ROC curve (AUC), the
TPR at a small FPR (Carlini et al. 2022), and the advantage TPR - FPR of the threshold at the mean loss of members (Yeom
et al. 2018).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import hypergeom

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.released_model.parametric_star import checked_pair, require_cut, require_star_delta
from fl_audit.released_model.star_methods import EMPIRICAL_CUT
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class ThresholdCounts:
    """For each threshold, the number of members' losses and of population losses that are at or below it.

    A loss-threshold attack calls a record a member if its loss is at or below the threshold.
    """

    thresholds: Floats  # all losses of both sets, ascending, shape (..., thresholds)
    members: Integers  # number of members' losses at or below each threshold, same shape
    population: Integers  # number of population losses at or below each threshold, shape (..., thresholds)
    # Whether a threshold is the last of several equal ones. Only then do the counts include all losses of this value,
    # as the classification with this threshold does.
    last: Flags
    member_total: int  # number of losses of members
    population_total: int  # number of losses of the population

    @property
    def fpr(self) -> Floats:
        """False-positive rate of each threshold (population records classified as members), shape (..., thresholds)."""
        return np.asarray(self.population / self.population_total, dtype=np.float64)

    @property
    def fnr(self) -> Floats:
        """False-negative rate of each threshold (members not classified as such), shape (..., thresholds)."""
        return np.asarray((self.member_total - self.members) / self.member_total, dtype=np.float64)


def threshold_counts(member_losses: Floats, population_losses: Floats) -> ThresholdCounts:
    """Return the numbers of losses at or below every threshold, where the thresholds are all losses of both sets."""
    m = member_losses.shape[-1]
    losses = np.concatenate([member_losses, population_losses], axis=-1)
    order = np.argsort(losses, axis=-1)
    thresholds = np.take_along_axis(losses, order, axis=-1)
    members = np.cumsum(order < m, axis=-1)
    last = np.ones(losses.shape, dtype=np.bool_)
    last[..., :-1] = thresholds[..., 1:] > thresholds[..., :-1]
    population = np.arange(1, losses.shape[-1] + 1) - members
    return ThresholdCounts(thresholds, members, population, last, m, losses.shape[-1] - m)


def definition_ratios(fpr: Floats, tnr: Floats, fnr: Floats, tpr: Floats, delta: float) -> Floats:
    """Return the largest of four ratios of error rates at each threshold, at least 0.

    They are (TNR - delta) / FNR, (TPR - delta) / FPR, (FPR - delta) / TPR and (FNR - delta) / TNR, by definition 2 of
    Negoescu et al. 2023. All arrays have the same shape.
    """
    return largest_ratio(((tnr, fnr), (tpr, fpr), (fpr, tpr), (fnr, tnr)), delta)


def largest_ratio(pairs: Iterable[tuple[Floats, Floats]], delta: float) -> Floats:
    """Return the largest ratio (over - delta) / under among pairs of arrays, element by element.

    A pair counts as 0 where `over` <= delta.

    Shapes: `pairs` (over, under).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [np.where(over > delta, (over - delta) / under, 0.0) for over, under in pairs]
    return np.asarray(np.maximum.reduce(ratios), dtype=np.float64)


def empirical_epsilon_star(
    member_losses: ArrayLike, population_losses: ArrayLike, delta: float, cut: float = EMPIRICAL_CUT
) -> Floats:
    """Return the empirical Epsilon* of each model, shape (...); every observed loss is a threshold.

    Epsilon* is infinite if an admitted threshold (see `cut`) separates the sets: all losses of one set are on one side,
    and more than a share delta of the other set's losses are on the other side.

    `cut`: If there is none (the sets do not overlap, or are constant), all are admitted, since Epsilon* would otherwise
    hide a perfect attack.
    """
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    require_star_delta(delta)
    require_cut(cut)
    return epsilon_star_of_counts(threshold_counts(members, population), delta, cut)


def epsilon_star_of_counts(counts: ThresholdCounts, delta: float, cut: float) -> Floats:
    """Return the empirical Epsilon* of each model, shape (...), from counts of losses.

    The same counts serve for several cuts, so that losses are sorted only once.
    """
    fpr = counts.fpr
    fnr = counts.fnr
    tpr = counts.members / counts.member_total
    tnr = (counts.population_total - counts.population) / counts.population_total
    is_admitted = within_cut(fpr, fnr, cut) & counts.last
    is_admitted = np.where(is_admitted.any(axis=-1, keepdims=True), is_admitted, counts.last)
    ratios = np.where(is_admitted, definition_ratios(fpr, tnr, fnr, tpr, delta), 0.0)
    return np.asarray(np.log(np.maximum(ratios.max(axis=-1), 1.0)), dtype=np.float64)


def within_cut(fpr: Floats, fnr: Floats, cut: float) -> Flags:
    """Return a mask, true where FPR and FNR both lie above `cut` and below 1 - `cut`; all true for a cut of 0."""
    if cut == 0:
        return np.ones(fpr.shape, dtype=np.bool_)
    low, high = np.minimum(fpr, fnr), np.maximum(fpr, fnr)
    return np.asarray((low > cut) & (high < 1 - cut), dtype=np.bool_)


@dataclass(frozen=True)
class LossAttackResults:
    """Results of attacks that classify a record as a member if its loss is at most a threshold.

    All arrays have the same shape (...), with one entry for each attacked model.
    """

    # Probability that a member's loss is smaller than the loss of a population record, where ties count half; from 0 to
    # 1, and 1/2 without a leak.
    auc: Floats
    tpr_at_fpr_0001: Floats  # largest TPR of a threshold whose FPR is at most 0.1 %, from 0 to 1
    tpr_at_fpr_001: Floats  # largest TPR of a threshold whose FPR is at most 1 %, from 0 to 1
    yeom_advantage: Floats  # TPR - FPR at the mean loss of members, from -1 to 1
    loss_gap: Floats  # mean loss of the population minus mean loss of members, in the unit of the losses


def loss_attacks(member_losses: ArrayLike, population_losses: ArrayLike) -> LossAttackResults:
    """Return AUC, TPR at small FPR, advantage and loss gap of simple loss-threshold attacks on each model.

    Examples
    --------
    >>> found = loss_attacks([0.1, 0.2], [0.2, 0.4])
    >>> float(found.auc), float(found.yeom_advantage), round(float(found.loss_gap), 2)
    (0.875, 0.5, 0.15)
    """
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    counts = threshold_counts(members, population)
    gap = np.asarray(population.mean(axis=-1) - members.mean(axis=-1), dtype=np.float64)
    return LossAttackResults(
        auc=area_under_roc(counts),
        tpr_at_fpr_0001=_tpr_at_fpr(counts, 0.001),
        tpr_at_fpr_001=_tpr_at_fpr(counts, 0.01),
        yeom_advantage=yeom_advantage(members, population),
        loss_gap=gap,
    )


def yeom_advantage(member_losses: ArrayLike, population_losses: ArrayLike) -> Floats:
    """Return TPR - FPR of the rule that calls a record a member if its loss is at most the members' mean loss.

    It equals 2 P(right) - 1 if members and nonmembers are tested equally often.

    Source: Yeom, Giacomelli, Fredrikson & Jha 2018, the adversary that knows the average training loss. As in Jayaraman
    & Evans 2019, a record whose loss equals the threshold is called a member.
    """
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    # The mean is clipped to the range of the losses because of rounding.
    mean = np.clip(members.mean(axis=-1), members.min(axis=-1), members.max(axis=-1))[..., np.newaxis]
    return np.asarray((members <= mean).mean(axis=-1) - (population <= mean).mean(axis=-1), dtype=np.float64)


@dataclass(frozen=True)
class OutstandingMembers:
    """The members that the loss attack finds with few false alarms, and how many it would find by chance."""

    indices: tuple[int, ...]  # places of these members among the members' losses, from 0, ascending
    fpr: float  # largest share of population records that the attack classifies as members, from 0 to below 1
    expected: float  # mean number of such members where members are drawn like the population
    p_value: float  # probability of at least so many such members where members are drawn like the population


def outstanding_members(member_losses: ArrayLike, population_losses: ArrayLike, fpr: float) -> OutstandingMembers:
    """Return the members below the largest loss threshold with at most a given false-positive rate, of one model.

    With k false alarms allowed among p population losses, a member lies below the (k + 1)-th smallest population loss
    by chance with probability (k + 1) / (p + 1). At least c members lie there if at most k of the c + k smallest losses
    are of the population: a hypergeometric probability.

    Parameters
    ----------
    member_losses
        Losses on members, finite and at least 0, shape (m,).
    population_losses
        Losses on a sample of the population, finite and at least 0, shape (p,).
    fpr
        Largest false-positive rate, from 0 to below 1.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or the rate is out of its range.

    Examples
    --------
    >>> outstanding_members([0.1, 0.5, 0.05, 0.9], [0.2, 0.4, 0.6, 0.8], 0.0).indices
    (0, 2)
    """
    require_number("fpr is", fpr, "numbers from 0 to below 1")
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    counts = threshold_counts(members, population)
    is_allowed = _within_fpr(counts, fpr)
    below = members <= counts.thresholds[is_allowed].max() if is_allowed.any() else np.zeros(members.shape, np.bool_)
    alarms = int(_false_alarms(counts, fpr))
    members_found = int(below.sum())
    m = counts.member_total
    p = counts.population_total
    return OutstandingMembers(
        indices=tuple(np.flatnonzero(below).tolist()),
        fpr=fpr,
        expected=m * (alarms + 1) / (p + 1),
        p_value=float(hypergeom.cdf(alarms, m + p, p, members_found + alarms)),
    )


def _false_alarms(counts: ThresholdCounts, fpr: float) -> float:
    """Return the largest number of population losses below a threshold whose FPR is at most `fpr`."""
    # The tolerance of 1e-12 keeps rounding from making 3 of 3000 larger than 0.001.
    return float(np.floor(fpr * counts.population_total * (1 + 1e-12)))


def _within_fpr(counts: ThresholdCounts, fpr: float) -> Flags:
    return np.asarray(counts.last & (counts.population <= _false_alarms(counts, fpr)), dtype=np.bool_)


def _tpr_at_fpr(counts: ThresholdCounts, fpr: float) -> Floats:
    """Return the largest TPR of thresholds whose FPR is at most `fpr`, for each model, shape (...)."""
    # Rates between two thresholds are not interpolated: for p population losses, an FPR below 1/p means no false alarm.
    return np.asarray(
        np.where(_within_fpr(counts, fpr), counts.members, 0).max(axis=-1) / counts.member_total, dtype=np.float64
    )


def area_under_roc(counts: ThresholdCounts) -> Floats:
    """Return the area under the ROC curve by the trapezoidal rule, for each model, shape (...).

    It is the probability that a member's loss is smaller than the loss of a population record; ties count half.
    """
    # A threshold that is not the last of several equal ones repeats the corner of the curve before it.
    points = (np.where(counts.last, counts_of_set, 0) for counts_of_set in (counts.population, counts.members))
    x, y = (np.maximum.accumulate(counts_of_set, axis=-1) for counts_of_set in points)
    y0 = np.concatenate([np.zeros_like(y[..., :1]), y[..., :-1]], axis=-1)
    area = (np.diff(x, axis=-1, prepend=0) * (y + y0)).sum(axis=-1) / 2
    return np.asarray(area / (counts.member_total * counts.population_total), dtype=np.float64)
