"""Train clients by local DP-SGD, with draws from their secret seeds, and compute their expected updates."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Flags
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.private_training import (
    GradientCanaries,
    LocalDPSGDSettings,
    PrivateUpdates,
    first_sample,
    private_updates,
)
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class ClientRandomness:
    """Random generators from which a client draws its secret samples and noise, one per trial and round."""

    seed: int  # the client's own secret seed
    trials: tuple[int, ...]  # numbers of the trials that are trained

    def of_round(self, server_round: int, for_canaries: bool = False) -> list[np.random.Generator]:
        """Return the random generators for one round, in the order of `trials`."""
        number = int(for_canaries)
        return [
            generator(self.seed, Purpose.CLIENT_TRAINING, trial=trial, round=server_round, client=number)
            for trial in self.trials
        ]


def private_steps(mechanism: Mechanism) -> LocalDPSGDSettings:
    """Return the settings of a client's DP-SGD training in a round: schedule, clipping norm, noise multiplier."""
    assert isinstance(mechanism.contribution, PrivateTraining), "asked only where clients train privately"
    return LocalDPSGDSettings(mechanism.contribution.schedule, mechanism.clipping_norm, mechanism.noise_multiplier)


def step_sample(mechanism: Mechanism, records: int, randomness: ClientRandomness, server_round: int) -> Flags:
    """Return whether a client's first DP-SGD step of a round samples each of its records, bool (trials, records)."""
    batch = private_steps(mechanism).schedule.batch
    return np.stack([first_sample(records, batch, source) for source in randomness.of_round(server_round)])


def trained_privately(
    federation: LoadedFederation,
    client: int,
    models: Tensor,
    server_round: int,
    randomness: ClientRandomness,
    is_in: Flags | None = None,
    accountant: str | None = None,
    canaries: GradientCanaries | None = None,
) -> PrivateUpdates:
    """Train a client's models by local DP-SGD for one round and return the updates of all trials.

    Only a party that knows the client's secret seed can reproduce the updates.

    Shapes: `models` (trials, parameters), `is_in` (trials,).
    """
    examples, present = federation.shard(client), None
    if is_in is not None:
        present = np.ones((len(models), examples.count), dtype=np.bool_)
        present[:, federation.differs(client)] = is_in[:, None]
    steps, sources = private_steps(federation.public.mechanism), randomness.of_round(server_round)
    features, labels = examples.features, examples.labels
    return private_updates(federation.model, models, features, labels, steps, sources, present, accountant, canaries)


def expected_update(federation: LoadedFederation, client: int, models: Tensor) -> tuple[Tensor, Tensor]:
    """Return a client's expected update under local DP-SGD, and the differing record's part in it.

    The first result is the expected update on the records that the client holds in every trial. The second is its
    change by the differing record, to first order; zero for a client without this record. Both are float32 (trials,
    parameters). The expected movement of a step is the learning rate times the mean clipped gradient of the client's
    records.

    Shapes: `models` (trials, parameters).
    """
    steps, records = private_steps(federation.public.mechanism), len(federation.shards[client])
    rate, honest = steps.schedule.learning_rate / records, federation.shard_without_targets(client)
    differing = federation.differing if client == federation.victim else None
    current, of_differing = models.clone(), torch.zeros_like(models)
    for _ in range(steps.count(records)):
        if differing is not None:
            of_differing.add_(clipped_gradient_sum(federation, current, differing), alpha=rate)
        current.sub_(clipped_gradient_sum(federation, current, honest), alpha=rate)
    return models - current, of_differing


def clipped_gradient_sum(
    federation: LoadedFederation,
    models: Tensor,
    examples: Examples,
    taking_part: Tensor | None = None,
    slack: float = 0.0,
) -> Tensor:
    """Return the sum of the examples' gradients, each clipped to the mechanism's norm, float32 (trials, parameters).

    Shapes: `models` (trials, parameters), `taking_part` (trials, n).
    """
    norm = federation.public.mechanism.clipping_norm
    return federation.model.clipped_sum(
        models, examples.features, examples.labels, norm, taking_part=taking_part, slack=slack
    )
