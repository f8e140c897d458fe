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
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.insider_increments import increments, noise_along_targets, signal_to_noise
from fl_audit.audits.membership.yeom_attack import ascent
from fl_audit.federation.contributions import RoundContext, contributed
from fl_audit.federation.hypotheses import WhiteningTerm, whitening_terms
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.observed_rounds import ObservedRound
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.learning.gradient_norms_and_products import gradient_norms_and_products
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.pass_budgets import GRADIENT_BUDGET, slices


class TargetEvidence(NamedTuple):
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
    federation: LoadedFederation, observed: ObservedRound, membership: TargetMembership | None
) -> TargetEvidence:
    """Return the evidence that one round gives about each target: its log-likelihood ratio, signal and noise.

    If noise is correlated over rounds, several rounds are first combined so that their noise is independent of earlier
    releases. The contribution of a target is then the same combination of its contributions to these rounds.

    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target.

    `membership`: Pass None in the reconstruction audit, where exactly one candidate is in and the insider does not know
    which. The log-likelihood ratio then compares "this candidate is in" with "no candidate is in".
    """
    public = federation.public
    trials = len(observed.start)
    membership = membership or TargetMembership(np.zeros((trials, federation.public.targets), dtype=np.bool_))
    mechanism = public.mechanism
    sees = public.threat_model.sees_participation
    sigma = mechanism.noise_scale(np.zeros(trials), public.threat_model, observed.side.norms_array)
    steps = whitening_terms(federation, observed)
    whole, of_sum, clip = _alignments(federation, observed, steps, membership, sigma)
    participation = _taking_part(federation, observed, observed.number, trials) if len(steps) == 1 else None
    takes_part = None if participation is None else participation[:, federation.targets]
    added = increments(*whole, clip, sigma, membership.is_in, takes_part, mechanism.sampling_rate, sees)
    longest = signal_to_noise(whole.norms, clip, sigma)
    signal = longest if takes_part is None or not (sees or mechanism.sampling_rate == 1) else longest * takes_part
    noise = noise_along_targets(*of_sum, sigma)
    if public.membership_scheme is MembershipScheme.EXACTLY_ONE:
        # The contribution of a candidate that takes part was not subtracted.
        noise -= signal_to_noise(of_sum.norms, clip, sigma) * (1 if takes_part is None else takes_part)
    return TargetEvidence(added, signal, noise)


class _Alignment(NamedTuple):
    """Inner products <n, g> of the noise n with each target's contribution g, and norms ||g||, (trials, targets)."""

    products: Floats
    norms: Floats


def _alignments(
    federation: LoadedFederation,
    observed: ObservedRound,
    steps: Sequence[WhiteningTerm],
    membership: TargetMembership,
    sigma: Floats,
) -> tuple[_Alignment, _Alignment, float | None]:
    """Return inner products of the noise with each target's contribution, in two versions, and a clipping norm.

    The first version takes the noise of all released values, the second only the noise of the sum. They differ under
    adaptive clipping, which also releases bits. The clipping norm is None if the contributions are clipped already. If
    it is not None, the caller must still clip them to this norm.
    """
    match federation.unit:
        case Unit.RECORD if len(steps) == 1:
            alone = _of_single_round(federation, observed, steps[0], membership)
        case Unit.USER if len(steps) == 1 and not federation.public.mechanism.is_adaptive:
            alone = _of_single_round(federation, observed, steps[0], membership)
        case Unit.RECORD | Unit.USER:
            return *_of_records_over_rounds(federation, observed, steps, membership, sigma), None
        case Unit.CLIENT:
            return *_of_clients(federation, observed, steps, membership, sigma), None
        case _:
            assert_never(federation.unit)
    return alone, alone, federation.public.mechanism.clipping_norm


def _of_single_round(
    federation: LoadedFederation, observed: ObservedRound, term: WhiteningTerm, membership: TargetMembership
) -> _Alignment:
    """Return the inner products of a round's noise with the targets' unclipped gradients, and the gradients' norms."""
    noise = _noise_of_records(federation, observed, term, membership)[0]
    targets = federation.differing
    norms, products = gradient_norms_and_products(
        federation.model, term.start, targets.features, targets.labels, noise, targets.user
    )
    return _Alignment(_array(products), _array(norms))


def _taking_part(federation: LoadedFederation, observed: ObservedRound, number: int, trials: int) -> Flags | None:
    """Return which units take part in a round if they are in the data, bool (trials, units); None if all do."""
    turn = federation.public.eligible_units(number)
    tensor = observed.side.taking_part
    if tensor is not None:
        return tensor.bool().cpu().numpy()
    return (
        None
        if turn is None
        else np.broadcast_to(np.isin(np.arange(federation.units), turn), (trials, federation.units))
    )


def _in_sum(federation: LoadedFederation, membership: TargetMembership, takes_part: Flags | None) -> Flags:
    """Return which units are members and take part, bool (trials, units); `takes_part` is None if all take part."""
    is_in_sum = np.ones((membership.trials, federation.units), dtype=np.bool_)
    is_in_sum[:, federation.targets] = membership.is_in
    return is_in_sum if takes_part is None else is_in_sum & takes_part


def _noise_of_records(
    federation: LoadedFederation, observed: ObservedRound, term: WhiteningTerm, membership: TargetMembership
) -> tuple[Tensor, Tensor | None]:
    """Return the noise of a round: its release minus all clipped gradients, float64 (trials, parameters).

    The second value, (trials,), is the noise on the sum of the quantile bits; None if the clipping norm is not
    adaptive.
    """
    takes_part = _taking_part(federation, observed, term.number, membership.trials)
    is_in_sum = _in_sum(federation, membership, takes_part)
    if federation.user is not None:
        is_in_sum = is_in_sum[:, federation.user]
    in_sum = torch.from_numpy(is_in_sum).to(term.start.device)
    trial = contributed(
        federation,
        federation.victim,
        federation.training,
        term.start,
        RoundContext(term.number, observed.side.norms),
        in_sum,
    )
    noise = term.release.double() - trial.total.double()
    bits = None if observed.side.bits is None else observed.side.bits - trial.centred_bits
    return (
        noise - ascent_contribution(federation, term.start).double() if federation.public.ascent > 0 else noise
    ), bits


def _of_records_over_rounds(
    federation: LoadedFederation,
    observed: ObservedRound,
    steps: Sequence[WhiteningTerm],
    membership: TargetMembership,
    sigma: Floats,
) -> tuple[_Alignment, _Alignment]:
    """Return the two results of `_alignments` for units that are records or users, whose gradients are clipped here.

    If the noise is correlated, noise and gradients are first summed over the rounds in such a way that the noise
    becomes white. Under adaptive clipping, the first result has one more coordinate than the second: the bit that says
    whether a gradient is within the clipping norm.
    """
    mechanism = federation.public.mechanism
    side = observed.side
    unit = _sum_to_bit_noise_ratio(federation, sigma)
    noise = torch.zeros(())
    for step in steps:
        noise = noise + step.factor * _with_bit(*_noise_of_records(federation, observed, step, membership), unit)
    shape = membership.is_in.shape
    differing = federation.differing
    target = federation.target_of_records
    limit = mechanism.clipping_norm if side.norms is None else side.norms[:, None, None]
    noise_shape = noise.shape[1], noise.shape[1] - mechanism.is_adaptive
    products = [np.empty(shape) for _ in noise_shape]
    norms = [np.empty(shape) for _ in noise_shape]
    together = max(1, GRADIENT_BUDGET // steps[0].start.numel() * shape[1] // len(target))
    for trial_slice in slices(shape[1], together):
        whole = torch.zeros(())
        records = slice(*np.searchsorted(target, (trial_slice.start, trial_slice.stop)).tolist())
        tensor = torch.from_numpy(target[records] - trial_slice.start).to(noise.device)
        for step in steps:
            portion = Microbatch(differing.features[records], differing.labels[records])
            clipped = federation.model.example_gradients(step.start, portion).double()
            if len(tensor) > trial_slice.stop - trial_slice.start:  # a target with several records adds their sum
                clipped = clipped.new_zeros(
                    len(clipped), trial_slice.stop - trial_slice.start, clipped.shape[2]
                ).index_add_(1, tensor, clipped)
            lengths = clipped.norm(dim=2, keepdim=True)
            clipped = clipped * (limit / lengths).clamp(max=1)
            if mechanism.is_adaptive:
                bits = (lengths <= limit).double() - 0.5
                clipped = torch.cat([clipped, bits * unit.to(bits.device)[:, None, None]], dim=2)
            whole = whole + step.factor * clipped
        for number, end in enumerate(noise_shape):
            products[number][:, trial_slice] = _array(
                torch.bmm(whole[..., :end], noise[:, :end].unsqueeze(2)).squeeze(2)
            )
            norms[number][:, trial_slice] = _array(whole[..., :end].norm(dim=2))
    return _Alignment(products[0], norms[0]), _Alignment(products[1], norms[1])


def _sum_to_bit_noise_ratio(federation: LoadedFederation, sigma: Floats) -> Tensor:
    """Return the ratio of two standard deviations, (trials,): noise on the sum over noise on the sum of clipping bits.

    Without adaptive clipping there are no bits, and the result is `sigma`, the noise on the sum.
    """
    mechanism = federation.public.mechanism
    return torch.from_numpy(sigma) / mechanism.bit_sigma if mechanism.is_adaptive else torch.from_numpy(sigma)


def _of_clients(
    federation: LoadedFederation,
    observed: ObservedRound,
    steps: Sequence[WhiteningTerm],
    membership: TargetMembership,
    sigma: Floats,
) -> tuple[_Alignment, _Alignment]:
    """Return the noise's products with each client's contribution, and the contributions' norms, as `_alignments` does.

    They are sums over the rounds that whitening combines. The first alignment includes the quantile bits. The second
    one leaves them out, because after a small update their noise would hide the noise on the sum.
    """
    mechanism = federation.public.mechanism
    side = observed.side
    unit = _sum_to_bit_noise_ratio(federation, sigma)
    noise: Tensor | float = 0.0
    updates: dict[int, Tensor] = {}
    for step in steps:
        takes_part = _taking_part(federation, observed, step.number, membership.trials)
        moment = RoundContext(step.number, side.norms)
        is_in_sum = _in_sum(federation, membership, takes_part)
        noise = noise + step.factor * _with_bit(step.release, side.bits, unit)
        for client in range(federation.units):
            is_target = client in federation.targets and (takes_part is None or bool(takes_part[:, client].any()))
            if not is_in_sum[:, client].any() and not is_target:
                continue
            trial = contributed(federation, client, federation.shard(client), step.start, moment)
            added = step.factor * _with_bit(trial.total, trial.centred_bits if mechanism.is_adaptive else None, unit)
            noise = noise - added * torch.from_numpy(is_in_sum[:, client]).to(added.device).unsqueeze(1)
            if is_target:
                updates[client] = updates.get(client, 0.0) + added
    assert isinstance(noise, Tensor), "a round is weighed"
    nothing = torch.zeros_like(noise)
    of_targets = [updates.get(int(client), nothing) for client in federation.targets]
    shape = noise.shape[1], noise.shape[1] - mechanism.is_adaptive
    along = [torch.stack([(noise * target)[:, :end].sum(dim=1) for target in of_targets], dim=1) for end in shape]
    norms = [torch.stack([target[:, :end].norm(dim=1) for target in of_targets], dim=1) for end in shape]
    return _Alignment(_array(along[0]), _array(norms[0])), _Alignment(_array(along[1]), _array(norms[1]))


def _with_bit(total: Tensor, bits: Tensor | None, unit: Tensor) -> Tensor:
    """Return sums of contributions as float64; with adaptive clipping, the quantile bits are added as one more column.

    The bits are multiplied by `unit`, which gives their noise the scale of the noise on the sums.
    """
    if bits is None:
        return total.double()
    return torch.cat([total.double(), (bits.double() * unit).unsqueeze(1).to(total.device)], dim=1)


def ascent_contribution(federation: LoadedFederation, models: Tensor) -> Tensor:
    """Return the vector that a malicious insider adds to its contribution to raise the targets' losses.

    It is float32, shape (trials, parameters).

    Shapes: `models` (trials, parameters).
    """
    examples = federation.differing
    rate = federation.public.ascent
    norm = federation.public.mechanism.clipping_norm
    return ascent(
        federation.model, models, examples.features, examples.labels, rate, None if math.isinf(norm) else norm
    )


def _array(values: Tensor) -> Floats:
    return np.asarray(values.double().cpu().numpy(), dtype=np.float64)
