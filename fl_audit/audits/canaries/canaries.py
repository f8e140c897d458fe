"""Canaries of a simulated training: the contributions of canary clients, and the scores that an observer computes.

Directions are derived from the public seed, the trial, the round and the canary; the coins are the challenger's secret.
Where a canary that is out sends nothing, decoys are scored as well: directions that no client ever sends, whose scores
show the null distribution.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Relation, Unit
from fl_audit.array_types import Flags, Floats
from fl_audit.audits.canaries.canary_draws import DECOYS, canary_direction, canary_score, canary_update
from fl_audit.federation.contributions import TrialContributions, private_steps
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.observed_rounds import ObservedRound
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.threat_model import Adversary


def directions_read(public: Federation) -> int:
    """Return the number of directions along which each release is scored: all canaries, and the decoys if any."""
    return public.canaries + (DECOYS if public.mechanism.adjacency.relation is Relation.ADD_REMOVE else 0)


def canary_contribution(
    federation: LoadedFederation,
    canary: int,
    server_round: int,
    trials: tuple[int, ...],
    coins: Flags,
    norms: Tensor | None,
) -> TrialContributions:
    """Return the contribution of a canary client: its canary if the coin is heads, otherwise nothing or its opposite.

    The canary has the clipping norm. The opposite is sent where the relation is replacement.

    Parameters
    ----------
    federation
        The federation with its canary clients.
    canary
        Number of the canary, from 0.
    server_round
        Number of the round, from 1.
    trials
        Numbers of the trials in the batch of trials.
    coins
        Whether the canary is in, in each trial, shape (trials,).
    norms
        Clipping norms of the round, float64, shape (trials,), if clipping is adaptive; otherwise None.
    """
    mechanism, size = federation.public.mechanism, federation.model.layout.size
    lengths = np.full(len(trials), mechanism.clipping_norm) if norms is None else norms.cpu().numpy()
    is_replaced = mechanism.adjacency.relation is Relation.REPLACE
    signs = np.where(coins, 1.0, -1.0 if is_replaced else 0.0)
    total = np.zeros((len(trials), size), dtype=np.float32)
    for row, trial in enumerate(trials):
        if signs[row]:
            direction = canary_direction(federation.public.data_seed, server_round, canary, size, trial)
            total[row] = canary_update(signs[row] * direction, float(lengths[row]))
    bits = torch.from_numpy(np.where(coins | is_replaced, 1.0, 0.5)) if mechanism.is_adaptive else None
    return TrialContributions(torch.from_numpy(total), bits)


def canary_records(federation: LoadedFederation, server_round: int, trials: tuple[int, ...]) -> list[Tensor]:
    """Return the unit-norm gradients of the canary records of a round, float32 (canaries, parameters), for each trial.

    Parameters
    ----------
    federation
        The federation with its canary records.
    server_round
        Number of the round, from 1.
    trials
        Numbers of the trials in the batch of trials.
    """
    seed, canaries, size = federation.public.data_seed, range(federation.public.canaries), federation.model.layout.size
    drawn = ([canary_direction(seed, server_round, one, size, trial) for one in canaries] for trial in trials)
    return [torch.from_numpy(np.stack(one).astype(np.float32)) for one in drawn]


def canary_scores(federation: LoadedFederation, seen: ObservedRound, trials: tuple[int, ...]) -> Floats:
    """Return the inner products of the releases with all directions, (trials, directions), in units of one canary.

    Parameters
    ----------
    federation
        The federation with its canaries.
    seen
        The observer's view of the round, with the releases.
    trials
        Numbers of the trials in the batch of trials.
    """
    public, at_server = federation.public, federation.public.threat_model.adversary is Adversary.SERVER
    observed = seen.side.contribution if at_server else seen.sums(public.mechanism)
    assert observed is not None, "the server sees what every client sent"
    units = np.broadcast_to(_unit(federation) if seen.side.norms_array is None else seen.side.norms_array, len(trials))
    scores = np.empty((len(trials), directions_read(public)))
    for row, (trial, sums) in enumerate(zip(trials, observed.double().cpu().numpy(), strict=True)):
        for one in range(scores.shape[1]):
            direction = canary_direction(public.data_seed, seen.number, one, sums.size, trial)
            scores[row, one] = canary_score(sums, direction) / units[row]
    return scores


def parts(public: Federation, steps: int, times: Floats) -> Floats:
    """Return the share of a whole canary that each score contains if the canary is in.

    It is 1, or with DP-SGD at the clients times / sqrt(steps), since the steps sample records.

    Parameters
    ----------
    public
        The public facts of the federation.
    steps
        Number of local steps of the canaries' client in a round.
    times
        Number of local steps that sampled each canary, of any shape.
    """
    return times / sqrt(steps) if isinstance(public.mechanism.contribution, PrivateTraining) else np.ones_like(times)


@dataclass(frozen=True)
class CanaryFacts:
    """The facts about a federation's canaries that are known before the run."""

    # of one canary in one round by the noise that the mechanism prescribes; of one step where the steps are noised
    mu: float
    client: int | None = None  # the client whose records the canaries are; None where they are clients
    records: int = 0  # number of that client's other records; 0 where canaries are clients
    others: float = 0.0  # largest contribution of all others to a release, in canaries, on average over rounds
    size: int = 1  # number of parameters


def canary_facts(federation: LoadedFederation) -> CanaryFacts | None:
    """Return the facts about a federation's canaries that are known before the run; None if it has no canaries."""
    mechanism = federation.public.mechanism
    if federation.public.canaries == 0:
        return None
    if not isinstance(mechanism.contribution, PrivateTraining):
        units = federation.public.clients if mechanism.adjacency.unit is Unit.CLIENT else federation.public.records
        others = mechanism.participation.mean_units(units)
        return CanaryFacts(1 / mechanism.noise_multiplier, others=others, size=federation.model.layout.size)
    steps, own = private_steps(mechanism), len(federation.shards[federation.victim])
    seen = (
        [own]
        if federation.public.threat_model.adversary is Adversary.SERVER
        else [len(shard) for shard in federation.shards]
    )
    # A step moves by a canary over the mean batch, and by its records by no more than one canary.
    others = steps.mean_batch(own) * sum(map(steps.count, seen)) / sqrt(steps.count(own))
    mu = _unit(federation) / sqrt(sum(map(steps.update_variance, seen)))
    return CanaryFacts(mu, federation.victim, own, others, federation.model.layout.size)


def _unit(federation: LoadedFederation) -> float:
    """Return the norm of a canary in the release: the clipping norm, or the norm of its effect on the local steps."""
    mechanism = federation.public.mechanism
    if not isinstance(mechanism.contribution, PrivateTraining):
        return mechanism.clipping_norm
    steps, records = private_steps(mechanism), len(federation.shards[federation.victim])
    return sqrt(steps.update_variance(records)) / mechanism.noise_multiplier
