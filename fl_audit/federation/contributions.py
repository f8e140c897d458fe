"""Contributions: what every unit adds to a round, as the mechanism makes it.

Data owners and the insider call the same functions with the same shapes, so that what the insider works out is what the
owners sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Flags
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning import local_training
from fl_audit.learning.private_training import (
    CanaryRecords,
    PrivateSteps,
    PrivateUpdates,
    first_sample,
    private_updates,
)
from fl_audit.learning.user_gradients import clipped_sum_of
from fl_audit.mechanisms.contribution import LocalTraining, PrivateTraining, RecordGradients, UserGradients
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class RoundContext:
    """Numbers of a round that contributions depend on, beside the models."""

    number: int  # the round, from 1
    norms: Tensor | None = None  # the clipping norms of the round where they are adaptive, float64 (trials,)
    # Trial count of the original batch, where only its first trials are worked out again; None where these are all of
    # them. See `StackedModel.clipped_sum`.
    batch_trials: int | None = None

    def rows(self, rows: Tensor) -> "RoundContext":
        """Return the same in some trials."""
        return RoundContext(self.number, None if self.norms is None else self.norms[rows], None)


@dataclass(frozen=True)
class TrialContributions:
    """Contribution of a unit, or of all units of a client, in every trial."""

    total: Tensor  # float32 (trials, parameters)
    # Whether a client's update was within the adaptive clipping norm, 1 or 0, float64 (trials,); of users 1/2 and for
    # each that is within 1/2 more, for each that is not 1/2 less. None elsewhere.
    within: Tensor | None = None

    @property
    def centred_bits(self) -> Tensor:
        """The bits less one half, float64 (trials,); zero where there are none."""
        return torch.zeros(len(self.total)).double() if self.within is None else self.within - 0.5

    def times(self, counts: Tensor) -> "TrialContributions":
        """Return the contribution where the unit takes part in some trials only, bool (trials,); zero in the others."""
        # Without a unit there is no bit either: a bit of one half is one that adds nothing once it is centred.
        within = None if self.within is None else torch.where(counts, self.within, 0.5)
        return TrialContributions(self.total * counts.unsqueeze(1), within)


def contributed(
    federation: LoadedFederation,
    client: int,
    examples: Examples,
    models: Tensor,
    moment: RoundContext,
    taking_part: Tensor | None = None,
) -> TrialContributions:
    """Return the clipped contribution of some examples of a client, where the examples determine it without secrets.

    Parameters
    ----------
    federation
        The federation, whose clients do not train privately.
    client
        Number of the client that holds the examples. It is a key of the order of local training.
    examples
        The examples, the same in every trial or different ones; if clients are the units, all examples of the client.
    models
        Parameters of the models, float32 (trials, parameters).
    moment
        The round, with what is public of it.
    taking_part
        Whether each example takes part, bool (trials, n); None if all take part.

    Raises
    ------
    AssertionError
        If clients train privately.
    """
    mechanism = federation.public.mechanism
    match mechanism.contribution:
        case RecordGradients():
            norm = None if isinf(mechanism.clipping_norm) else mechanism.clipping_norm
            shapes = moment.batch_trials if taking_part is None else None
            features, labels = examples.features, examples.labels
            return TrialContributions(federation.model.clipped_sum(models, features, labels, norm, shapes, taking_part))
        case UserGradients():
            norms = (
                None
                if isinf(mechanism.clipping_norm)
                else mechanism.clipping_norm
                if moment.norms is None
                else moment.norms
            )
            shapes = moment.batch_trials if taking_part is None else None
            total, bits = clipped_sum_of(examples.by_user, federation.model, models, norms, shapes, taking_part)
            return TrialContributions(total, bits + 0.5 if mechanism.is_adaptive else None)
        case LocalTraining(schedule):
            draw, features, labels = _order_draw(federation, client, moment), examples.features, examples.labels
            if taking_part is None and schedule.optimizer is local_training.LocalOptimizer.SGD:
                batches = local_training.local_batches(examples.count, schedule, draw)
                updates = local_training.local_updates(federation.model, models, features, labels, schedule, batches)
                return _clipped(mechanism, updates, moment)
            # In each trial the client trains on those of its examples that are in.
            everything = np.ones((len(models), examples.count), dtype=np.bool_)
            present = everything if taking_part is None else taking_part.cpu().numpy()
            batches = local_training.member_batches(present, schedule, draw)
            updates = local_training.member_updates(federation.model, models, features, labels, schedule, batches)
            return _clipped(mechanism, updates, moment)
        case PrivateTraining():
            raise AssertionError("what a client draws in its training nobody can recompute: see `private_training`")
        case _:
            assert_never(mechanism.contribution)


def contributed_together(
    federation: LoadedFederation, clients: Sequence[int], models: Tensor, moment: RoundContext
) -> list[TrialContributions]:
    """Return the contributions of several clients in one trial, computed together, equal to those of `contributed`.

    Their models are stacked, like trials with records of their own, which takes less time than one after the other.

    Parameters
    ----------
    federation
        The federation.
    clients
        Numbers of at least one client, for which `trains_together` holds.
    models
        Parameters of the trial's model, float32 (1, parameters).
    moment
        The round, with what is public of it.
    """
    mechanism, held = federation.public.mechanism, [federation.honest_shard(client) for client in clients]
    assert isinstance(mechanism.contribution, LocalTraining)
    schedule, draws = mechanism.contribution.schedule, [_order_draw(federation, client, moment) for client in clients]
    orders = [local_training.local_batches(one.count, schedule, draw) for one, draw in zip(held, draws, strict=True)]
    steps, starts = [np.stack(step) for step in zip(*orders, strict=True)], models.expand(len(clients), -1)
    features, labels = torch.stack([one.features for one in held]), torch.stack([one.labels for one in held])
    updates = local_training.local_updates(federation.model, starts, features, labels, schedule, steps)
    return [_clipped(mechanism, updates[row : row + 1], moment) for row in range(len(clients))]


def trains_together(federation: LoadedFederation, clients: Sequence[int]) -> bool:
    """Return whether `contributed_together` can take these clients: all train locally, on equally many records.

    Parameters
    ----------
    federation
        The federation.
    clients
        Numbers of the clients.
    """
    contribution, sizes = (
        federation.public.mechanism.contribution,
        {len(federation.honest_shard(client).labels) for client in clients},
    )
    if not isinstance(contribution, LocalTraining) or len(sizes) != 1:
        return False
    return local_training.trains_stacked(federation.model, sizes.pop(), contribution.schedule)


def _order_draw(federation: LoadedFederation, client: int, moment: RoundContext) -> np.random.Generator:
    """Return the source of the order in which a client takes its records: public, and the same in all trials."""
    return generator(federation.public.data_seed, Purpose.LOCAL_ORDER, round=moment.number, client=client)


def _clipped(mechanism: Mechanism, updates: Tensor, moment: RoundContext) -> TrialContributions:
    """Return a client's clipped updates, in the memory of the updates."""
    if isinf(mechanism.clipping_norm):
        return TrialContributions(updates)
    clipped, lengths = local_training.clip_updates(
        updates, mechanism.clipping_norm if moment.norms is None else moment.norms
    )
    if moment.norms is None:
        return TrialContributions(clipped)
    return TrialContributions(clipped, (lengths.double() <= moment.norms).double())


def nothing(models: Tensor, is_adaptive: bool) -> TrialContributions:
    """Return the contribution of a missing unit, which is zero.

    Parameters
    ----------
    models
        Parameters of the models, float32 (trials, parameters).
    is_adaptive
        Whether a quantile bit goes with the contribution; that of a missing unit is 1/2.
    """
    within = torch.full((len(models),), 0.5, dtype=torch.float64) if is_adaptive else None
    return TrialContributions(torch.zeros_like(models), within)


def differing_contributions(
    federation: LoadedFederation,
    models: Tensor,
    moment: RoundContext,
    told: tuple[Examples, Examples | None] | None = None,
) -> tuple[TrialContributions, TrialContributions]:
    """Return the contribution of the differing unit under D, and of its replacement, if any, under D'.

    Victim and insider both call this, with the same shapes, so that they agree to the last bit.

    Parameters
    ----------
    federation
        The federation with D and D'.
    models
        Parameters of the models, float32 (trials, parameters).
    moment
        The round, with what is public of it.
    told
        The differing unit and its replacement after their owner's local randomization; None without one.
    """
    differing, replacement = (federation.differing, federation.replacement) if told is None else told
    present = contributed(federation, federation.victim, differing, models, moment)
    if replacement is None:
        return present, nothing(models, federation.public.mechanism.is_adaptive)
    return present, contributed(federation, federation.victim, replacement, models, moment)


@dataclass(frozen=True)
class ClientRandomness:
    """Sources of randomness from which a client draws its samples and its noise."""

    seed: int  # the client's own secret seed
    trials: tuple[int, ...]  # numbers of the trials that are trained

    def of_round(self, server_round: int, for_canaries: bool = False) -> list[np.random.Generator]:
        """Return the generators of a round, one for each trial.

        Parameters
        ----------
        server_round
            Number of the round, from 1.
        for_canaries
            Whether the generators draw the steps that contain canary records, instead of samples and noise.
        """
        number = int(for_canaries)
        return [
            generator(self.seed, Purpose.CLIENT_TRAINING, trial=trial, round=server_round, client=number)
            for trial in self.trials
        ]


def private_steps(mechanism: Mechanism) -> PrivateSteps:
    """Return the settings of a client's private training in a round."""
    assert isinstance(mechanism.contribution, PrivateTraining), "asked only where clients train privately"
    return PrivateSteps(mechanism.contribution.schedule, mechanism.clipping_norm, mechanism.noise_multiplier)


def step_sample(mechanism: Mechanism, records: int, draws: ClientRandomness, server_round: int) -> Flags:
    """Return which of its records a client's first step of a round takes, (trials, records).

    Parameters
    ----------
    mechanism
        The mechanism, whose clients train privately.
    records
        Number of the client's records.
    draws
        The client's sources of randomness.
    server_round
        Number of the round, from 1.
    """
    batch = private_steps(mechanism).schedule.batch
    return np.stack([first_sample(records, batch, source) for source in draws.of_round(server_round)])


def trained_privately(
    federation: LoadedFederation,
    client: int,
    models: Tensor,
    server_round: int,
    draws: ClientRandomness,
    is_in: Flags | None = None,
    accountant: str | None = None,
    canaries: CanaryRecords | None = None,
) -> PrivateUpdates:
    """Return a client's private updates of a round, which cannot be reproduced without the client's secret seed.

    Parameters
    ----------
    federation
        The federation.
    client
        Number of the client.
    models
        Parameters of the models, float32 (trials, parameters).
    server_round
        Number of the round, from 1.
    draws
        Secret seed of the client with the numbers of the trials; draws are keyed by seed, trial and round.
    is_in
        Whether the differing record is in, shape (trials,); None where the client does not hold this record.
    accountant
        State of the client's accountant before the round; None for none.
    canaries
        Canary records beside the client's shard; None for none.
    """
    examples, present = federation.shard(client), None
    if is_in is not None:
        present = np.ones((len(models), examples.count), dtype=np.bool_)
        present[:, federation.differs(client)] = is_in[:, None]
    steps, sources = private_steps(federation.public.mechanism), draws.of_round(server_round)
    features, labels = examples.features, examples.labels
    return private_updates(federation.model, models, features, labels, steps, sources, present, accountant, canaries)


def expected_update(federation: LoadedFederation, client: int, models: Tensor) -> tuple[Tensor, Tensor]:
    """Return the expected update of a client, in which every step moves by its mean and without noise.

    A step takes every record with the same probability and divides by the mean batch, so that on average it moves by
    the learning rate times the mean clipped gradient of the shard. The first result, float32 (trials, parameters), is
    the update on the records that the client holds in every trial. The second is what the differing record would add to
    this update, to first order; it is zero for a client that does not hold this record.

    Parameters
    ----------
    federation
        The federation.
    client
        Number of the client.
    models
        Parameters of the models, float32 (trials, parameters).
    """
    steps, records = private_steps(federation.public.mechanism), len(federation.shards[client])
    rate, honest = steps.schedule.learning_rate / records, federation.honest_shard(client)
    differing = federation.differing if client == federation.victim else None
    current, of_differing = models.clone(), torch.zeros_like(models)
    for _ in range(steps.count(records)):
        if differing is not None:
            of_differing.add_(_clipped_sum(federation, current, differing), alpha=rate)
        current.sub_(_clipped_sum(federation, current, honest), alpha=rate)
    return models - current, of_differing


def _clipped_sum(federation: LoadedFederation, models: Tensor, examples: Examples) -> Tensor:
    return federation.model.clipped_sum(
        models, examples.features, examples.labels, federation.public.mechanism.clipping_norm
    )
