"""Definition 2 of Epsilon* (Negoescu et al. 2023) from error rates, and from the empirical distributions of losses.

A threshold on the loss calls a record a member where its loss is at most the threshold. FPR is the share of the
population that is called a member, FNR the share of members that is not. The empirical form tries every threshold that
the losses offer. The largest ratios are reached at rates near 0 and 1, where a single loss decides, so the paper leaves
out rates beyond a stability cut (appendix 8.1: 0.001 and 0.999).

Epsilon* should be read together with the results of simple attacks with such thresholds: the area under the ROC, which
covers all thresholds (AUC); the TPR at a small share of false alarms (Carlini et al. 2022); and the advantage, TPR -
FPR, of the threshold at the mean loss of members (Yeom et al. 2018).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.released_model.epsilon_star import checked_pair, require_cut, require_star_delta
from fl_audit.released_model.methods import EMPIRICAL_CUT


@dataclass(frozen=True)
class ThresholdCounts:
    """Numbers of losses of each set at or below each threshold, which calls those members."""

    thresholds: Floats  # all losses of both sets in order, shape (..., thresholds)
    members: Integers  # number of members' losses at or below each threshold, same shape
    population: Integers  # number of population losses at or below each threshold, shape (..., thresholds)
    # Whether the threshold is the last of several equal ones. Only there do the counts include all losses of that
    # value, so only there are they the counts of a rule that somebody could apply.
    last: Flags
    member_total: int  # number of losses of members
    population_total: int  # of the population

    @property
    def fpr(self) -> Floats:
        """Return false positive rates."""
        return np.asarray(self.population / self.population_total, dtype=np.float64)

    @property
    def fnr(self) -> Floats:
        """Return false negative rates."""
        return np.asarray((self.member_total - self.members) / self.member_total, dtype=np.float64)


def threshold_counts(member_losses: Floats, population_losses: Floats) -> ThresholdCounts:
    """Return the counts at every threshold that the losses allow, by one sort.

    Parameters
    ----------
    member_losses
        Losses of members, finite, shape (..., m).
    population_losses
        Losses of the population sample, finite, shape (..., p) with the same leading axes.
    """
    m = member_losses.shape[-1]
    both = np.concatenate([member_losses, population_losses], axis=-1)
    order = np.argsort(both, axis=-1)
    thresholds = np.take_along_axis(both, order, axis=-1)
    members = np.cumsum(order < m, axis=-1)
    last = np.ones(both.shape, dtype=np.bool_)
    last[..., :-1] = thresholds[..., 1:] > thresholds[..., :-1]
    population = np.arange(1, both.shape[-1] + 1) - members
    return ThresholdCounts(thresholds, members, population, last, m, both.shape[-1] - m)


def definition_ratios(fpr: Floats, tnr: Floats, fnr: Floats, tpr: Floats, delta: float) -> Floats:
    """Return the largest of the four ratios of definition 2 at each threshold, at least 0, before the logarithm.

    Parameters
    ----------
    fpr
        False-positive rates, in [0, 1].
    tnr
        True-negative rates, 1 - FPR. They are passed in, not computed, so that rates near 1 keep their digits.
    fnr
        False-negative rates, in [0, 1].
    tpr
        True-positive rates, 1 - FNR. They are passed in, not computed, so that rates near 1 keep their digits.
    delta
        A number from 0 to below 1.
    """
    return largest_ratio(((tnr, fnr), (tpr, fpr), (fpr, tpr), (fnr, tnr)), delta)


def largest_ratio(pairs: Iterable[tuple[Floats, Floats]], delta: float) -> Floats:
    """Return the largest (over - delta) / under of some pairs, at least 0; 0 where `over` is not above delta.

    Parameters
    ----------
    pairs
        Pairs of `over` and `under`, error rates of one shape.
    delta
        Delta of the guarantee, at least 0 and below 1.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [np.where(over > delta, (over - delta) / under, 0.0) for over, under in pairs]
    return np.asarray(np.maximum.reduce(ratios), dtype=np.float64)


def epsilon_star_of_rates(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> Floats:
    """Return Epsilon* of pairs of error rates, over the last axis: definition 2.

    It is the largest over thresholds of log (1-delta-FPR)/FNR, log (1-delta-FNR)/FPR, log (FPR-delta)/(1-FNR) and
    log (FNR-delta)/(1-FPR), and never below 0. A ratio whose numerator is not positive does not count; one with a
    positive numerator and a denominator of 0 is infinite.

    Parameters
    ----------
    fpr
        False-positive rates in [0, 1], shape (..., thresholds), at least one threshold.
    fnr
        False-negative rates in [0, 1], shape (..., thresholds).
    delta
        A number from 0 to below 1.

    Raises
    ------
    InputError
        If a number is out of its range or the shapes differ.
    """
    require_star_delta(delta)
    false_positive, false_negative = (_rates(rates, name) for rates, name in ((fpr, "FPR"), (fnr, "FNR")))
    same = false_positive.shape == false_negative.shape
    require(same, f"FNR have shape {false_negative.shape}: accepted is {false_positive.shape}, the FPR's")
    ratios = definition_ratios(false_positive, 1 - false_positive, false_negative, 1 - false_negative, delta)
    return np.asarray(np.log(np.maximum(ratios.max(axis=-1), 1.0)), dtype=np.float64)


def empirical_epsilon_star(
    member_losses: ArrayLike, population_losses: ArrayLike, delta: float, cut: float = EMPIRICAL_CUT
) -> Floats:
    """Return Epsilon* of every model, (...), from the empirical distributions of losses, over all their thresholds.

    It is infinite where a threshold that counts separates a share above delta of one set from the whole other set.

    Parameters
    ----------
    member_losses
        Losses of members, as for `parametric_epsilon_star`, but one loss is enough.
    population_losses
        Losses of the population sample, as for `parametric_epsilon_star`, but one loss is enough.
    delta
        Delta of Epsilon*, at least 0 and below 1.
    cut
        Share from 0 to below 0.5: a threshold counts if its FPR and FNR both lie above `cut` and below 1 - `cut`; at 0
        all count. Where the losses offer no such threshold (the two sets do not overlap, or are constant) all count as
        well, because leaving all of them out would hide a perfect attack.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number or shape is not accepted.
    """
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    require_star_delta(delta)
    require_cut(cut)
    return epsilon_star_of_counts(threshold_counts(members, population), delta, cut)


def epsilon_star_of_counts(counts: ThresholdCounts, delta: float, cut: float) -> Floats:
    """Return Epsilon* of every model, (...), from the counts at all thresholds, so that one sort serves several cuts.

    Parameters
    ----------
    counts
        Counts of losses at every threshold.
    delta
        Delta of Epsilon*, at least 0 and below 1.
    cut
        Stability cut, as for `empirical_epsilon_star`.
    """
    fpr, fnr = counts.fpr, counts.fnr
    tpr = counts.members / counts.member_total
    tnr = (counts.population_total - counts.population) / counts.population_total
    counted = within_cut(fpr, fnr, cut) & counts.last
    counted = np.where(counted.any(axis=-1, keepdims=True), counted, counts.last)
    ratios = np.where(counted, definition_ratios(fpr, tnr, fnr, tpr, delta), 0.0)
    return np.asarray(np.log(np.maximum(ratios.max(axis=-1), 1.0)), dtype=np.float64)


def within_cut(fpr: Floats, fnr: Floats, cut: float) -> Flags:
    """Return a mask of error rates that both lie above `cut` and below 1 - `cut`; all of them for a cut of 0.

    Parameters
    ----------
    fpr
        False-positive rates, of any shape.
    fnr
        False-negative rates, of the shape of `fpr`.
    cut
        Stability cut, from 0 to below 1/2.
    """
    if cut == 0:
        return np.ones(fpr.shape, dtype=np.bool_)
    low, high = np.minimum(fpr, fnr), np.maximum(fpr, fnr)
    return np.asarray((low > cut) & (high < 1 - cut), dtype=np.bool_)


def _rates(rates: ArrayLike, name: str) -> Floats:
    values = np.asarray(rates, dtype=np.float64)
    require(values.ndim >= 1 and values.shape[-1] >= 1, f"{name} have shape {values.shape}: accepted is one or more")
    wrong = values[~((values >= 0) & (values <= 1))]
    require(wrong.size == 0, f"{name} contain {wrong[:1]}: accepted are numbers from 0 to 1")
    return values


@dataclass(frozen=True)
class LossAttacks:
    """Attacks on the losses of one model or many; every array has the shape of the leading axes."""

    # Probability that a member's loss is below that of the population, ties counting half; from 0 to 1, 1/2 without a
    # leak.
    auc: Floats
    tpr_at_fpr_0001: Floats  # largest TPR of a threshold whose FPR is at most 0.1 %, from 0 to 1
    tpr_at_fpr_001: Floats  # largest TPR of a threshold whose FPR is at most 1 %, from 0 to 1
    yeom_advantage: Floats  # TPR - FPR at the mean loss of members, from -1 to 1
    loss_gap: Floats  # mean loss of the population less that of members, in the unit of the losses


def loss_attacks(member_losses: ArrayLike, population_losses: ArrayLike) -> LossAttacks:
    """Return the results of simple attacks on the losses.

    Parameters
    ----------
    member_losses
        Losses of members, as for `empirical_epsilon_star`.
    population_losses
        Losses of the population sample, as for `empirical_epsilon_star`.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or the shapes do not fit.

    Examples
    --------
    >>> found = loss_attacks([0.1, 0.2], [0.2, 0.4])
    >>> float(found.auc), float(found.yeom_advantage), round(float(found.loss_gap), 2)
    (0.875, 0.5, 0.15)
    """
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    counts = threshold_counts(members, population)
    mean = members.mean(axis=-1, keepdims=True)
    advantage = np.asarray((members <= mean).mean(axis=-1) - (population <= mean).mean(axis=-1), dtype=np.float64)
    gap = np.asarray(population.mean(axis=-1) - mean[..., 0], dtype=np.float64)
    return LossAttacks(
        auc=area_under_roc(counts),
        tpr_at_fpr_0001=_tpr_at_fpr(counts, 0.001),
        tpr_at_fpr_001=_tpr_at_fpr(counts, 0.01),
        yeom_advantage=advantage,
        loss_gap=gap,
    )


def _tpr_at_fpr(counts: ThresholdCounts, fpr: float) -> Floats:
    """Return the largest TPR of a threshold with at most this FPR, shape of the leading axes."""
    # Rates between two thresholds are not interpolated: with p losses of others, below 1/p no false alarm is allowed.
    # Compared with a little slack, so that rounding cannot turn 3 of 3000 into more than a share of 0.001.
    allowed = counts.last & (counts.population <= np.floor(fpr * counts.population_total * (1 + 1e-12)))
    return np.asarray(np.where(allowed, counts.members, 0).max(axis=-1) / counts.member_total, dtype=np.float64)


def area_under_roc(counts: ThresholdCounts) -> Floats:
    """Return the area under the ROC by trapezia between thresholds; ties lie on one line and so count half.

    The area is the probability that a member's loss is smaller than one of the population.
    """
    # A threshold that is not the last of several equal ones repeats the corner of the curve before it.
    found = (np.where(counts.last, each, 0) for each in (counts.population, counts.members))
    x, y = (np.maximum.accumulate(each, axis=-1) for each in found)
    y0 = np.concatenate([np.zeros_like(y[..., :1]), y[..., :-1]], axis=-1)
    area = (np.diff(x, axis=-1, prepend=0) * (y + y0)).sum(axis=-1) / 2
    return np.asarray(area / (counts.member_total * counts.population_total), dtype=np.float64)
