"""Compute the contributions of canary clients in a simulated training, and the scores of canaries from a release.

A canary is a random direction that a secret coin includes in a round or leaves out. Directions are derived from the
public seed, the trial, the round and the canary. Decoys are directions that no client ever sends, so their scores show
the null distribution. They are scored only if a canary that is left out sends nothing, not if it sends its negative.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Relation, Unit
from fl_audit.array_types import Flags, Floats
from fl_audit.audits.canaries.canary_draws import DECOYS, canary_direction, canary_score, canary_update
from fl_audit.federation.contributions import ContributionByTrial
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import private_steps
from fl_audit.federation.observed_rounds import ObservedRound
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.threat_model import Adversary


def directions_read(federation: Federation) -> int:
    """Return the number of directions for which each release is scored.

    These are the directions of the canaries. Under add-remove adjacency there are decoys as well: directions that are
    never inserted.
    """
    return federation.canaries + (DECOYS if federation.mechanism.adjacency.relation is Relation.ADD_REMOVE else 0)


def canary_contribution(
    federation: LoadedFederation,
    canary: int,
    server_round: int,
    trials: tuple[int, ...],
    coins: Flags,
    norms: Tensor | None,
) -> ContributionByTrial:
    """Return what a canary client sends in a round, for each trial of a batch.

    If the coin is heads, it sends the canary: its random direction at the clipping norm. If the coin is tails, it sends
    the opposite vector under the replacement relation, and zeros otherwise.

    Shapes: `coins` (n,), `norms` (n,).
    """
    mechanism = federation.public.mechanism
    size = federation.model.layout.size
    lengths = np.full(len(trials), mechanism.clipping_norm) if norms is None else norms.cpu().numpy()
    is_replaced = mechanism.adjacency.relation is Relation.REPLACE
    signs = np.where(coins, 1.0, -1.0 if is_replaced else 0.0)
    total = np.zeros((len(trials), size), dtype=np.float32)
    for row, trial in enumerate(trials):
        if signs[row]:
            direction = canary_direction(federation.public.data_seed, server_round, canary, size, trial)
            total[row] = canary_update(signs[row] * direction, float(lengths[row]))
    bits = torch.from_numpy(np.where(coins | is_replaced, 1.0, 0.5)) if mechanism.is_adaptive else None
    return ContributionByTrial(torch.from_numpy(total), bits)


def canary_records(federation: LoadedFederation, server_round: int, trials: tuple[int, ...]) -> list[Tensor]:
    """Return the gradients of the canary records of a round, with norm 1, as one tensor for each trial.

    Each tensor is float32 and has shape (canaries, parameters).
    """
    seed = federation.public.data_seed
    canaries = range(federation.public.canaries)
    size = federation.model.layout.size
    directions = (
        [canary_direction(seed, server_round, canary, size, trial) for canary in canaries] for trial in trials
    )
    return [torch.from_numpy(np.stack(canary_rows).astype(np.float32)) for canary_rows in directions]


def canary_scores(federation: LoadedFederation, observed_round: ObservedRound, trials: tuple[int, ...]) -> Floats:
    """Return the score of each canary and decoy in a round, shape (trials, directions).

    A score is the inner product of the release with the direction, divided by the norm of one canary in the release.
    """
    public = federation.public
    at_server = federation.public.threat_model.adversary is Adversary.SERVER
    observed = observed_round.side.contribution if at_server else observed_round.sums(public.mechanism)
    assert observed is not None, "the server sees what every client sent"
    units = np.broadcast_to(
        _norm_in_release(federation) if observed_round.side.norms_array is None else observed_round.side.norms_array,
        len(trials),
    )
    scores = np.empty((len(trials), directions_read(public)))
    for row, (trial, sums) in enumerate(zip(trials, observed.double().cpu().numpy(), strict=True)):
        for index in range(scores.shape[1]):
            direction = canary_direction(public.data_seed, observed_round.number, index, sums.size, trial)
            scores[row, index] = canary_score(sums, direction) / units[row]
    return scores


def expected_scores(federation: Federation, steps: int, times: Floats) -> Floats:
    """Return the expected score of each canary that the training includes, in the shape of `times`.

    A score of 1 belongs to a canary that is added in full to one release. Under DP-SGD at the clients the score is
    times / sqrt(steps), because only some of the local steps sample a canary. Otherwise all scores are 1.
    """
    return (
        times / sqrt(steps) if isinstance(federation.mechanism.contribution, PrivateTraining) else np.ones_like(times)
    )


@dataclass(frozen=True)
class PublicCanaryFacts:
    """Facts about a federation's canaries that are known before the run."""

    # The mu of Gaussian DP of one canary in one round (in one local step for DP-SGD at the clients), from the noise
    # that the mechanism prescribes.
    mu: float
    client: int | None = None  # the client that holds the canaries in DP-SGD at the clients; otherwise None
    records: int = 0  # number of records of `client` that are not canaries; 0 without `client`
    # Largest total contribution of everything but the canaries to a release, in units of one canary, as a mean over
    # rounds.
    others: float = 0.0
    size: int = 1  # number of parameters of the model


def canary_facts(federation: LoadedFederation) -> PublicCanaryFacts | None:
    """Return the facts about a federation's canaries that are known before the run; None if it has no canaries."""
    mechanism = federation.public.mechanism
    if federation.public.canaries == 0:
        return None
    if not isinstance(mechanism.contribution, PrivateTraining):
        units = federation.public.clients if mechanism.adjacency.unit is Unit.CLIENT else federation.public.records
        other_units = mechanism.participation.mean_units(units)
        return PublicCanaryFacts(1 / mechanism.noise_multiplier, others=other_units, size=federation.model.layout.size)
    steps = private_steps(mechanism)
    shard_size = len(federation.shards[federation.victim])
    rounds_seen = (
        [shard_size]
        if federation.public.threat_model.adversary is Adversary.SERVER
        else [len(shard) for shard in federation.shards]
    )
    # In a local step a canary has weight 1 over the mean batch, and no record has a larger one.
    other_units = steps.mean_batch(shard_size) * sum(map(steps.count, rounds_seen)) / sqrt(steps.count(shard_size))
    mu = _norm_in_release(federation) / sqrt(sum(map(steps.update_variance, rounds_seen)))
    return PublicCanaryFacts(mu, federation.victim, shard_size, other_units, federation.model.layout.size)


def _norm_in_release(federation: LoadedFederation) -> float:
    """Return the norm that one canary's contribution has in the release.

    If clients train by DP-SGD, this is the norm of the canary's effect on the update of its client.
    """
    mechanism = federation.public.mechanism
    if not isinstance(mechanism.contribution, PrivateTraining):
        return mechanism.clipping_norm
    steps = private_steps(mechanism)
    records = len(federation.shards[federation.victim])
    return sqrt(steps.update_variance(records)) / mechanism.noise_multiplier
