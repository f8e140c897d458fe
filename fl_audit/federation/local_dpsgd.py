"""Train clients by local DP-SGD, with draws from their secret seeds, and compute likelihoods of what they release.

A client moves its model by eta / b times the sum of the clipped gradients of its sample and noise N(0, (z C)^2 I). Here
eta is the learning rate, b the expected batch size, z the noise multiplier and C the clipping norm.

The likelihoods are exact for a round in which every client takes a single step. From the released sum, the adversary
subtracts the updates whose noise it knows. It also subtracts the expected updates of the other clients, whose samples
it knows except for the differing record. It scales the rest so that the remaining noise has the standard deviation z C.
On this scale, the clipped gradient of the differing record has a norm of at most C. The norm is smaller if the
remaining noise includes noise of other clients beside that of the record's owner. The owner samples the record with a
known probability, so the distribution under D is then a mixture.
"""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Flags
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.observed_rounds import ObservedRound, require_seen
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.private_training import (
    CLIPPING_SLACK,
    GradientCanaries,
    LocalDPSGDSettings,
    PrivateUpdates,
    first_sample,
    private_updates,
)
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.likelihood_ratio import Hypotheses, LikelihoodRatioInput
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.randomness import Purpose, generator

_ROUNDING = 2.0**-23 / sqrt(12)
"""Root mean square of the rounding of a float32 number between 1 and 2."""


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
    examples = federation.shard(client)
    present = None
    if is_in is not None:
        present = np.ones((len(models), examples.count), dtype=np.bool_)
        present[:, federation.differs(client)] = is_in[:, None]
    steps = private_steps(federation.public.mechanism)
    sources = randomness.of_round(server_round)
    features = examples.features
    labels = examples.labels
    return private_updates(federation.model, models, features, labels, steps, sources, present, accountant, canaries)


def expected_update(federation: LoadedFederation, client: int, models: Tensor) -> tuple[Tensor, Tensor]:
    """Return a client's expected update under local DP-SGD, and the differing record's part in it.

    The first result is the expected update on the records that the client holds in every trial. The second is its
    change by the differing record, to first order; zero for a client without this record. Both are float32 (trials,
    parameters). The expected movement of a step is the learning rate times the mean clipped gradient of the client's
    records.

    Shapes: `models` (trials, parameters).
    """
    steps = private_steps(federation.public.mechanism)
    records = len(federation.shards[client])
    rate = steps.schedule.learning_rate / records
    honest = federation.shard_without_targets(client)
    differing = federation.differing if client == federation.victim else None
    current = models.clone()
    of_differing = torch.zeros_like(models)
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


class _UpdateScaleFactors(NamedTuple):
    """Public factors for updates and sums of clipped gradients, after which the noise has standard deviation z C."""

    clients: tuple[int, ...]  # clients whose noise the adversary does not know
    of_updates: float  # factor of updates
    of_sums: dict[int, float]  # factor of each client's sum of clipped gradients, by client


def dpsgd_likelihood_ratio_input(federation: LoadedFederation, observed_round: ObservedRound) -> LikelihoodRatioInput:
    """Return the input of the likelihood ratio test for a round in which each client takes one DP-SGD step."""
    scale = _scale(federation)
    training = federation.public.mechanism.contribution
    assert isinstance(training, PrivateTraining), "asked only where clients train privately"
    observed = _unknown_updates(federation, observed_round) * scale.of_updates
    shared = torch.zeros_like(observed_round.start)
    for client in scale.clients:
        shared += scale.of_sums[client] * _sum_of_common(federation, observed_round, client)
    weight = training.rate_of(len(federation.shards[federation.victim]))
    present = clipped_gradient_sum(federation, observed_round.start, federation.differing, slack=CLIPPING_SLACK)
    present = scale.of_sums[federation.victim] * present
    return LikelihoodRatioInput(observed, Hypotheses(shared, present, torch.zeros_like(present), weight))


def rounding_of_steps(federation: LoadedFederation, observed: ObservedRound) -> Tensor:
    """Return the root mean square of the rounding error in the updates that the adversary sees, float64 (trials,).

    The error is in the units of the likelihood ratio test, in which the noise has the standard deviation z C (noise
    multiplier times clipping norm). A client's update is the difference of two float32 models, of which the second is
    rounded. The error covers the updates of all clients whose noise the adversary does not know. If an insider recovers
    the noised sum from models, the rounding of this sum is added.
    """
    scale = _scale(federation)
    rounding = rounding_of_update(observed.start) * sqrt(len(scale.clients))
    recovered = observed.rounding(federation.public.mechanism)
    if recovered is not None and federation.public.threat_model.adversary is Adversary.CLIENT:
        rounding = (rounding.square() + recovered.square()).sqrt()
    return rounding * scale.of_updates


def rounding_of_update(models: Tensor) -> Tensor:
    """Return the root mean square rounding error of one client's update in float32, float64 (trials,).

    Shapes: `models` (trials, parameters).
    """
    return _ROUNDING * models.double().square().mean(dim=1).sqrt()


def _scale(federation: LoadedFederation) -> _UpdateScaleFactors:
    steps = private_steps(federation.public.mechanism)
    victim = federation.victim
    known_clients = {federation.insider, *federation.colluders}
    clients = range(len(federation.shards))
    is_server = federation.public.threat_model.adversary is Adversary.SERVER
    unknown = (victim,) if is_server else tuple(client for client in clients if client not in known_clients)
    batch = {client: steps.mean_batch(len(federation.shards[client])) for client in unknown}
    hidden = sqrt(sum((batch[victim] / batch_size) ** 2 for batch_size in batch.values()))
    of_sums = {client: batch[victim] / batch_size / hidden for client, batch_size in batch.items()}
    return _UpdateScaleFactors(unknown, batch[victim] / steps.schedule.learning_rate / hidden, of_sums)


def _unknown_updates(federation: LoadedFederation, observed: ObservedRound) -> Tensor:
    """Return the sum of the updates whose noise the adversary does not know, float64 (trials, parameters).

    An insider knows the seeds of its own and its colluders' noise.
    """
    if federation.public.threat_model.adversary is Adversary.SERVER:
        return require_seen(observed.side.contribution, "the contribution of the target's client").double()
    tensor = observed.sums(federation.public.mechanism).double().clone()
    known_clients = (federation.insider, *federation.colluders)
    seeds = require_seen(observed.side.noise_seeds, "the seeds of the noise that the insider knows").tolist()
    trials = tuple(require_seen(observed.side.trial_numbers, "the numbers of the trials").tolist())
    for client, seed in zip(known_clients, seeds, strict=True):
        tensor -= trained_privately(
            federation, client, observed.start, observed.number, ClientRandomness(seed, trials)
        ).updates
    return tensor


def _sum_of_common(federation: LoadedFederation, observed: ObservedRound, client: int) -> Tensor:
    """Return the sum of the clipped gradients of a client's sampled records, without the differing record."""
    stays = ~federation.differs(client)
    if not stays.any():
        return torch.zeros_like(observed.start)
    participation = None
    if federation.public.mechanism.is_sampled:
        units = torch.from_numpy(federation.shards[client][stays])
        participation = (
            require_seen(observed.side.taking_part, "who took part").cpu()[:, units].bool().to(observed.start.device)
        )
    return clipped_gradient_sum(
        federation, observed.start, federation.shard_without_targets(client), participation, CLIPPING_SLACK
    )
