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

from fl_audit.array_types import Flags
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning import local_training
from fl_audit.learning.private_training import (
    GradientCanaries,
    LocalDPSGDSettings,
    PrivateUpdates,
    first_sample,
    private_updates,
)
from fl_audit.learning.user_gradients import clipped_user_sum
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
    """Contribution of one unit, or of all units of one client, to the sum of a round, in each trial.

    A trial is one of the repeated trainings of an audit.
    """

    total: Tensor  # the contribution, float32 (trials, parameters)
    # Quantile bits, float64 (trials,), if clipping is adaptive; otherwise None. For a client: 1 if its update was
    # within the clipping norm, else 0. For users: 1/2, plus 1/2 for each user within the norm, minus 1/2 for each other
    # user.
    within: Tensor | None = None

    @property
    def centred_bits(self) -> Tensor:
        """The quantile bits `within` minus 1/2, float64 (trials,); all zero if clipping is not adaptive.

        A quantile bit tells whether an update was within the adaptive clipping norm.
        """
        none = torch.zeros(len(self.total), dtype=torch.float64, device=self.total.device)
        return none if self.within is None else self.within - 0.5

    def times(self, counts: Tensor) -> "ContributionByTrial":
        """Return a copy that contributes nothing in the trials in which the unit does not participate.

        `counts` tells in which trials the unit participates, bool (trials,).
        """
        # Without a unit there is no bit either: a bit of one half is one that adds nothing once it is centred.
        within = None if self.within is None else torch.where(counts, self.within, 0.5)
        return ContributionByTrial(self.total * counts.unsqueeze(1), within)


def contributed(
    federation: LoadedFederation,
    client: int,
    examples: Examples,
    models: Tensor,
    moment: RoundContext,
    taking_part: Tensor | None = None,
) -> ContributionByTrial:
    """Compute the clipped contribution of some examples of a client in each trial.

    Parameters
    ----------
    federation
        The federation, whose clients do not train by DP-SGD.
    client
        Number of the client that holds the examples. It seeds the order of records in local training.
    examples
        The examples, the same in every trial or different in each; if clients are the units, all examples of the
        client.
    models
        Model parameters, one row per trial; float32 (trials, parameters).
    moment
        Number of the round, from 1, and its clipping norms if clipping is adaptive.
    taking_part
        Whether each of the n examples participates in each trial, bool (trials, n); None if all do.

    Raises
    ------
    AssertionError
        If clients train by DP-SGD of their own, whose draws are secret; use `trained_privately`.
    """
    mechanism = federation.public.mechanism
    match mechanism.contribution:
        case RecordGradients():
            norm = None if isinf(mechanism.clipping_norm) else mechanism.clipping_norm
            shapes = moment.batch_trials if taking_part is None else None
            features, labels = examples.features, examples.labels
            return ContributionByTrial(
                federation.model.clipped_sum(models, features, labels, norm, shapes, taking_part)
            )
        case UserGradients():
            norms = (
                None
                if isinf(mechanism.clipping_norm)
                else mechanism.clipping_norm
                if moment.norms is None
                else moment.norms
            )
            shapes = moment.batch_trials if taking_part is None else None
            total, bits = clipped_user_sum(federation.model, models, examples.by_user, norms, shapes, taking_part)
            return ContributionByTrial(total, bits + 0.5 if mechanism.is_adaptive else None)
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
) -> list[ContributionByTrial]:
    """Compute each client's contribution to one trial, for several clients at once.

    The results equal those of `contributed`. They are computed faster, because the clients' models are stacked like the
    models of several trials.

    Parameters
    ----------
    federation
        The federation with its records and its model.
    clients
        Numbers of at least one client, for which `trains_together` holds.
    models
        Parameters of the trial's model, float32 (1, parameters).
    moment
        Number of the round, from 1, and its clipping norms if clipping is adaptive.
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
    """Return True if `contributed_together` accepts the clients.

    They must train locally on equally many records, with a model and a schedule for which models can be stacked.

    Parameters
    ----------
    federation
        The federation with its records and its model.
    clients
        Numbers of the clients, from 0.
    """
    contribution, sizes = (
        federation.public.mechanism.contribution,
        {len(federation.honest_shard(client).labels) for client in clients},
    )
    if not isinstance(contribution, LocalTraining) or len(sizes) != 1:
        return False
    return local_training.trains_stacked(federation.model, sizes.pop(), contribution.schedule)


def _order_draw(federation: LoadedFederation, client: int, moment: RoundContext) -> np.random.Generator:
    """Return the public random generator that orders a client's records in a round; it is the same in all trials.

    `moment` has the number of the round.
    """
    return generator(federation.public.data_seed, Purpose.LOCAL_ORDER, round=moment.number, client=client)


def _clipped(mechanism: Mechanism, updates: Tensor, moment: RoundContext) -> ContributionByTrial:
    """Clip a client's updates in place, and return them as its contribution.

    `updates` is float32 (trials, parameters). If clipping is adaptive, the result includes the quantile bits, which
    tell whether each update was within the clipping norm. Updates stay unclipped if the clipping norm is infinite.
    """
    if isinf(mechanism.clipping_norm):
        return ContributionByTrial(updates)
    clipped, lengths = local_training.clip_updates(
        updates, mechanism.clipping_norm if moment.norms is None else moment.norms
    )
    if moment.norms is None:
        return ContributionByTrial(clipped)
    return ContributionByTrial(clipped, (lengths.double() <= moment.norms).double())


def nothing(models: Tensor, is_adaptive: bool) -> ContributionByTrial:
    """Return the contribution of a missing unit: zero in every trial.

    Parameters
    ----------
    models
        Model parameters, one row per trial; float32 (trials, parameters).
    is_adaptive
        Whether clipping is adaptive; the result then has quantile bits of 1/2, which count neither as within the
        clipping norm nor as above it.
    """
    within = torch.full((len(models),), 0.5, dtype=torch.float64, device=models.device) if is_adaptive else None
    return ContributionByTrial(torch.zeros_like(models), within)


def differing_contributions(
    federation: LoadedFederation,
    models: Tensor,
    moment: RoundContext,
    told: tuple[Examples, Examples | None] | None = None,
) -> tuple[ContributionByTrial, ContributionByTrial]:
    """Return the contributions of the unit by which D and D' differ, and of the unit that replaces it in D'.

    The second contribution is zero if nothing replaces the unit. The victim, the client that holds the unit, and the
    insider, a client that attacks, call this function with tensors of the same shapes. So their results agree to the
    last bit.

    Parameters
    ----------
    federation
        The federation with D and D'.
    models
        Model parameters, one row per trial; float32 (trials, parameters).
    moment
        Number of the round, from 1, and its clipping norms if clipping is adaptive.
    told
        The differing unit and its replacement after local randomization by their owner; None without randomization.
    """
    differing, replacement = (federation.differing, federation.replacement) if told is None else told
    present = contributed(federation, federation.victim, differing, models, moment)
    if replacement is None:
        return present, nothing(models, federation.public.mechanism.is_adaptive)
    return present, contributed(federation, federation.victim, replacement, models, moment)


@dataclass(frozen=True)
class ClientRandomness:
    """Random generators from which a client draws its secret samples and noise, one per trial and round."""

    seed: int  # the client's own secret seed
    trials: tuple[int, ...]  # numbers of the trials that are trained

    def of_round(self, server_round: int, for_canaries: bool = False) -> list[np.random.Generator]:
        """Return the client's random generators for one round: one per trial, in the order of `trials`.

        Parameters
        ----------
        server_round
            Number of the round, from 1.
        for_canaries
            If True, the generators choose the training steps that contain canary records; if False, they draw the
            samples and the noise.
        """
        number = int(for_canaries)
        return [
            generator(self.seed, Purpose.CLIENT_TRAINING, trial=trial, round=server_round, client=number)
            for trial in self.trials
        ]


def private_steps(mechanism: Mechanism) -> LocalDPSGDSettings:
    """Return the settings of a client's DP-SGD training in a round: schedule, clipping norm, noise multiplier."""
    assert isinstance(mechanism.contribution, PrivateTraining), "asked only where clients train privately"
    return LocalDPSGDSettings(mechanism.contribution.schedule, mechanism.clipping_norm, mechanism.noise_multiplier)


def step_sample(mechanism: Mechanism, records: int, draws: ClientRandomness, server_round: int) -> Flags:
    """Return whether a client's first DP-SGD step of a round samples each of its records, bool (trials, records).

    Parameters
    ----------
    mechanism
        The mechanism of a federation whose clients train by DP-SGD.
    records
        Number of the client's records, from 1.
    draws
        The client's random generators, one per trial and round.
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
    canaries: GradientCanaries | None = None,
) -> PrivateUpdates:
    """Train a client's models by local DP-SGD for one round and return the updates of all trials.

    The draws depend on the client's secret seed, so only a party that knows the seed can reproduce the updates.

    Parameters
    ----------
    federation
        The federation with its records and its model.
    client
        Number of the client, from 0.
    models
        Model parameters, one row per trial; float32 (trials, parameters).
    server_round
        Number of the round, from 1.
    draws
        The client's secret seed and the numbers of the trials.
    is_in
        Whether the record by which D and D' differ is in the training set of each trial, bool (trials,); None if the
        client does not hold it.
    accountant
        State of the client's privacy accountant before the round; None if there is none.
    canaries
        Canary records (inserted records whose membership is random) that the client adds to its shard; None if there
        are none.
    """
    examples, present = federation.shard(client), None
    if is_in is not None:
        present = np.ones((len(models), examples.count), dtype=np.bool_)
        present[:, federation.differs(client)] = is_in[:, None]
    steps, sources = private_steps(federation.public.mechanism), draws.of_round(server_round)
    features, labels = examples.features, examples.labels
    return private_updates(federation.model, models, features, labels, steps, sources, present, accountant, canaries)


def expected_update(federation: LoadedFederation, client: int, models: Tensor) -> tuple[Tensor, Tensor]:
    """Return a client's expected update under local DP-SGD, and the differing record's part in it.

    The first result is the expected update on the records that the client holds in every trial. The second is the
    change of this update by the differing record, to first order; it is zero for a client that does not hold the
    record. Both are float32 (trials, parameters). A step samples each record with the same probability and divides by
    the expected batch size, so its expected movement is the learning rate times the mean clipped gradient of the
    client's records.

    Parameters
    ----------
    federation
        The federation with its records and its model.
    client
        Number of the client, from 0.
    models
        Model parameters, one row per trial; float32 (trials, parameters).
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
