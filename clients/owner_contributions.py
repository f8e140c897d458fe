"""Contributions of data owners, each computed from a client's own records for all trials at once."""

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import torch

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats
from fl_audit.federation.contributions import ContributionByTrial, RoundContext, contributed, differing_contributions
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import ClientRandomness
from fl_audit.federation.locally_randomised_records import LocallyRandomisedRecords
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.mechanisms.likelihood_ratio import local_sensitivity
from fl_audit.mechanisms.noise_draws import noise_share


@dataclass(frozen=True)
class LocalTrainingInput:
    """Input of a client's training in a round: models of all trials, the round, and the participating records."""

    models: torch.Tensor  # float32 tensor (trials, parameters)
    round_context: RoundContext  # the round
    taking_part: Flags | None = None  # which records of its shard take part, (trials, records); None for all
    randomised_records: LocallyRandomisedRecords | None = (
        None  # its locally randomised records; None without a local randomizer
    )


def contribute(federation: LoadedFederation, client: int, training_input: LocalTrainingInput) -> ContributionByTrial:
    """Return a client's contribution in each trial, computed from its records that are in both D and D'.

    Parameters
    ----------
    federation
        The federation.
    client
        Number of the client.
    training_input
        Models, round and participating records of the client.
    """
    differs = federation.differs(client)
    honest = None
    if training_input.taking_part is not None:
        honest = torch.from_numpy(training_input.taking_part[:, ~differs]).to(training_input.models.device)
    shard = (
        federation.shard_without_targets(client)
        if training_input.randomised_records is None
        else training_input.randomised_records.shard
    )
    if training_input.randomised_records is not None and differs.any():
        shard = shard.take(np.flatnonzero(~differs))
    return contributed(federation, client, shard, training_input.models, training_input.round_context, honest)


def contribute_members(
    federation: LoadedFederation, client: int, training_input: LocalTrainingInput, membership: TargetMembership
) -> ContributionByTrial:
    """Return a client's contribution in each trial of the membership audit, from its records that are members.

    Parameters
    ----------
    federation
        The federation, with the client's records and the mechanism.
    client
        Number of the client.
    training_input
        Models, round and participating records of the client.
    membership
        Membership of the client's own targets in each trial.
    """
    shard = (
        federation.shard(client)
        if training_input.randomised_records is None
        else training_input.randomised_records.shard
    )
    match federation.unit:
        case Unit.RECORD | Unit.USER:
            present = federation.present(client, membership)
            if training_input.taking_part is not None:
                present &= training_input.taking_part
            # If all records are members in all trials, no mask is needed.
            rows = None if present.all() else torch.from_numpy(present).to(training_input.models.device)
            return contributed(federation, client, shard, training_input.models, training_input.round_context, rows)
        case Unit.CLIENT:
            contribution = contributed(federation, client, shard, training_input.models, training_input.round_context)
            bits = membership.is_in[:, 0] if membership.targets else np.ones(len(training_input.models), dtype=np.bool_)
            return contribution.times(torch.from_numpy(bits).to(contribution.total.device))
        case _:
            assert_never(federation.unit)


def contribute_as_victim(
    federation: LoadedFederation, training_input: LocalTrainingInput, membership: TargetMembership
) -> tuple[ContributionByTrial, Floats]:
    """Return the victim's contribution in each trial, and its local sensitivity Delta_i, shape (trials,).

    The victim holds the unit x in which D and D' differ. Its contribution includes x in trials in which x is a member,
    and otherwise the replacement of x, if there is one. Delta_i is the norm of the difference between the contributions
    with x and without x. With sampling, x and its replacement have the same position in the shard, and are therefore
    sampled in the same rounds.

    Parameters
    ----------
    federation
        The federation, with the victim's records and the mechanism.
    training_input
        Models, round and participating records of the victim.
    membership
        Membership of the differing unit in each trial.
    """
    positions = np.flatnonzero(federation.differs(federation.victim))
    randomised = (
        None
        if training_input.randomised_records is None
        else (training_input.randomised_records.shard.take(positions), training_input.randomised_records.replacement)
    )
    present, absent = differing_contributions(
        federation, training_input.models, training_input.round_context, randomised
    )
    bits = torch.from_numpy(membership.bits).to(present.total.device)
    contribution = torch.where(bits.unsqueeze(1), present.total, absent.total)
    ours = present.within
    absent_bit = absent.within
    within = None
    if ours is not None and absent_bit is not None:
        within = torch.where(bits, ours, absent_bit)
    if training_input.taking_part is not None:
        contribution = contribution * torch.from_numpy(training_input.taking_part[:, positions[:1]]).to(
            contribution.device
        )
        if within is not None:
            within = torch.where(
                torch.from_numpy(training_input.taking_part[:, positions[0]]).to(within.device), within, 0.5
            )
    norm = federation.public.mechanism.clipping.measured_in
    sensitivity = local_sensitivity(present.total, absent.total, norm)
    if len(federation.shard_without_targets(federation.victim).labels) == 0:
        return ContributionByTrial(contribution, within), sensitivity
    honest_contribution = contribute(federation, federation.victim, training_input)
    if within is not None and honest_contribution.within is not None:
        within = within + honest_contribution.within - 0.5  # each value is 1/2 plus the sum of (bit - 1/2)
    return ContributionByTrial(honest_contribution.total + contribution, within), sensitivity


def with_noise(
    federation: LoadedFederation, total: torch.Tensor, randomness: ClientRandomness, server_round: int
) -> torch.Tensor:
    """Return a client's contribution with its own share of the noise added, shape (trials, parameters).

    Parameters
    ----------
    federation
        The federation, whose mechanism defines the standard deviation of the share.
    total
        The contribution, float32 (trials, parameters).
    randomness
        Secret seed of the client's noise, and the numbers of the trials.
    server_round
        Number of the round, from 1.
    """
    share = noise_share(randomness.seed, randomness.trials, server_round, total.shape[1]).to(total.device)
    return total + federation.public.mechanism.share_scale * share
