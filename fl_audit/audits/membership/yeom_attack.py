"""The membership adversary of Yeom et al. 2018: a record whose loss is at most the average training loss is a member.

It sees one released model, through losses alone, and knows the average training loss. It is used in three ways, each on
all trials at once.

* `membership_attack`, the population form (Bernau et al. 2021, experiment 1), guesses for every member and for every
  record of a population sample. Figures 7d, 8d and 9d of that paper show its advantage.
* `record_membership_guess`, the paired form, guesses for x, the one record in which D and D' differ, in the same trials
  in which the insider guesses. Only here proposition 1 can be tested trial by trial.
* `loss_scores`, for the membership audit, gives scores for all thresholds.

The active attack of Nasr et al. 2019 makes losses more informative: the insider increases the losses of targets and
watches which of them decrease again. A data owner trains on its records whatever their loss. If the released model has
a larger loss on a member, the owner of the member decreases it again in the following rounds, the more the larger the
loss is; nobody does so for a record that was not used.

Arrays whose shapes do not match, and numbers out of their range, raise `InputError`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.privacy.gaussian import require_positive


@dataclass(frozen=True)
class AttackErrorRates:
    """Error rates of the membership adversary against one model or many."""

    true_positive_rate: Floats  # share of members called members, from 0 to 1, shape (...)
    false_positive_rate: Floats  # share of the population sample called members, from 0 to 1, shape (...)

    @property
    def advantage(self) -> Floats:
        """TPR - FPR, from -1 to 1; it is 2 P(right) - 1 if members and others are tested equally often."""
        return self.true_positive_rate - self.false_positive_rate


def membership_attack(member_losses: ArrayLike, population_losses: ArrayLike) -> AttackErrorRates:
    """Return the error rates of the rule that calls a record a member if its loss is at most the members' mean loss.

    The result is invariant under increasing affine maps of the losses. Source: Yeom, Giacomelli, Fredrikson & Jha 2018,
    the adversary that knows the average training loss, with ties as in Jayaraman & Evans 2019 (a loss equal to the
    threshold is a member's).

    Parameters
    ----------
    member_losses
        Losses of the records on which the model was trained, finite, shape (..., n), n at least 1.
    population_losses
        Losses of other records, finite, shape (..., m), m at least 1.
    """
    members, population = _checked(member_losses, "member losses"), _checked(population_losses, "population losses")
    axes, accepted = members.shape[:-1], population.shape[:-1]
    require(axes == accepted, f"member losses have leading axes {axes}: accepted are {accepted}, the population's")
    threshold = _mean(members)[..., np.newaxis]
    return AttackErrorRates((members <= threshold).mean(axis=-1), (population <= threshold).mean(axis=-1))


def loss_scores(losses: ArrayLike) -> Floats:
    """Return the scores of the loss attack, which are the negated losses, higher for a likelier member.

    Losses are finite, of shape (trials, targets). The attack is that of Yeom et al. 2018 with all thresholds instead of
    the average training loss.
    """
    return -_checked(losses, "losses")


def chance_spread(members: int, others: int) -> float:
    """Return the standard deviation of the advantage against one model by the random choice of members, without a leak.

    It is sqrt((1 / members + 1 / others) / 4), the largest one, that of the difference of two proportions near one
    half. The threshold moves with the members' losses, but it moves both shares alike. Models that are alike and
    trained on the same records share this error, so a mean over many of them keeps it; the more they differ, the more
    of it averages out.

    Parameters
    ----------
    members
        Number of members for which the adversary guesses, at least 1.
    others
        Number of other records for which the adversary guesses, at least 1.
    """
    require(min(members, others) >= 1, f"{members} members and {others} others: accepted are 1 or more")
    return math.sqrt((1 / members + 1 / others) / 4)


def record_membership_guess(record_loss: ArrayLike, common_losses: ArrayLike) -> Flags:
    """Return the guess that x was used if its loss is at most the mean loss of the records that D and D' share.

    The loss of x is at most the mean loss of D if and only if it is at most that of the other records, so in trials
    that used D this is the rule of the population form for a member. The mean loss of the data set that was really used
    would differ between D and D', and so reveal the bit even if the model does not. The mean of the shared records does
    not: the guess is a function of values that the insider knows too, so all bounds on the insider's advantage hold.

    The guesses are bool, shape (...), and True if the adversary guesses that x was used.

    Source: the adversary of Yeom et al. 2018 in experiment 2 of Bernau et al. 2021.

    Parameters
    ----------
    record_loss
        Loss of x under each model, shape (...).
    common_losses
        Losses of the records that D and D' share, shape (..., n), n at least 1.
    """
    common, own = _checked(common_losses, "common losses"), np.asarray(record_loss, dtype=np.float64)
    require(bool(np.isfinite(own).all()), "record losses contain NaN or infinity: accepted are finite numbers")
    found, accepted = f"record losses have shape {own.shape}", common.shape[:-1]
    require(own.shape == accepted, f"{found}: accepted is {accepted}, one loss for each model")
    return np.asarray(own <= _mean(common), dtype=np.bool_)


def ascent(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    rate: float,
    clipping_norm: float | None = None,
) -> Tensor:
    """Return the insider's addition to its contribution of a round, which makes the model raise targets' losses.

    The contribution is a sum of gradients, with which the model descends: theta <- theta - eta r / n. Therefore the
    addition is minus `rate` times the sum of the targets' gradients, float32 (trials, parameters).

    Source: Nasr, Shokri & Houmansadr 2019, section II, active inference attacks: the attacker takes a step of gradient
    ascent on the targets' loss in its local model before it sends its update.

    It works best from an early round on: once the model fits a record with high confidence, the record's gradient
    vanishes, and the addition has no effect.

    Parameters
    ----------
    model
        The stacked model, of any module.
    models
        The model last released in each trial, float32 (trials, parameters).
    features
        Features of the targets, float32 (n, *shape).
    labels
        Classes of the targets, int64 (n,).
    rate
        The factor by which each target's gradient is subtracted, above 0. At 1 a member's own contribution of the round
        is undone; below 1 members still descend, and only targets that were not used ascend.
    clipping_norm
        The norm to which the gradient of each target is clipped, positive. The addition is then no longer than rate x n
        records may contribute. None clips nothing.
    """
    require_positive(rate_of_the_ascent=rate)
    is_norm = clipping_norm is None or 0 < clipping_norm < np.inf
    require(is_norm, f"clipping norm of the ascent is {clipping_norm}: accepted are numbers above 0 and None")
    return model.clipped_sum(models, features, labels, clipping_norm).mul_(-rate)


def active_scores(values: ArrayLike) -> Floats:
    """Return the scores of the active attack, shape (trials, targets), higher for a likelier member.

    `values` holds the loss or gradient norm of every target under every model that was released during the attack,
    finite, shape (releases, trials, targets), one release or more. Scores are minus the mean over releases, because the
    losses of a member, whose owner works against the ascent, stay low.

    Source: Nasr, Shokri & Houmansadr 2019, section II, who show that norms of gradients under the ascent stay small for
    members and large for others, and feed them to their attack network, as `white_box_scores` of several releases does.
    The mean needs no known members.
    """
    seen = _checked(values, "values of the active attack")
    fits = seen.ndim == 3 and seen.size > 0
    require(fits, f"values of the active attack have shape {seen.shape}: accepted is (releases, trials, targets)")
    return np.asarray(-seen.mean(axis=0), dtype=np.float64)


def _mean(losses: Floats) -> Floats:
    """Return the mean over the last axis, kept within the range of the losses despite rounding."""
    return np.asarray(np.clip(losses.mean(axis=-1), losses.min(axis=-1), losses.max(axis=-1)), dtype=np.float64)


def _checked(losses: ArrayLike, what: str) -> Floats:
    """Return losses as float64; `InputError` if there are none or one is not finite."""
    values = np.asarray(losses, dtype=np.float64)
    are_some = values.ndim >= 1 and values.shape[-1] >= 1
    require(are_some, f"{what} have shape {values.shape}: accepted are 1 or more losses")
    require(bool(np.isfinite(values).all()), f"{what} contain NaN or infinity: accepted are finite numbers")
    return values
