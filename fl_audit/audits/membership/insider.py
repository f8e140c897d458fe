"""The insider of the membership audit: exact log-odds for all targets at once.

Each target has a separate insider, who knows all records, the membership of the other targets, and the rounds in which
each of these takes part. It subtracts the contributions of the others from a release. The rest is x = n + b s g with
the noise n of distribution N(0, sigma^2 I), the target's clipped gradient g, its coin b, and its participation s, 0 or
1. The sufficient statistic is <x, g> = <n, g> + b s ||g||^2. Therefore a simulation that knows the noise computes the
log-odds of all insiders of a trial in one pass over the records.

Summed over rounds, the log-odds of a target are the log-likelihood ratio of all releases, however the models evolved.
Insiders of one trial see the same noise, so their log-odds are not independent. Arrays whose shapes do not fit, and
numbers out of their range, raise `InputError`.

In the federation one client acts as the insiders of all targets. It gets all coins and the participation, and computes
the noise of the release. For each target it uses the target's own coin only by way of the release, which the insider of
this target sees anyway.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, assert_never

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.yeom_attack import ascent
from fl_audit.errors import InputError, require
from fl_audit.federation.contributions import RoundContext, contributed
from fl_audit.federation.hypotheses import WhitenedRound, whitened_steps
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.observed_rounds import ObservedRound
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.learning.microbatching import MicrobatchExamples
from fl_audit.learning.pass_budgets import GRADIENT_BUDGET
from fl_audit.learning.record_gradients import record_gradients
from fl_audit.learning.user_gradients import user_gradients
from fl_audit.mechanisms.likelihood_ratio import mixed_llr
from fl_audit.privacy.events import require_sampling_rate


def _signal_to_noise(norms: ArrayLike, clipping_norm: float | None, sigma: ArrayLike) -> Floats:
    """Return mu = min(||g||, C) / sigma of every target in one round, at least 0, float64 (trials, targets).

    Given all earlier rounds, the increment of a target that is known to take part is N(mu^2/2, mu^2) if it is in, and
    N(-mu^2/2, mu^2) if it is out.
    """
    return _clipped(_checked(norms, "norms"), clipping_norm) / _checked_sigma(sigma, len(np.asarray(norms)))


def _noise_along(products: ArrayLike, norms: ArrayLike, sigma: ArrayLike) -> Floats:
    """Return <n, h> / (||h|| sigma), the noise along every target's contribution, float64 (trials, targets).

    Given all earlier rounds, which determine h, it is N(0, 1) for any participation if the noise has the claimed
    distribution. It is NaN if h is 0, which has no direction.
    """
    along, lengths = _checked(products, "products"), _checked(norms, "norms")
    ratio = np.divide(along, lengths, out=np.full(along.shape, np.nan), where=lengths > 0)
    return np.asarray(ratio / _checked_sigma(sigma, len(along)), dtype=np.float64)


def increments(
    products: ArrayLike,
    norms: ArrayLike,
    clipping_norm: float | None,
    sigma: ArrayLike,
    is_in: Flags,
    takes_part: Flags | None = None,
    sampling_rate: float = 1.0,
    sees_participation: bool = False,
) -> Floats:
    """Return the increment of a round to the log-odds of "in" against "out" per target, float64 (trials, targets).

    It is in nats. Let l = (<x, g> - ||g||^2/2) / sigma^2 be the log-odds that the target is in the sum. If the insider
    knows whether the target takes part, the increment is l if it does and 0 if not; otherwise it is
    log((1 - q) + q e^l), which is at least log(1 - q). A gradient of zero adds nothing. Raises `InputError` also if
    records are sampled and `takes_part` is missing.

    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target; the mixture as in
    `fl_audit.mechanisms.likelihood_ratio`.

    Parameters
    ----------
    products
        Inner products <n, h>, finite, shape (trials, targets). n is the noise of the trial's release (the release less
        the true sum of clipped gradients), and h the target's gradient before clipping; see
        `fl_audit.learning.record_gradients`.
    norms
        Norms ||h|| of the targets' gradients before clipping, finite, shape (trials, targets).
    clipping_norm
        Clipping norm C, positive, or None for no clipping.
    sigma
        Standard deviation of the noise in each trial, positive, shape (trials,). 0 is refused, because without noise
        the log-odds are infinite as soon as a target takes part.
    is_in
        Whether each target is in, bool, shape (trials, targets).
    takes_part
        Whether each target takes part in the round if it is in, bool, shape (trials, targets); None means that all take
        part. Coins of targets that are out count: under seen participation the insider sees them too.
    sampling_rate
        Probability q with which each target takes part by a secret coin, above 0 and at most 1. At 1 there is no
        secret: a target that does not take part, say because its client is not in a public cohort, is known not to.
    sees_participation
        Whether the insider sees which targets take part.
    """
    shape = np.shape(products)
    require_sampling_rate(sampling_rate)
    is_told = takes_part is not None or sampling_rate == 1
    require(is_told, f"sampling rate is {sampling_rate} and nothing says who takes part: accepted is bool {shape}")
    part = _checked_flags(np.ones(shape, dtype=np.bool_) if takes_part is None else takes_part, "takes_part", shape)
    in_sum = _checked_flags(is_in, "is_in", shape) & part
    along, lengths = _checked(products, "products"), _checked(norms, "norms")
    require(lengths.shape == along.shape, f"norms have shape {lengths.shape}: accepted is {along.shape}, the products'")
    scale, clipped = _checked_sigma(sigma, len(along)), _clipped(lengths, clipping_norm)
    factor = np.divide(clipped, lengths, out=np.ones(along.shape), where=lengths > 0)
    # Log-odds of a target's being in the sum against its being out: (<n, g> +- ||g||^2/2) / sigma^2.
    log_odds = factor * along / scale / scale + np.where(in_sum, 0.5, -0.5) * np.square(clipped / scale)
    if sampling_rate < 1 and not sees_participation:
        return np.asarray(mixed_llr(torch.from_numpy(log_odds), sampling_rate).numpy(), dtype=np.float64)
    return np.where(part, log_odds, 0.0)


def _clipped(lengths: Floats, clipping_norm: float | None) -> Floats:
    bound = math.inf if clipping_norm is None else clipping_norm
    require(bound > 0, f"clipping norm is {clipping_norm}: accepted are positive numbers, or None for no clipping")
    require(bool((lengths >= 0).all()), f"norms go down to {lengths.min(initial=0.0)}: accepted are numbers from 0")
    return np.minimum(lengths, bound)


def _checked(values: ArrayLike, name: str) -> Floats:
    """Return values as float64; `InputError` unless they are finite and have the axes (trials, targets)."""
    found = np.asarray(values, dtype=np.float64)
    require(found.ndim == 2, f"{name} have shape {found.shape}: accepted is (trials, targets)")
    require(bool(np.isfinite(found).all()), f"{name} contain NaN or infinity: accepted are finite numbers")
    return found


def _checked_sigma(sigma: ArrayLike, trials: int) -> Floats:
    """Return the noise scale of each trial, shape (trials, 1).

    Raises
    ------
    InputError
        If the shape is wrong, or a scale is not positive and finite.
    """
    scale = np.asarray(sigma, dtype=np.float64)
    require(scale.shape == (trials,), f"sigma has shape {scale.shape}: accepted is ({trials},), one for each trial")
    positive = np.isfinite(scale) & (scale > 0)
    if not positive.all():
        trial = int(np.argmin(positive))
        raise InputError(f"sigma is {scale[trial]} in trial {trial}: accepted are positive numbers")
    return scale[:, np.newaxis]


def _checked_flags(flags: Flags, name: str, shape: tuple[int, ...]) -> Flags:
    found = np.asarray(flags)
    accepted = found.dtype == np.bool_ and found.shape == shape
    require(accepted, f"{name} is {found.dtype} of shape {found.shape}: accepted is bool {shape}, as the products")
    return found


class TargetObservations(NamedTuple):
    """The evidence in the observation of one round about every target."""

    increments: Floats  # added to the log-odds of "in" against "out", float64 (trials, targets)
    # ||g|| / sigma of the target's clipped contribution, 0 where it is known to take no part, float64 (trials,
    # targets).
    signal: Floats
    # The noise of the released sum along the target's contribution over sigma, which is N(0, 1) if the claim holds,
    # float64 (trials, targets); NaN where there is no such direction. It is computed from the coins, so only the
    # challenger knows it. In the reconstruction audit it has a meaning only for the candidate that is in.
    noise: Floats


def observe_targets(
    federation: LoadedFederation, seen: ObservedRound, membership: TargetMembership | None
) -> TargetObservations:
    """Compute the log-likelihood ratio of a round for every target.

    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target; see `fl_audit.audits.membership.insider`.
    Noise that is correlated over rounds is whitened first; a target's contribution then combines several rounds.

    Parameters
    ----------
    federation
        The federation with its targets.
    membership
        Membership of the targets. None in the reconstruction audit, where exactly one candidate is in and the insider
        does not know which: the log-likelihood ratio of every candidate against no candidate then differs from its
        log-likelihood by the same constant for all.
    seen
        The observation of the clients, which contains the participation of all units if rounds are sampled.
    """
    public, trials = federation.public, len(seen.start)
    membership = membership or TargetMembership(np.zeros((trials, federation.public.targets), dtype=np.bool_))
    mechanism, sees = public.mechanism, public.threat_model.sees_participation
    sigma = mechanism.noise_scale(np.zeros(trials), public.threat_model, seen.side.norms_array)
    steps = whitened_steps(federation, seen)
    clip = None  # sums of formed contributions are clipped already
    match federation.unit:
        case Unit.RECORD if len(steps) == 1:
            rest, asked = _noise_of_records(federation, seen, steps[0], membership)[0], federation.differing
            found = record_gradients(federation.model, steps[0].start, asked.features, asked.labels, rest)
            products, norms, clip = _array(found.products), _array(found.norms), mechanism.clipping_norm
            of_sum = products, norms
        case Unit.USER if len(steps) == 1 and not mechanism.is_adaptive:
            rest, asked = _noise_of_records(federation, seen, steps[0], membership)[0], federation.differing
            assert asked.user is not None, "where users are units, records know theirs"
            found = user_gradients(federation.model, steps[0].start, asked.features, asked.labels, asked.user, rest)
            products, norms, clip = _array(found.products), _array(found.norms), mechanism.clipping_norm
            of_sum = products, norms
        case Unit.RECORD | Unit.USER:
            (products, norms), of_sum = _of_records_over_rounds(federation, seen, steps, membership, sigma)
        case Unit.CLIENT:
            (products, norms), of_sum = _of_clients(federation, seen, steps, membership, sigma)
        case _:
            assert_never(federation.unit)
    part = _taking_part(federation, seen, seen.number, trials) if len(steps) == 1 else None
    takes_part = None if part is None else part[:, federation.targets]
    added = increments(products, norms, clip, sigma, membership.is_in, takes_part, mechanism.sampling_rate, sees)
    longest = _signal_to_noise(norms, clip, sigma)
    if mechanism.is_sampled and (turn := public.turn(seen.number)) is not None:
        # Everybody knows whose turn it is, so that the round says nothing of all others.
        has_turn = np.isin(federation.targets, turn)
        added, longest = added * has_turn, longest * has_turn
    signal = longest if takes_part is None or not (sees or mechanism.sampling_rate == 1) else longest * takes_part
    noise = _noise_along(*of_sum, sigma)
    if public.membership_scheme is MembershipScheme.EXACTLY_ONE:
        # The candidate itself, if it takes part, was not subtracted.
        noise -= _signal_to_noise(of_sum[1], clip, sigma) * (1 if takes_part is None else takes_part)
    return TargetObservations(added, signal, noise)


def _taking_part(federation: LoadedFederation, seen: ObservedRound, number: int, trials: int) -> Flags | None:
    """Return which units take part in a round if they are in, bool (trials, units); None means that all do."""
    turn, shown = federation.public.turn(number), seen.side.taking_part
    if shown is not None:
        return shown.bool().cpu().numpy()
    return (
        None
        if turn is None
        else np.broadcast_to(np.isin(np.arange(federation.units), turn), (trials, federation.units))
    )


def _in_sum(federation: LoadedFederation, membership: TargetMembership, part: Flags | None) -> Flags:
    """Return the units that are in a round's sum, (trials, units)."""
    held = np.ones((membership.trials, federation.units), dtype=np.bool_)
    held[:, federation.targets] = membership.is_in
    return held if part is None else held & part


def _noise_of_records(
    federation: LoadedFederation, seen: ObservedRound, step: WhitenedRound, membership: TargetMembership
) -> tuple[Tensor, Tensor | None]:
    """Return the noise of a round: the release minus all gradients in it, float64 (trials, parameters).

    The second value is the noise of the bits of an adaptive clipping norm, computed in the same way, or None.
    """
    part = _taking_part(federation, seen, step.number, membership.trials)
    held = _in_sum(federation, membership, part)
    if federation.user is not None:
        held = held[:, federation.user]
    in_sum = torch.from_numpy(held).to(step.start.device)
    found = contributed(
        federation,
        federation.victim,
        federation.training,
        step.start,
        RoundContext(step.number, seen.side.norms),
        in_sum,
    )
    noise = step.release.double() - found.total.double()
    bits = None if seen.side.bits is None else seen.side.bits - found.centred_bits
    return (noise - pushed_up(federation, step.start).double() if federation.public.ascent > 0 else noise), bits


def _of_records_over_rounds(
    federation: LoadedFederation,
    seen: ObservedRound,
    steps: Sequence[WhitenedRound],
    membership: TargetMembership,
    sigma: Floats,
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return <n, g> and ||g||, each (trials, targets), for the whitened sum g of each target's clipped gradients.

    g and the noise n are summed over `steps`. With an adaptive norm, a target's bit is one further coordinate of both.
    A second pair of these results leaves this coordinate out, as in `_of_clients`.
    """
    mechanism, side = federation.public.mechanism, seen.side
    unit, noise = _unit_of_bits(federation, sigma), torch.zeros(())
    for step in steps:
        noise = noise + step.factor * _with_bit(*_noise_of_records(federation, seen, step, membership), unit)
    shape, differing, target = membership.is_in.shape, federation.differing, federation.target_of_records
    limit = mechanism.clipping_norm if side.norms is None else side.norms[:, None, None]
    kept = noise.shape[1], noise.shape[1] - mechanism.is_adaptive
    products, norms = [np.empty(shape) for _ in kept], [np.empty(shape) for _ in kept]
    together = max(1, GRADIENT_BUDGET // steps[0].start.numel() * shape[1] // len(target))
    for first in range(0, shape[1], together):
        some, whole = slice(first, min(shape[1], first + together)), torch.zeros(())
        records = slice(*np.searchsorted(target, (some.start, some.stop)).tolist())
        place = torch.from_numpy(target[records] - first).to(noise.device)
        for step in steps:
            portion = MicrobatchExamples(differing.features[records], differing.labels[records])
            each = federation.model.example_gradients(step.start, portion).double()
            if len(place) > some.stop - some.start:  # a target with several records adds their sum
                each = each.new_zeros(len(each), some.stop - some.start, each.shape[2]).index_add_(1, place, each)
            lengths = each.norm(dim=2, keepdim=True)
            each = each * (limit / lengths).clamp(max=1)
            if mechanism.is_adaptive:
                bits = (lengths <= limit).double() - 0.5
                each = torch.cat([each, bits * unit.to(bits.device)[:, None, None]], dim=2)
            whole = whole + step.factor * each
        for number, end in enumerate(kept):
            products[number][:, some] = _array(torch.bmm(whole[..., :end], noise[:, :end].unsqueeze(2)).squeeze(2))
            norms[number][:, some] = _array(whole[..., :end].norm(dim=2))
    return (products[0], norms[0]), (products[1], norms[1])


def _unit_of_bits(federation: LoadedFederation, sigma: Floats) -> Tensor:
    """Return the factor that makes the noise of an adaptive norm's bits as large as that of the sum, (trials,)."""
    mechanism = federation.public.mechanism
    return torch.from_numpy(sigma) / mechanism.bit_sigma if mechanism.is_adaptive else torch.from_numpy(sigma)


def _of_clients(
    federation: LoadedFederation,
    seen: ObservedRound,
    steps: Sequence[WhitenedRound],
    membership: TargetMembership,
    sigma: Floats,
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return <n, g> and ||g||, each (trials, targets), for the target clients' clipped updates g and the noise n.

    With an adaptive norm, a client's bit is one further coordinate, scaled so that its noise is as large as that of the
    others. A second pair of these results leaves it out, because next to a short update the noise of the bits would
    hide that of the sum.
    """
    mechanism, side = federation.public.mechanism, seen.side
    unit = _unit_of_bits(federation, sigma)
    noise: Tensor | float = 0.0
    updates: dict[int, Tensor] = {}
    for step in steps:
        part, moment = (
            _taking_part(federation, seen, step.number, membership.trials),
            RoundContext(step.number, side.norms),
        )
        held = _in_sum(federation, membership, part)
        noise = noise + step.factor * _with_bit(step.release, side.bits, unit)
        for client in range(federation.units):
            is_target = client in federation.targets and (part is None or bool(part[:, client].any()))
            if not held[:, client].any() and not is_target:
                continue
            one = contributed(federation, client, federation.shard(client), step.start, moment)
            added = step.factor * _with_bit(one.total, one.centred_bits if mechanism.is_adaptive else None, unit)
            noise = noise - added * torch.from_numpy(held[:, client]).to(added.device).unsqueeze(1)
            if is_target:
                updates[client] = updates.get(client, 0.0) + added
    assert isinstance(noise, Tensor), "a round is weighed"
    nothing = torch.zeros_like(noise)
    of_targets = [updates.get(int(client), nothing) for client in federation.targets]
    kept = noise.shape[1], noise.shape[1] - mechanism.is_adaptive
    along = [torch.stack([(noise * one)[:, :end].sum(dim=1) for one in of_targets], dim=1) for end in kept]
    norms = [torch.stack([one[:, :end].norm(dim=1) for one in of_targets], dim=1) for end in kept]
    return (_array(along[0]), _array(norms[0])), (_array(along[1]), _array(norms[1]))


def _with_bit(total: Tensor, bits: Tensor | None, unit: Tensor) -> Tensor:
    """Return sums in float64, with one further coordinate for a bit if there is one."""
    if bits is None:
        return total.double()
    return torch.cat([total.double(), (bits.double() * unit).unsqueeze(1).to(total.device)], dim=1)


def pushed_up(federation: LoadedFederation, models: Tensor) -> Tensor:
    """Return a malicious insider's addition to its contribution, which raises losses, float32 (trials, parameters).

    Parameters
    ----------
    federation
        The federation.
    models
        The models at the start of the round, float32 (trials, parameters).
    """
    asked, rate, norm = federation.differing, federation.public.ascent, federation.public.mechanism.clipping_norm
    return ascent(federation.model, models, asked.features, asked.labels, rate, None if math.isinf(norm) else norm)


def _array(values: Tensor) -> Floats:
    return np.asarray(values.double().cpu().numpy(), dtype=np.float64)
