"""Compute sums over shadow trials (trials with known membership), leaving out each attacked trial in turn.

The attacker of trial w knows the membership of targets in all other trials, and the outputs of their models. For each
target this gives two groups of values: from trials that used the target, and from trials that did not. Sums are
computed once over all trials. Then the attacked trial's own value is subtracted from its group, which costs O(1) for
each value.

**Bounds from these scores.** The scores of one trial depend on its own model and on other trials, whose coins are
independent of its own. So a bound from a single trial is valid. Scores of several trials together depend on each
other's coins. To pool trials in one bound, set apart shadow trials that are not attacked (`shadows`), and use the
scores of the other trials. Functions raise `InputError` if shapes do not match or numbers are out of range.
"""

from dataclasses import dataclass

import numpy as np

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership

FEWEST = 2
"""Smallest number of trials in which a target must be in, and also of trials in which it must be out."""
LEAST_SHARE_OF_SPREAD = 1e-12
"""Smallest sum of squares of a group, as a share of the sum over all trials; smaller sums are rounding errors."""


@dataclass(frozen=True)
class ShadowGroupMoments:
    """Number, mean and sum of squared deviations of values over a group of shadow trials, for each target.

    The group consists of the trials in which the target is in, or of those in which it is out. The moments are computed
    for each attacked trial, which is not among its own shadow trials.
    """

    count: Integers  # number of shadow trials, shape (trials, targets)
    mean: Floats  # mean value of these trials, shape (trials, targets); 0 if there are none
    squares: Floats  # sum of squared deviations from the mean, shape (trials, targets), at least 0

    @property
    def variance(self) -> Floats:
        """The variance about the mean, i.e. squares divided by count, shape (trials, targets)."""
        return np.asarray(self.squares / np.maximum(self.count, 1), dtype=np.float64)


def _shadow_flags(membership: TargetMembership, shadows: Flags | None) -> Flags:
    """Return a mask of the trials that may serve as shadows, bool (trials,); all trials if `shadows` is None."""
    if shadows is None:
        return np.ones(membership.trials, dtype=np.bool_)
    flags = np.asarray(shadows)
    fits = flags.shape == (membership.trials,) and flags.dtype == np.bool_
    require(fits, f"shadows are {flags.dtype} of shape {flags.shape}: accepted is bool ({membership.trials},)")
    return flags


def _shadow_group(
    values: Floats, is_in_group: Flags, shadows: Flags, name: str = "", at_least: int = 0
) -> ShadowGroupMoments:
    """Return count, mean and sum of squares of the values of one group of trials, for the attacker of each trial.

    The group `is_in_group` has the trials with a target, or those without the target; the attacked trial is left
    out. Sums are taken relative to the median. Their rounding errors would otherwise reveal the membership.
    """
    member = (is_in_group & shadows[:, np.newaxis]).astype(np.int64)
    count = member.sum(axis=0) - member
    if at_least:
        trial, target = np.unravel_index(int(np.argmin(count)), count.shape)
        problem = f"trial {trial} has {count[trial, target]} shadow trials with target {target} {name}"
        require(count[trial, target] >= at_least, f"{problem}: accepted are {at_least} or more; play more trials")
    weight = member.astype(np.float64)
    is_known = count > 0
    middle = np.median(values, axis=0)
    away = values - middle
    counts_of_target = np.maximum(count, 1)
    mean = ((weight * away).sum(axis=0) - weight * away) / counts_of_target
    squares = (weight * away**2).sum(axis=0) - weight * away**2 - counts_of_target * mean**2
    smallest_spread = LEAST_SHARE_OF_SPREAD * (away**2).sum(axis=0)
    return ShadowGroupMoments(
        count=count,
        mean=np.asarray(np.where(is_known, middle + mean, 0.0), dtype=np.float64),
        squares=np.asarray(np.where(is_known, np.maximum(squares, smallest_spread), 0.0), dtype=np.float64),
    )


def require_shadows_of_all(membership: TargetMembership) -> None:
    """Raise `InputError` unless each target is a member in at least 2 trials and a nonmember in at least 2 trials."""
    fewest = fewest_on_a_side(membership)
    target = int(fewest.argmin())
    is_what = "a member" if membership.is_in[:, target].sum() == fewest[target] else "no member"
    problem = f"target {target} is {is_what} in {fewest[target]} of {membership.trials} trials"
    accepted = f"accepted are {FEWEST} or more, by another seed or more trials"
    require(fewest[target] >= FEWEST, f"by the coins of this seed {problem}: {accepted}")


def fewest_on_a_side(membership: TargetMembership) -> Integers:
    """Return, for each target, the number of trials with it or without it, whichever is smaller, shape (targets,)."""
    inside = membership.is_in.sum(axis=0)
    return np.asarray(np.minimum(inside, membership.trials - inside), dtype=np.int64)


def _of_targets(values: Floats, membership: TargetMembership, name: str) -> Floats:
    """Return values as float64, after checking that they are finite and that their shape is (trials, targets)."""
    array = np.asarray(values, dtype=np.float64)
    shape = (membership.trials, membership.targets)
    fits = array.shape == shape and array.size > 0
    require(fits, f"{name} have shape {array.shape}: accepted is {shape}, trials and targets")
    require(bool(np.isfinite(array).all()), f"{name} contain NaN or infinity: accepted are finite numbers")
    return array
