"""The insiders of the membership audit: exact log-odds of membership for all targets at once.

Each target has a separate insider, who knows all records, the membership of the other targets, and the rounds in which
the other targets take part. This insider subtracts the contributions of all others from a release. The rest is x = n +
b s g. Here n is the noise, of distribution N(0, sigma^2 I), g is the target's clipped gradient, b its coin, and s its
participation, 0 or 1. The sufficient statistic is <x, g> = <n, g> + b s ||g||^2. Therefore a simulation that knows the
noise computes the log-odds of all insiders of a trial in one pass over the records.

Summed over rounds, the log-odds of a target are the log-likelihood ratio of all releases, even though the model depends
on earlier releases. Insiders of one trial see the same noise, so their log-odds are not independent.

In the federation one client acts as the insiders of all targets. It gets all coins and the participation, and computes
the noise of the release. For each target, the result depends on the target's own coin only through the release, which
the insider of this target sees anyway. Functions raise `InputError` if shapes do not fit or numbers are out of range.
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
from fl_audit.federation.hypotheses import WhiteningTerm, whitened_steps
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.observed_rounds import ObservedRound
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.pass_budgets import GRADIENT_BUDGET
from fl_audit.learning.record_gradient_norms import record_gradients
from fl_audit.learning.user_gradients import user_gradients
from fl_audit.mechanisms.likelihood_ratio import mixed_llr
from fl_audit.privacy.events import require_sampling_rate


def _signal_to_noise(norms: ArrayLike, clipping_norm: float | None, sigma: ArrayLike) -> Floats:
    """Return mu = min(||g||, C) / sigma of each target in one round, at least 0, float64 (trials, targets).

    `norms` are the norms ||g|| of the targets' contributions, and `clipping_norm` is C. Given all earlier rounds, the
    increment of the log-odds of a target that is known to take part is N(mu^2/2, mu^2) if it is in, and N(-mu^2/2,
    mu^2) if it is out.
    """
    return _clipped(_checked(norms, "norms"), clipping_norm) / _checked_sigma(sigma, len(np.asarray(norms)))


def _noise_along(products: ArrayLike, norms: ArrayLike, sigma: ArrayLike) -> Floats:
    """Return <n, h> / (||h|| sigma), the noise along each target's contribution h, float64 (trials, targets).

    `products` are <n, h>, and `norms` are ||h||. Given all earlier rounds, the result is N(0, 1) if the noise n has the
    claimed distribution. It is NaN if h is 0.
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
    """Return the increment of one round to each target's log-odds of "in" against "out".

    It is in nats, float64, shape (trials, targets). Let l = (<x, g> - ||g||^2/2) / sigma^2 be the log-odds that the
    target is in the sum, with the symbols of the module's docstring. If the insider knows whether the target takes
    part, the increment is l if it does and 0 if not. Otherwise it is log((1 - q) + q e^l), which is at least log(1 -
    q). A gradient of zero adds nothing. Raises `InputError` also if records are sampled and `takes_part` is missing.

    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target; the mixture as in
    `fl_audit.mechanisms.likelihood_ratio`.

    Parameters
    ----------
    products
        Inner products <n, h>, finite, shape (trials, targets). Here n is the noise of the trial's release (the release
        minus the true sum of clipped gradients), and h is the target's gradient before clipping; see
        `fl_audit.learning.record_gradient_norms`.
    norms
        Norms ||h|| of the targets' gradients before clipping, finite, shape (trials, targets).
    clipping_norm
        Clipping norm C, positive; None for no clipping.
    sigma
        Standard deviation of the noise in each trial, positive, shape (trials,). 0 is refused, because without noise
        the log-odds are infinite as soon as a target takes part.
    is_in
        Whether each target is in, bool, shape (trials, targets).
    takes_part
        Whether each target takes part in the round if it is in, bool, shape (trials, targets); None means that all take
        part. If the insider sees participation, this includes the coins of targets that are out.
    sampling_rate
        Probability q with which each target takes part by a secret coin, above 0 and at most 1. If it is 1, the insider
        knows of each target whether it takes part.
    sees_participation
        Whether the insider sees which targets take part in the round.
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
    """Return values as float64; raise `InputError` if they are not finite or not of shape (trials, targets).

    The message calls the values `name`.
    """
    found = np.asarray(values, dtype=np.float64)
    require(found.ndim == 2, f"{name} have shape {found.shape}: accepted is (trials, targets)")
    require(bool(np.isfinite(found).all()), f"{name} contain NaN or infinity: accepted are finite numbers")
    return found


def _checked_sigma(sigma: ArrayLike, trials: int) -> Floats:
    """Return the noise scale of each trial, float64, shape (trials, 1).

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
    """The evidence that one round gives about each target: log-odds increment, signal-to-noise ratio, and noise."""

    increments: Floats  # increments of the log-odds of "in" against "out", float64 (trials, targets)
    # Norm of the target's clipped contribution over sigma, 0 where it is known to take no part, float64 (trials,
    # targets).
    signal: Floats
    # The noise of the released sum along the target's contribution over sigma, which is N(0, 1) if the claim holds,
    # float64 (trials, targets); NaN where the contribution is 0. It is computed from the coins, so only the challenger
    # knows it. In the reconstruction audit it has a meaning only for the candidate that is in.
    noise: Floats


def observe_targets(
    federation: LoadedFederation, seen: ObservedRound, membership: TargetMembership | None
) -> TargetObservations:
    """Return the evidence that one round gives about each target: its log-likelihood ratio, signal and noise.

    Noise that is correlated over rounds is whitened first; a target's contribution then combines several rounds.

    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target; see `fl_audit.audits.membership.insider`.

    Parameters
    ----------
    federation
        The federation with its targets.
    membership
        The membership of the targets in the trials. Pass None in the reconstruction audit, where exactly one candidate
        is in and the insider does not know which. Each candidate's increment is then relative to no candidate being in.
    seen
        The insider's view of the round, with the participation of all units if rounds are sampled.
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
    """Return which units take part in a round if they are in, bool (trials, units); None means that all do.

    `number` is the number of the round.
    """
    turn, shown = federation.public.turn(number), seen.side.taking_part
    if shown is not None:
        return shown.bool().cpu().numpy()
    return (
        None
        if turn is None
        else np.broadcast_to(np.isin(np.arange(federation.units), turn), (trials, federation.units))
    )


def _in_sum(federation: LoadedFederation, membership: TargetMembership, part: Flags | None) -> Flags:
    """Return which units are in a round's sum, i.e. are members and take part, bool (trials, units).

    `part` says which units take part, (trials, units); None means that all do.
    """
    held = np.ones((membership.trials, federation.units), dtype=np.bool_)
    held[:, federation.targets] = membership.is_in
    return held if part is None else held & part


def _noise_of_records(
    federation: LoadedFederation, seen: ObservedRound, step: WhiteningTerm, membership: TargetMembership
) -> tuple[Tensor, Tensor | None]:
    """Return the noise of the round `step`, i.e. its release minus all clipped gradients, float64 (trials, parameters).

    The second value is the noise on the sum of the bits of an adaptive clipping norm, (trials,), computed in the same
    way; None without such bits. `seen` is the insider's view of the latest round, and `membership` says which targets
    are in.
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
    steps: Sequence[WhiteningTerm],
    membership: TargetMembership,
    sigma: Floats,
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return two pairs of <n, g> and ||g||, each (trials, targets), for records or users as targets.

    g is a target's clipped gradient, and n is the noise. Both are weighted sums over `steps`, the rounds that whitening
    combines. With adaptive clipping, g and n have one further coordinate for the target's bit, which says whether its
    gradient is within the clipping norm. The second pair leaves this coordinate out.
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
            portion = Microbatch(differing.features[records], differing.labels[records])
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
    """Return the factor that scales the noise on clipping bits to the noise on the sum, float64 (trials,).

    The bits of adaptive clipping say whether contributions are within the clipping norm. `sigma` is the standard
    deviation of the noise on the sum, (trials,); it is returned itself if clipping is not adaptive.
    """
    mechanism = federation.public.mechanism
    return torch.from_numpy(sigma) / mechanism.bit_sigma if mechanism.is_adaptive else torch.from_numpy(sigma)


def _of_clients(
    federation: LoadedFederation,
    seen: ObservedRound,
    steps: Sequence[WhiteningTerm],
    membership: TargetMembership,
    sigma: Floats,
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return two pairs of <n, g> and ||g||, each (trials, targets), for clients as targets.

    g is a target's clipped update, and n is the noise. Both are weighted sums over `steps`, the rounds that whitening
    combines. With adaptive clipping, g and n have one further coordinate for the client's bit, which says whether its
    update is within the clipping norm. This coordinate is scaled so that its noise equals that of the others. The
    second pair leaves it out, because after a small update the noise on the bits would hide the noise on the sum.
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
    """Return the sums `total` as float64, (trials, parameters), with `bits` times `unit` as one further column.

    `bits` are sums of the bits of adaptive clipping, and `unit` is their factor from `_unit_of_bits`, both (trials,).
    If `bits` is None, there is no further column.
    """
    if bits is None:
        return total.double()
    return torch.cat([total.double(), (bits.double() * unit).unsqueeze(1).to(total.device)], dim=1)


def pushed_up(federation: LoadedFederation, models: Tensor) -> Tensor:
    """Return the addition to a malicious insider's contribution that raises the targets' losses.

    It is float32, shape (trials, parameters).

    Parameters
    ----------
    federation
        The federation with its targets.
    models
        The models at the start of the round, float32 (trials, parameters).
    """
    asked, rate, norm = federation.differing, federation.public.ascent, federation.public.mechanism.clipping_norm
    return ascent(federation.model, models, asked.features, asked.labels, rate, None if math.isinf(norm) else norm)


def _array(values: Tensor) -> Floats:
    return np.asarray(values.double().cpu().numpy(), dtype=np.float64)
