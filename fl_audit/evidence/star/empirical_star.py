"""Definition 2 of Epsilon* (Negoescu et al. 2023) from error rates, and from the empirical distributions of losses.

A threshold on the loss calls a record a member where its loss is at most the threshold. FPR is the share of the
population that is called a member, FNR the share of members that is not. The empirical form tries every threshold that
the losses offer. The largest ratios are reached at rates near 0 and 1, where a single loss decides, so the paper leaves
out rates beyond a stability cut (appendix 8.1: 0.001 and 0.999).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.evidence.star.epsilon_star import require_cut, require_star_delta
from fl_audit.evidence.star.loss_samples import checked_pair

EMPIRICAL_CUT = 0.001  # the stability cut of appendix 8.1 for the empirical form


@dataclass(frozen=True)
class ThresholdCounts:
    """How many losses of either set lie at or below each threshold, which takes those for members."""

    thresholds: Floats  # all losses of both sets in order, shape (..., thresholds)
    # `members`, `population`: numbers of losses at or below each threshold, same shape.
    members: Integers
    population: Integers
    # Whether the threshold is the last of several equal ones. Only there do the counts include all losses of that
    # value, so only there are they the counts of a rule that somebody could apply.
    last: Flags
    # `member_total`, `population_total`: numbers of losses.
    member_total: int
    population_total: int

    @property
    def fpr(self) -> Floats:
        """Return false positive rates."""
        return np.asarray(self.population / self.population_total, dtype=np.float64)

    @property
    def fnr(self) -> Floats:
        """Return false negative rates."""
        return np.asarray((self.member_total - self.members) / self.member_total, dtype=np.float64)


def threshold_counts(member_losses: Floats, population_losses: Floats) -> ThresholdCounts:
    """Return the counts at every threshold that the losses offer, by one sort.

    Parameters
    ----------
    member_losses
        Finite numbers, shape (..., m).
    population_losses
        Finite numbers, shape (..., p) with the same leading axes.
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
    """Return the largest of the four ratios of definition 2 at each threshold, at least 0; before the logarithm.

    Parameters
    ----------
    fpr
        False positive rates, in [0, 1].
    tnr
        1 - FPR, in [0, 1]. It is passed in and not computed here, so that rates near 1 keep their digits.
    fnr
        False negative rates, in [0, 1].
    tpr
        1 - FNR, in [0, 1], passed in for the same reason.
    delta
        From 0 to below 1.
    """
    return largest_ratio(((tnr, fnr), (tpr, fpr), (fpr, tpr), (fnr, tnr)), delta)


def largest_ratio(pairs: Iterable[tuple[Floats, Floats]], delta: float) -> Floats:
    """Return the largest (over - delta) / under of some pairs, at least 0; 0 where `over` is not above delta.

    Parameters
    ----------
    pairs
        `over` and `under`, error rates of one shape.
    delta
        At least 0, below 1.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [np.where(over > delta, (over - delta) / under, 0.0) for over, under in pairs]
    return np.asarray(np.maximum.reduce(ratios), dtype=np.float64)


def epsilon_star_of_rates(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> Floats:
    """Return Epsilon* of pairs of error rates: definition 2.

    It is the largest over thresholds of log (1-delta-FPR)/FNR, log (1-delta-FNR)/FPR, log (FPR-delta)/(1-FNR) and
    log (FNR-delta)/(1-FPR), and never below 0. A ratio whose numerator is not positive does not count; one with a
    positive numerator and a denominator of 0 is infinite.

    Parameters
    ----------
    fpr
        False positive rates in [0, 1], shape (..., thresholds), at least one threshold.
    fnr
        False negative rates in [0, 1], of the same shape.
    delta
        From 0 to below 1.

    Returns
    -------
    array
        Epsilon* over the last axis, shape (...).

    Raises
    ------
    InputError
        If a number is out of its range or the shapes differ.

    Examples
    --------
    >>> round(float(epsilon_star_of_rates([0.1], [0.4], 0.0)), 4)  # log 0.6 / 0.1
    1.7918
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
    """Return Epsilon* from the empirical distributions of losses, over every threshold that they offer.

    Parameters
    ----------
    member_losses
        Losses on training records, finite and at least 0, shape (..., m), m at least 1.
    population_losses
        Losses on a sample of the population, finite and at least 0, shape (..., p) with the same leading axes, p at
        least 1.
    delta
        From 0 to below 1.
    cut
        From 0 to below 0.5. A threshold counts if its FPR and FNR both lie above `cut` and below 1 - `cut`; at 0 all
        count. Where the losses offer no such threshold (the two sets do not overlap, or are constant) all count as
        well, because leaving all of them out would hide a perfect attack.

    Returns
    -------
    array
        Epsilon* of every model, shape (...). Infinite where a threshold that counts separates a share above delta of
        one set from the whole other set.

    Raises
    ------
    InputError
        If a loss is negative or not finite, or a number or shape is not accepted.
    """
    members, population = checked_pair(member_losses, population_losses, at_least=1)
    return _epsilon_star_of_counts(threshold_counts(members, population), delta, cut)


def _epsilon_star_of_counts(counts: ThresholdCounts, delta: float, cut: float = EMPIRICAL_CUT) -> Floats:
    """Return `empirical_epsilon_star` from counts."""
    require_star_delta(delta)
    require_cut(cut)
    fpr, fnr = counts.fpr, counts.fnr
    tpr = counts.members / counts.member_total
    tnr = (counts.population_total - counts.population) / counts.population_total
    counted = within_cut(fpr, fnr, cut) & counts.last
    counted = np.where(counted.any(axis=-1, keepdims=True), counted, counts.last)
    ratios = np.where(counted, definition_ratios(fpr, tnr, fnr, tpr, delta), 0.0)
    return np.asarray(np.log(np.maximum(ratios.max(axis=-1), 1.0)), dtype=np.float64)


def within_cut(fpr: Floats, fnr: Floats, cut: float) -> Flags:
    """Return where both error rates lie above `cut` and below 1 - `cut`; everywhere for a cut of 0.

    Parameters
    ----------
    fpr
        False positive rates.
    fnr
        False negative rates, of the same shape.
    cut
        From 0, below 1/2.
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
