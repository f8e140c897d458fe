"""The membership adversary of Yeom et al. 2018: a record is called a member if its loss is at most a threshold.

The adversary sees losses under one released model, and knows the mean training loss, which is the threshold. It is used
in three ways, each on all trials at once.

* `fl_audit.released_model.empirical_star.yeom_advantage` (Bernau et al. 2021, experiment 1) is its advantage over all
  members and a population sample, as in figures 7d, 8d and 9d of that paper.
* `record_membership_guess` guesses for x, the one record in which D and D' differ, in the same trials in which the
  insider guesses. Only this use permits a test of proposition 1 of the paper trial by trial.
* `loss_scores`, for the membership audit, gives scores, so that all thresholds can be evaluated.

The active attack of Nasr et al. 2019 makes losses more informative: the insider raises the losses of targets, and
observes which of them decrease again. If a released model has a larger loss on a member, training by the owner of this
member decreases the loss in the following rounds. The loss of a record that was not used stays large.

Functions raise `InputError` if shapes do not match or numbers are out of range.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.privacy.gaussian import require_positive

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.learning.stacked_model import StackedModel


def loss_scores(losses: ArrayLike) -> Floats:
    """Return the negated losses as scores of the loss attack, higher for a likelier member, shape (trials, targets).

    `losses` are finite, of shape (trials, targets). The attack is that of Yeom et al. 2018, with all thresholds instead
    of the mean training loss.
    """
    return -_checked(losses, "losses")


def chance_spread(members: int, nonmembers: int) -> float:
    """Return the standard deviation of the membership adversary's advantage against one model without a leak.

    The advantage then differs from 0 only because members are chosen at random. Its standard deviation is sqrt((1 /
    members + 1 / others) / 4). Similar models that are trained on the same records share this error, so averaging over
    models does not reduce it.
    """
    require(min(members, nonmembers) >= 1, f"{members} members and {nonmembers} others: accepted are 1 or more")
    return math.sqrt((1 / members + 1 / nonmembers) / 4)


def record_membership_guess(record_loss: ArrayLike, common_losses: ArrayLike) -> Flags:
    """Return whether the adversary guesses that x was used: its loss is at most the mean loss of the common records.

    The record x is the one in which D and D' differ, and the common records are those in both. The result is bool,
    shape (...). The threshold is the same in trials with D and with D', since a threshold from the data set that was
    used would reveal the secret. In trials with D, the mean loss of all records of D as the threshold would lead to the
    same guesses.

    Source: the adversary of Yeom et al. 2018 in experiment 2 of Bernau et al. 2021.
    """
    common = _checked(common_losses, "common losses")
    record_losses = np.asarray(record_loss, dtype=np.float64)
    require(
        bool(np.isfinite(record_losses).all()), "record losses contain NaN or infinity: accepted are finite numbers"
    )
    problem = f"record losses have shape {record_losses.shape}"
    accepted = common.shape[:-1]
    require(record_losses.shape == accepted, f"{problem}: accepted is {accepted}, one loss for each model")
    return np.asarray(record_losses <= _mean(common), dtype=np.bool_)


def ascent(
    model: "StackedModel",
    models: "Tensor",
    features: "Tensor",
    labels: "Tensor",
    rate: float,
    clipping_norm: float | None = None,
) -> "Tensor":
    """Return the insider's addition to its contribution of a round, which raises the targets' losses.

    A contribution is a sum of gradients, with which the model descends. So the addition is minus `rate` times the sum
    of the targets' gradients, float32 (trials, parameters).

    Source: Nasr, Shokri & Houmansadr 2019, section II, active inference attacks: the attacker takes a step of gradient
    ascent on the targets' loss in its local model before it sends its update.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,).

    `rate`: At 1 a member's own contribution of the round is undone. Below 1 the losses of members still decrease, and
    only those of nonmembers increase.
    """
    require_positive(rate_of_the_ascent=rate)
    is_norm = clipping_norm is None or 0 < clipping_norm < np.inf
    require(is_norm, f"clipping norm of the ascent is {clipping_norm}: accepted are numbers above 0 and None")
    return model.clipped_sum(models, features, labels, clipping_norm).mul_(-rate)


def active_scores(values: ArrayLike) -> Floats:
    """Return the scores of the active attack, higher for a likelier member, shape (trials, targets).

    `values` holds the loss or gradient norm of each target under each model that was released during the attack,
    finite, shape (releases, trials, targets), with at least one release. A score is minus the mean over releases,
    because the losses of a member stay low: its owner's training counteracts the attack.

    Source: Nasr, Shokri & Houmansadr 2019, section II.
    """
    array = _checked(values, "values of the active attack")
    fits = array.ndim == 3 and array.size > 0
    require(fits, f"values of the active attack have shape {array.shape}: accepted is (releases, trials, targets)")
    return np.asarray(-array.mean(axis=0), dtype=np.float64)


def _mean(losses: Floats) -> Floats:
    """Return the mean over the last axis, clipped to the range of the losses because of rounding."""
    return np.asarray(np.clip(losses.mean(axis=-1), losses.min(axis=-1), losses.max(axis=-1)), dtype=np.float64)


def _checked(losses: ArrayLike, name: str) -> Floats:
    """Return losses as float64; raise `InputError` if there are none or one is not finite."""
    values = np.asarray(losses, dtype=np.float64)
    are_some = values.ndim >= 1 and values.shape[-1] >= 1
    require(are_some, f"{name} have shape {values.shape}: accepted are 1 or more losses")
    require(bool(np.isfinite(values).all()), f"{name} contain NaN or infinity: accepted are finite numbers")
    return values
