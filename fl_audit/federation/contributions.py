"""Compute contributions: the terms that units (records, users or clients) add to the sum of a round.

The owner of the data and the insider, a client that attacks, call the same functions with tensors of the same shapes.
So both compute the same contribution to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning import local_training
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.mechanisms.contribution import LocalTraining, PrivateTraining, RecordGradients, UserGradients
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class RoundContext:
    """Public values of a round, beside the model parameters, that determine the contributions of units and clients."""

    number: int  # the round, from 1
    norms: Tensor | None = None  # the round's adaptive clipping norms, float64 (trials,); None if fixed
    # Number of trials in the original batch of trials if only its first trials are recomputed; None if all are. See
    # `StackedModel.clipped_sum`.
    batch_trials: int | None = None

    def rows(self, rows: Tensor) -> "RoundContext":
        """Return the same round for only the trials at the indices `rows`, int64 (selected trials,)."""
        return RoundContext(self.number, None if self.norms is None else self.norms[rows], None)


@dataclass(frozen=True)
class ContributionByTrial:
    """Contribution of one unit, or of all units of one client, to the sum of a round, in each trial."""

    total: Tensor  # the contribution, float32 (trials, parameters)
    # Quantile bits, float64 (trials,), if clipping is adaptive; otherwise None. For a client: 1 if its update was
    # within the clipping norm, else 0. For users: 1/2, plus 1/2 for each user within the norm, minus 1/2 for each other
    # user.
    within: Tensor | None = None

    @property
    def centred_bits(self) -> Tensor:
        """The quantile bits `within` minus 1/2, float64 (trials,); all zero if clipping is not adaptive."""
        none = torch.zeros(len(self.total), dtype=torch.float64, device=self.total.device)
        return none if self.within is None else self.within - 0.5

    def times(self, is_participating: Tensor) -> "ContributionByTrial":
        """Return a copy that is zero in the trials in which the unit does not participate.

        `is_participating`, bool (trials,), says in which trials the unit participates.
        """
        # Without a unit there is no bit either: a bit of one half is one that adds nothing once it is centred.
        within = None if self.within is None else torch.where(is_participating, self.within, 0.5)
        return ContributionByTrial(self.total * is_participating.unsqueeze(1), within)


def contributed(
    federation: LoadedFederation,
    client: int,
    examples: Examples,
    models: Tensor,
    context: RoundContext,
    taking_part: Tensor | None = None,
) -> ContributionByTrial:
    """Compute the clipped contribution of some examples of a client in each trial.

    Shapes: `models` (trials, parameters), `taking_part` (trials, n).

    `client`: It seeds the order of records in local training.
    """
    mechanism = federation.public.mechanism
    norms = _norms(mechanism, context)
    shapes = context.batch_trials if taking_part is None else None
    match mechanism.contribution:
        case RecordGradients() | UserGradients():
            total, bits = federation.model.clipped_sums(models, examples.grouped, norms, shapes, taking_part)
            return ContributionByTrial(total, None if bits is None else bits + 0.5)
        case LocalTraining(schedule):
            draw = _order_draw(federation, client, context)
            updates = _local_updates(
                federation.model, examples, models, schedule.at_round(context.number), draw, taking_part
            )
            return _clipped(mechanism, updates, context)
        case PrivateTraining():
            raise AssertionError("what a client draws in its training nobody can recompute: see `private_training`")
        case _:
            assert_never(mechanism.contribution)


def _local_updates(
    model: StackedModel,
    examples: Examples,
    models: Tensor,
    schedule: LocalSchedule,
    draw: np.random.Generator,
    taking_part: Tensor | None,
) -> Tensor:
    """Return a client's updates after local training, float32 (trials, parameters).

    In each trial the client trains on its examples that participate.
    """
    features = examples.features
    labels = examples.labels
    if taking_part is None and schedule.optimizer is local_training.LocalOptimizer.SGD:
        batches = local_training.local_batches(examples.count, schedule, draw)
        return local_training.local_updates(model, models, features, labels, schedule, batches)
    everything = np.ones((len(models), examples.count), dtype=np.bool_)
    present = everything if taking_part is None else taking_part.cpu().numpy()
    batches_of_member = local_training.member_batches(present, schedule, draw)
    return local_training.member_updates(model, models, features, labels, schedule, batches_of_member)


def contributed_together(
    federation: LoadedFederation, clients: Sequence[int], models: Tensor, context: RoundContext
) -> list[ContributionByTrial]:
    """Compute each client's contribution to one trial, for several clients at once.

    The results equal those of `contributed`. They come faster, because the models of the clients are stacked.

    Shapes: `models` (1, parameters).
    """
    mechanism = federation.public.mechanism
    examples = [federation.shard_without_targets(client) for client in clients]
    assert isinstance(mechanism.contribution, LocalTraining)
    schedule = mechanism.contribution.schedule.at_round(context.number)
    draws = [_order_draw(federation, client, context) for client in clients]
    orders = [
        local_training.local_batches(examples.count, schedule, draw)
        for examples, draw in zip(examples, draws, strict=True)
    ]
    steps = [np.stack(step) for step in zip(*orders, strict=True)]
    starts = models.expand(len(clients), -1)
    features = torch.stack([record_examples.features for record_examples in examples])
    labels = torch.stack([record_examples.labels for record_examples in examples])
    updates = local_training.local_updates(federation.model, starts, features, labels, schedule, steps)
    return [_clipped(mechanism, updates[row : row + 1], context) for row in range(len(clients))]


def trains_together(federation: LoadedFederation, clients: Sequence[int]) -> bool:
    """Return True if `contributed_together` accepts the clients.

    They must train locally on equally many records, with a model and a schedule for which models can be stacked.
    """
    contribution = federation.public.mechanism.contribution
    sizes = {len(federation.shard_without_targets(client).labels) for client in clients}
    if not isinstance(contribution, LocalTraining) or len(sizes) != 1:
        return False
    return local_training.accepts_batches_per_trial(federation.model, sizes.pop(), contribution.schedule)


def _order_draw(federation: LoadedFederation, client: int, context: RoundContext) -> np.random.Generator:
    """Return the public generator that orders a client's records in a round, in all trials alike."""
    return generator(federation.public.data_seed, Purpose.LOCAL_ORDER, round=context.number, client=client)


def _clipped(mechanism: Mechanism, updates: Tensor, context: RoundContext) -> ContributionByTrial:
    """Clip a client's updates of all trials in place, and return them as the client's contribution.

    With adaptive clipping, the contribution also says in which trials the update was within the clipping norm.
    """
    norms = _norms(mechanism, context)
    if norms is None:
        return ContributionByTrial(updates)
    clipped, lengths = local_training.clip_updates(updates, norms, mechanism.clipping.measured_in)
    if context.norms is None:
        return ContributionByTrial(clipped)
    return ContributionByTrial(clipped, (lengths.double() <= context.norms).double())


def _norms(mechanism: Mechanism, context: RoundContext) -> Tensor | float | None:
    """Return the clipping norms of a round: one for each trial if they are adaptive; None without clipping."""
    if isinf(mechanism.clipping_norm):
        return None
    return mechanism.clipping_norm if context.norms is None else context.norms


def zero_contribution(models: Tensor, is_adaptive: bool) -> ContributionByTrial:
    """Return the contribution of a missing unit: zero in every trial.

    Shapes: `models` (trials, parameters).
    """
    within = torch.full((len(models),), 0.5, dtype=torch.float64, device=models.device) if is_adaptive else None
    return ContributionByTrial(torch.zeros_like(models), within)


def differing_contributions(
    federation: LoadedFederation,
    models: Tensor,
    context: RoundContext,
    randomised: tuple[Examples, Examples | None] | None = None,
) -> tuple[ContributionByTrial, ContributionByTrial]:
    """Return the contribution of the unit that is only in D, and that of the unit that replaces it in D'.

    The second contribution is zero if D' has no unit in its place.

    Shapes: `models` (trials, parameters).
    """
    differing, replacement = (federation.differing, federation.replacement) if randomised is None else randomised
    present = contributed(federation, federation.victim, differing, models, context)
    if replacement is None:
        return present, zero_contribution(models, federation.public.mechanism.is_adaptive)
    return present, contributed(federation, federation.victim, replacement, models, context)
