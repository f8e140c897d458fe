"""The likelihood ratio attack (LiRA) of Carlini et al. 2022, which infers membership from a model's confidence.

Shadow trials are trials with known membership. Each trial is attacked with all other trials, or with given ones, as
shadow trials. The attack uses the confidence in a record's label on the log-odds scale (`scaled_confidence`), which is
nearly normal over models.
"""

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.audits.membership.shadow_sums import ShadowGroupMoments, _of_targets, _shadow_flags, _shadow_group
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.paper_reference import PaperReference

_LEAST_VARIANCE = 1e-30
_FEW_TRIALS = 64
"""Number of trials below which one spread is used for all targets (Carlini et al. 2022, section VI-B)."""


def lira_scores(
    confidences: Floats, membership: TargetMembership, shadows: Flags | None = None, is_shared: bool = False
) -> Floats:
    """Return the scores of the likelihood ratio attack, higher for a likelier member, shape (trials, targets).

    A score is log N(phi; mean_in, var_in) - log N(phi; mean_out, var_out).

    Source: Carlini et al. 2022, Membership inference attacks from first principles, algorithm 1. There
    are two differences from the authors' code:

    * The centre of the confidences is their mean, as in the algorithm. The authors' code uses the median.
    * The shared variance is about each target's own mean, and is separate for members and nonmembers. The authors' code
      uses one variance for members and nonmembers. It is that of all members' values, so it includes the differences
      between records.

    Raises `InputError` if shapes do not fit, a confidence is not finite, or a target is a nonmember, or a member, in
    fewer than 2 shadow trials. With a shared variance, 1 is enough if another target has 2.

    Parameters
    ----------
    confidences
        Confidence phi that the model of each trial has in the label of each target, on the log-odds scale, finite,
        shape (trials, targets).
    membership
        The membership of the targets in all trials. The attack on a trial uses only the rows of other trials.
    shadows
        Whether each trial may serve as a shadow, bool (trials,); None allows all but the attacked one.
    is_shared
        Whether all targets have one variance: that about each target's own mean, pooled over targets, separately for
        members and nonmembers. Otherwise each target has its own.

    Examples
    --------
    >>> bits = np.array([[True], [True], [True], [False], [False], [False]])
    >>> phi = np.array([[2.0], [3.0], [2.5], [0.0], [1.0], [0.5]])
    >>> lira_scores(phi, TargetMembership(bits)).ravel().round(1).tolist()
    [2.7, 14.7, 11.8, -14.7, -2.7, -11.8]
    """
    values = _of_targets(confidences, membership, "confidences")
    flags = _shadow_flags(membership, shadows)
    out = _group(values, ~membership.is_in, flags, "out", is_shared)
    inside = _group(values, membership.is_in, flags, "in", is_shared)
    return _log_density(values, inside, is_shared) - _log_density(values, out, is_shared)


def _group(values: Floats, is_in_group: Flags, shadows: Flags, name: str, is_shared: bool) -> ShadowGroupMoments:
    """Return moments of each target's values over the shadow trials with the target, or over those without it.

    `is_in_group`, bool (trials, targets), marks either all trials with a target or all without it. `name` is
    accordingly "in" or "out". Raises `InputError` if the shadow trials are too few to estimate the variance.
    """
    group = _shadow_group(values, is_in_group, shadows, name, 1 if is_shared else 2)
    if is_shared:
        fewest = int((group.count - 1).sum(axis=1).min())
        require(fewest > 0, f"no target is {name} in 2 shadow trials: accepted is at least one; play more trials")
    return group


def _variance(group: ShadowGroupMoments, is_shared: bool) -> Floats:
    """Return the variance of confidences for the attack on each trial, (trials, targets).

    If it is shared, all targets have the same variance, and the second axis has length 1.
    """
    variance = group.variance
    if is_shared:
        # One mean was fitted for each target. Without subtracting 1, the variance from few shadow trials would be too
        # small.
        free = (group.count - 1).sum(axis=1)
        variance = group.squares.sum(axis=1, keepdims=True) / free[:, np.newaxis]
    return np.asarray(np.maximum(variance, _LEAST_VARIANCE), dtype=np.float64)


def _log_density(values: Floats, group: ShadowGroupMoments, is_shared: bool) -> Floats:
    """Return the log density at `values` of a normal distribution fitted to `group`, up to a constant."""
    variance = _variance(group, is_shared)
    return np.asarray(-(np.log(variance) + (values - group.mean) ** 2 / variance) / 2, dtype=np.float64)


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the log likelihood ratios, shape (trials, targets); few trials share one variance."""
    count = membership.trials if shadows is None else int(shadows.sum())
    return lira_scores(outputs.confidence, membership, shadows, is_shared=count < _FEW_TRIALS)


LIRA = MembershipAttack(
    name="lira",
    label="LiRA",
    sees="the confidence, compared with normal distributions from trials with and without the target",
    scores=_scores,
    source="Carlini et al. 2022",
    paper=PaperReference(
        "N. Carlini et al. (2022). Membership inference attacks from first principles. IEEE Symposium on Security and "
        "Privacy",
        "For LiRA",
        "10.1109/SP46214.2022.9833649",
    ),
    is_default=True,
    learns_from_shadows=True,
    needs_shadows_of_each_target=True,
)
"""The likelihood ratio attack, with one variance for all targets if there are few trials."""
