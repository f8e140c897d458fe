"""The likelihood ratio attack (LiRA) of Carlini et al. 2022, which infers membership from a model's confidence.

Shadow trials are trials with known membership. Each trial is attacked with all other trials, or with given ones, as
shadow trials. The attack uses the confidence in a record's label on the log-odds scale (`scaled_confidence`), which is
nearly normal over models.
"""

from enum import StrEnum
from typing import assert_never

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.audits.membership.shadow_sums import (
    ShadowForm,
    ShadowGroupMoments,
    _of_targets,
    _shadow_flags,
    _shadow_group,
)
from fl_audit.errors import require
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.paper_reference import PaperReference

_LEAST_VARIANCE = 1e-30
_FEW_TRIALS = 64
"""Number of trials below which one spread is used for all targets (Carlini et al. 2022, section VI-B)."""


class LiraSpread(StrEnum):
    """The way to estimate how much a target's confidence varies between models.

    EACH: one variance for each target. SHARED: one variance for all targets.
    """

    EACH = "each"
    SHARED = "shared"


def lira_scores(
    confidences: Floats,
    membership: TargetMembership,
    form: ShadowForm = ShadowForm.ONLINE,
    spread: LiraSpread = LiraSpread.EACH,
    shadows: Flags | None = None,
) -> Floats:
    """Return the scores of the likelihood ratio attack, higher for a likelier member, shape (trials, targets).

    Source: Carlini et al. 2022, Membership inference attacks from first principles, algorithm 1 and equation 4. There
    are two differences from the authors' code:

    * The centre of the confidences is their mean, as in the algorithm. The authors' code uses the median.
    * The shared variance is about each target's own mean, and is separate for members and nonmembers. The authors' code
      uses one variance for members and nonmembers. It is that of all members' values, so it includes the differences
      between records.

    Raises `InputError` if shapes do not fit, a confidence is not finite, or a target is a nonmember (or, with ONLINE, a
    member) in fewer than 2 shadow trials. With SHARED, 1 is enough if another target has 2.

    Parameters
    ----------
    confidences
        Confidence phi that the model of each trial has in the label of each target, on the log-odds scale, finite,
        shape (trials, targets).
    membership
        The membership of the targets in all trials. The attack on a trial uses only the rows of other trials.
    shadows
        Whether each trial may serve as a shadow, bool (trials,); None allows all but the attacked one.
    form
        ONLINE: log N(phi; mean_in, var_in) - log N(phi; mean_out, var_out). OFFLINE: (phi - mean_out) / sd_out, a
        strictly increasing function of the paper's one-sided test.
    spread
        EACH: the variance of each target. SHARED: the variance about each target's own mean, pooled over targets,
        separately for members and nonmembers.

    Examples
    --------
    >>> bits = np.array([[True], [True], [True], [False], [False], [False]])
    >>> phi = np.array([[2.0], [3.0], [2.5], [0.0], [1.0], [0.5]])
    >>> lira_scores(phi, TargetMembership(bits), spread=LiraSpread.EACH).ravel().round(1).tolist()
    [2.7, 14.7, 11.8, -14.7, -2.7, -11.8]
    """
    values = _of_targets(confidences, membership, "confidences")
    flags = _shadow_flags(membership, shadows)
    out = _group(values, ~membership.is_in, flags, "out", spread)
    if ShadowForm(form) is ShadowForm.OFFLINE:
        return np.asarray((values - out.mean) / np.sqrt(_variance(out, spread)), dtype=np.float64)
    inside = _group(values, membership.is_in, flags, "in", spread)
    return _log_density(values, inside, spread) - _log_density(values, out, spread)


def _group(values: Floats, is_in_group: Flags, shadows: Flags, name: str, spread: LiraSpread) -> ShadowGroupMoments:
    """Return moments of each target's values over the shadow trials with the target, or over those without it.

    `is_in_group`, bool (trials, targets), marks either all trials with a target or all without it. `name` is
    accordingly "in" or "out". Raises `InputError` if the shadow trials are too few to estimate a variance as `spread`
    requires.
    """
    group = _shadow_group(values, is_in_group, shadows, name, 2 if LiraSpread(spread) is LiraSpread.EACH else 1)
    if LiraSpread(spread) is LiraSpread.SHARED:
        fewest = int((group.count - 1).sum(axis=1).min())
        require(fewest > 0, f"no target is {name} in 2 shadow trials: accepted is at least one; play more trials")
    return group


def _variance(group: ShadowGroupMoments, spread: LiraSpread) -> Floats:
    """Return the variance of confidences for the attack on each trial, (trials, targets).

    With SHARED, all targets have the same variance, and the second axis has length 1.
    """
    match LiraSpread(spread):
        case LiraSpread.EACH:
            variance = group.variance
        case LiraSpread.SHARED:
            # One mean was fitted for each target. Without subtracting 1, the variance from few shadow trials would be
            # too small.
            free = (group.count - 1).sum(axis=1)
            variance = group.squares.sum(axis=1, keepdims=True) / free[:, np.newaxis]
        case _:
            assert_never(LiraSpread(spread))
    return np.asarray(np.maximum(variance, _LEAST_VARIANCE), dtype=np.float64)


def _log_density(values: Floats, group: ShadowGroupMoments, spread: LiraSpread) -> Floats:
    """Return the log density at `values` of a normal distribution fitted to `group`, up to a constant."""
    variance = _variance(group, spread)
    return np.asarray(-(np.log(variance) + (values - group.mean) ** 2 / variance) / 2, dtype=np.float64)


class LiraAttack(MembershipAttack):
    """The likelihood ratio attack, with one spread for all targets if there are few trials."""

    name = "lira"
    label = "LiRA"
    sees = "the confidence, compared with normal distributions from trials with and without the target"
    source = "Carlini et al. 2022"
    paper = PaperReference(
        "N. Carlini et al. (2022). Membership inference attacks from first principles. IEEE Symposium on Security and "
        "Privacy",
        "For LiRA",
        "10.1109/SP46214.2022.9833649",
    )
    is_default = True
    learns_from_shadows = True
    needs_shadows_of_each_target = True

    def scores(self, outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None = None) -> Floats:
        """Return the log likelihood ratios, shape (trials, targets)."""
        count = membership.trials if shadows is None else int(shadows.sum())
        spread = LiraSpread.SHARED if count < _FEW_TRIALS else LiraSpread.EACH
        return lira_scores(outputs.confidence, membership, spread=spread, shadows=shadows)
