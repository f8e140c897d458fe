"""Compute the sum of a round under the hypotheses D and D', in a form that an adversary can compare with the release.

The adversary knows every public value, all units but the differing one, and which of them participated. From these
values it computes the sum of the round under D and under D'. From the release, the adversary subtracts the noise that
it knows. If noise is correlated over rounds, it whitens the noise: it combines releases so that the noise of the
combinations is independent.
"""

from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.errors import require
from fl_audit.federation.contributions import (
    ContributionByTrial,
    RoundContext,
    contributed,
    differing_contributions,
    zero_contribution,
)
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import dpsgd_likelihood_ratio_input
from fl_audit.federation.observed_rounds import ObservedRound, SideInformation, require_seen
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.likelihood_ratio import Hypotheses, LikelihoodRatioInput
from fl_audit.mechanisms.noise_draws import noise_share
from fl_audit.mechanisms.threat_model import Adversary


def likelihood_ratio_input(
    federation: LoadedFederation, observed: ObservedRound, batch_trials: int | None = None
) -> LikelihoodRatioInput:
    """Return the input of a round's likelihood ratio test: the adversary's observation, and the sums under D and D'.

    Raises `InputError` if the adversary's view lacks a required value.
    """
    mechanism = federation.public.mechanism
    side = observed.side
    if isinstance(mechanism.contribution, PrivateTraining):
        return dpsgd_likelihood_ratio_input(federation, observed)
    if mechanism.rounds_needed > 1:
        return _whitened(federation, observed, batch_trials)
    moment = RoundContext(observed.number, side.norms, batch_trials)
    if federation.public.threat_model.adversary is Adversary.SERVER:
        return _of_contribution(federation, observed, moment)
    hypotheses = sums_of(federation, observed.start, moment, side)
    return LikelihoodRatioInput(_less_known_noise(federation, observed.sums(mechanism), observed), hypotheses)


def sums_of(federation: LoadedFederation, models: Tensor, context: RoundContext, side: SideInformation) -> Hypotheses:
    """Compute the sums of a round under the hypotheses D and D', without noise.

    Shapes: `models` (trials, parameters).
    """
    mechanism = federation.public.mechanism
    turn = federation.public.eligible_units(context.number)
    weight = mechanism.sampling_rate
    if turn is not None and federation.target not in turn:
        present = zero_contribution(models, mechanism.is_adaptive)
        absent = zero_contribution(models, mechanism.is_adaptive)
    else:
        present, absent = differing_contributions(federation, models, context)
    if mechanism.is_sampled and federation.public.threat_model.sees_participation:
        takes_part = require_seen(side.taking_part, "who took part")[:, federation.target].bool()
        present = present.times(takes_part)
        absent = absent.times(takes_part)
        weight = 1.0
    match federation.unit:
        case Unit.RECORD | Unit.USER:
            other_sums = None
            if mechanism.is_sampled:
                taking_part = require_seen(side.taking_part, "who took part").cpu().numpy()
                records = federation.common_records
                units = records if federation.user is None else federation.user[records]
                other_sums = torch.from_numpy(taking_part[:, units]).to(models.device)
            shared = contributed(federation, federation.victim, federation.common, models, context, other_sums)
        case Unit.CLIENT:
            shared = _sum_of_other_clients(federation, models, context, side)
        case _:
            assert_never(federation.unit)
    sides = _log_odds_of_bits(federation, shared, (present, absent), side)
    return Hypotheses(shared.total, present.total, absent.total, weight, sides)


def _sum_of_other_clients(
    federation: LoadedFederation, models: Tensor, context: RoundContext, side: SideInformation
) -> ContributionByTrial:
    """Return the summed contributions of all clients except the one that holds the differing unit.

    A client counts only in the trials in which it participates.
    """
    total = zero_contribution(models, federation.public.mechanism.is_adaptive)
    members = federation.public.cohort(context.number)
    bits = total.centred_bits
    for client in range(len(federation.shards)) if members is None else members.tolist():
        if client == federation.victim:
            continue
        subset: slice | Tensor = slice(None)
        context_of_trials = context
        if federation.public.mechanism.is_sampled:
            rows = require_seen(side.taking_part, "who took part")[:, client].nonzero().flatten()
            if len(rows) == 0:
                continue
            if len(rows) < len(models):
                subset = rows
                context_of_trials = context.rows(rows)
        trial = contributed(
            federation, client, federation.shard_without_targets(client), models[subset], context_of_trials
        )
        total.total[subset] += trial.total
        bits[subset] += trial.centred_bits
    return ContributionByTrial(total.total, None if total.within is None else bits + 0.5)


def _log_odds_of_bits(
    federation: LoadedFederation,
    contribution: ContributionByTrial,
    sides: tuple[ContributionByTrial, ContributionByTrial],
    side: SideInformation,
) -> tuple[Tensor, Tensor] | None:
    """Return the log-likelihood ratios, for both contributions in `sides`, of the noised sum of quantile bits.

    `sides` has the contributions of the differing unit and of its replacement in D'. A unit's quantile bit says whether
    its contribution is within the clipping norm. Each ratio, float64 (trials,), compares the sum with that unit's bit
    to the sum without it. None if the clipping norm is not adaptive.
    """
    mechanism = federation.public.mechanism
    if not mechanism.is_adaptive:
        return None
    noised_bits = require_seen(side.bits, "the noised bits") - contribution.centred_bits

    def log_odds(unit: ContributionByTrial) -> Tensor:
        return (noised_bits - unit.centred_bits / 2) * unit.centred_bits / mechanism.bit_sigma**2

    return log_odds(sides[0]), log_odds(sides[1])


def _of_contribution(
    federation: LoadedFederation, observed_round: ObservedRound, context: RoundContext
) -> LikelihoodRatioInput:
    """Return the likelihood ratio test's input for the server, which sees the contribution of the target's client."""
    present, absent = differing_contributions(federation, observed_round.start, context)
    match federation.unit:
        case Unit.RECORD | Unit.USER:
            total = contributed(
                federation,
                federation.victim,
                federation.shard_without_targets(federation.victim),
                observed_round.start,
                context,
            ).total
        case Unit.CLIENT:
            total = torch.zeros_like(present.total)
        case _:
            assert_never(federation.unit)
    observed = require_seen(observed_round.side.contribution, "the contribution of the target's client")
    return LikelihoodRatioInput(observed, Hypotheses(total, present.total, absent.total))


def _less_known_noise(federation: LoadedFederation, observed: Tensor, observed_round: ObservedRound) -> Tensor:
    """Return the observed sum minus the clients' noise shares that the adversary knows."""
    mechanism = federation.public.mechanism
    side = observed_round.side
    if not mechanism.clients_add_noise:
        return observed
    seeds = require_seen(side.noise_seeds, "the seeds of the noise that the insider knows").tolist()
    known_shares = federation.public.threat_model.known_shares
    require(len(seeds) == known_shares, f"{len(seeds)} seeds of noise were shown: accepted are {known_shares}")
    trials = require_seen(side.trial_numbers, "the numbers of the trials").tolist()
    tensor = observed.double()
    for seed in seeds:
        share = noise_share(seed, trials, observed_round.number, observed.shape[1]).to(observed.device)
        tensor = tensor - mechanism.share_scale * share.double()
    return tensor


class WhiteningTerm(NamedTuple):
    """One term of the weighted sum of releases that whitens correlated noise: a round with its weight."""

    factor: float  # weight from `MechanismNoise.whitening`; 1 for the only round if noise is independent
    number: int  # the round, from 1
    start: Tensor  # the models on which the clients worked, (trials, parameters)
    release: Tensor  # the noised sums, less the noise that the adversary knows, (trials, parameters)


def whitening_terms(federation: LoadedFederation, observed: ObservedRound) -> list[WhiteningTerm]:
    """Return the rounds whose weighted sum of releases has noise that is independent of the noise in earlier rounds.

    The result has the observed round and earlier rounds, each with its weight. Rounds with the weight 0 are left out.
    """
    mechanism = federation.public.mechanism
    factors = mechanism.noise.whitening(observed.number)
    newest = observed.start, _less_known_noise(federation, observed.sums(mechanism), observed)
    steps = enumerate([*observed.earlier, newest], start=observed.number - len(observed.earlier))
    whitened = [WhiteningTerm(float(factors[number - 1]), number, *step) for number, step in steps]
    return [step for step in whitened if step.factor != 0]


def _whitened(
    federation: LoadedFederation, observed_round: ObservedRound, batch_trials: int | None
) -> LikelihoodRatioInput:
    """Return the input of the likelihood ratio test for noise that is correlated over rounds.

    The releases of several rounds are summed with weights that make the noise independent of earlier rounds. The sums
    under D and D' are combined with the same weights.
    """
    wholes = tuple(torch.zeros_like(observed_round.start, dtype=torch.float64) for _ in range(4))
    observed, shared, present, absent = wholes
    for factor, number, start, release in whitening_terms(federation, observed_round):
        hypotheses = sums_of(federation, start, RoundContext(number, None, batch_trials), SideInformation())
        for whole, tensor in zip(
            wholes, (release, hypotheses.shared, hypotheses.present, hypotheses.absent), strict=True
        ):
            whole += factor * tensor.double()
    return LikelihoodRatioInput(observed, Hypotheses(shared, present, absent))
