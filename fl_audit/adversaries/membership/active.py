"""The active attack of Nasr et al. 2019: the insider pushes losses of targets up and watches which come down again.

A data owner trains on its records whatever their loss. So where the released model has been moved up the loss of a
target, the owner of a member moves it down again in the rounds that follow, by the more the larger the loss has become;
nobody does so for a record that was not used. Arrays whose shapes do not fit, and numbers out of their range, raise
`InputError`.
"""

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fl_audit.arrays import Floats
from fl_audit.errors import require
from fl_audit.learning.stacked import StackedModel
from fl_audit.privacy.gaussian import require_positive


def ascent(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    rate: float,
    clipping_norm: float | None = None,
) -> Tensor:
    """Return what the insider adds to its contribution of a round, so that the released model moves up targets' losses.

    The contribution is a sum of gradients, with which the model descends: theta <- theta - eta r / n. So what is added
    is minus the sum of the targets' gradients, float32 (worlds, parameters).

    Source: Nasr, Shokri & Houmansadr 2019, section II, active inference attacks: the attacker takes a step of gradient
    ascent on the targets' loss in its local model before it sends its update.

    It pays to begin early: the gradient of a record that the model is sure of vanishes, and then nothing moves.

    Parameters
    ----------
    model, models
        Any module, and the model last released in each world, float32 (worlds, parameters).
    features, labels
        Features of the targets, float32 (n, *shape), and their classes, int64 (n,).
    rate
        How many times each target's gradient is taken away, above 0. At 1 a member's own contribution of the round is
        undone; below 1 members still descend, and only targets that were not used ascend.
    clipping_norm
        To which norm the gradient of each target is clipped, positive. What is added is then no longer than rate x n
        records may contribute. None clips nothing.
    """
    require_positive(rate_of_the_ascent=rate)
    is_norm = clipping_norm is None or 0 < clipping_norm < np.inf
    require(is_norm, f"clipping norm of the ascent is {clipping_norm}: accepted are numbers above 0 and None")
    return model.clipped_sum(models, features, labels, clipping_norm).mul_(-rate)


def active_scores(values: ArrayLike) -> Floats:
    """Return the scores of the active attack, shape (worlds, targets), higher for a likelier member.

    Given is the loss or gradient norm of every target under every model that was released while the attack went on,
    finite, shape (releases, worlds, targets), one release or more. Scores are minus the mean over releases: losses of
    a member, whose owner works against the ascent, stay low.

    Source: Nasr, Shokri & Houmansadr 2019, section II, who show that norms of gradients under the ascent stay small for
    members and large for others, and feed them to their attack network, as `white_box_scores` of several releases does.
    The mean needs no known members.
    """
    seen = np.asarray(values, dtype=np.float64)
    fits = seen.ndim == 3 and seen.size > 0
    require(fits, f"values of the active attack have shape {seen.shape}: accepted is (releases, worlds, targets)")
    require(bool(np.isfinite(seen).all()), "values of the active attack contain NaN or infinity: accepted are numbers")
    return np.asarray(-seen.mean(axis=0), dtype=np.float64)
