"""User-level clipping: the gradients of all records of a user are summed and clipped together.

A user with several records is one unit: the contribution is the sum g of the gradients of the user's records, clipped
to C. So only the norm of a sum is needed, and a model of stacked layers does not compute any record's gradient. The
gradient of a layer is a sum of products d a' over records and output positions. ||sum d a'||^2 follows from two small
Gram matrices of the user's rows, <D D', A A'>, or from the sum itself, whichever is cheaper. Gram matrices are computed
in float64, because cancellation would otherwise spoil the norms of sums. For other models, per-record gradients are
computed.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.learning import stacked_model
from fl_audit.learning.convolutions import StackedConv2d
from fl_audit.learning.layers import LayerCall, StackedLinear, StackedNormalisation, weigh
from fl_audit.learning.record_gradients import RecordGradientSummary
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.learning.user_batching import Bucket, MicrobatchUsers, UserRecords

_WIDENED = 2**16
"""Scalars that are widened to float64 at once, so that they stay in cache."""
_OF_ONE_PRODUCT = 400
"""Operations that take as long as it takes to begin the product of one user and trial."""


class UserSum(NamedTuple):
    """The clipped sums of some users, and the sum of their centred quantile bits."""

    total: Tensor  # float32 (trials, parameters)
    # For every user that takes part 1/2 where its summed gradient is at most C long, else -1/2, added up, float64
    # (trials,): what a clipping norm that adapts is moved by.
    centred_bits: Tensor


def clipped_user_sum(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    users: Tensor,
    clipping_norm: float | Tensor | None,
    batch_trials: int | None = None,
    taking_part: Tensor | None = None,
) -> UserSum:
    """Return the sum over users of g min(1, C / ||g||), where g is the sum of the gradients of a user's records.

    Raises `InputError` if shapes do not match.

    Parameters
    ----------
    model
        The stacked model.
    models
        Parameters of each trial, float32 (trials, parameters).
    features
        Features of the records, float32 (n, *shape), n may be 0.
    labels
        Classes of the records, int64 (n,).
    users
        Number of the user of each record, int64 (n,).
    clipping_norm
        Clipping norm C, positive, one number or one per trial (trials,); None sums the gradients without clipping.
    batch_trials
        As for `StackedModel.clipped_sum`; it cannot be combined with `taking_part`.
    taking_part
        Bool (trials, n): the records over which each trial sums; None for all records. A user with only some records in
        a trial contributes the clipped sum of these.

    Examples
    --------
    >>> model = StackedModel(torch.nn.Linear(2, 2, bias=False), (2,))
    >>> records, labels, users = torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.tensor([0, 0]), torch.tensor([7, 7])
    >>> clipped_user_sum(model, torch.zeros(1, 4), records, labels, users, None).total.tolist()
    [[-3.0, -4.0, 3.0, 4.0]]
    >>> round(float(clipped_user_sum(model, torch.zeros(1, 4), records, labels, users, 1.0).total.norm()), 6)
    1.0
    """
    records = UserRecords.of(features, labels, users)
    return clipped_sum_of(records, model, models, clipping_norm, batch_trials, taking_part)


def clipped_sum_of(
    records: UserRecords,
    model: StackedModel,
    models: Tensor,
    clipping_norm: float | Tensor | None,
    batch_trials: int | None = None,
    taking_part: Tensor | None = None,
) -> UserSum:
    """Return `clipped_user_sum` for records that are already sorted by user, e.g. once for all rounds of a client.

    Parameters
    ----------
    records
        The records, sorted by user.
    model
        The stacked model.
    models
        As for `clipped_user_sum`.
    clipping_norm
        As for `clipped_user_sum`.
    batch_trials
        As for `clipped_user_sum`.
    taking_part
        As for `clipped_user_sum`, with the records in the original order that `UserRecords.of` was given.
    """
    assert batch_trials is None or taking_part is None, "a part of a batch has not the shapes of its samples"
    norms = None if clipping_norm is None else torch.as_tensor(clipping_norm, device=models.device)
    total, bits = torch.zeros_like(models), torch.zeros(len(models), dtype=torch.float64, device=models.device)
    for place, block in enumerate(records.blocks(_examples_at_once(model, models), taking_part)):
        for rows in block.passes(model, len(models)):
            trials = rows.stop - rows.start
            full = min(block.trials_per_pass(model), (batch_trials or len(models)) - rows.start)
            places: slice | Tensor = rows
            if full > trials:  # copies of the last trial fill up the shapes of the whole batch
                places = torch.arange(rows.start, rows.start + full).clamp(max=rows.stop - 1)
            limit = norms if norms is None or norms.dim() == 0 else norms[places].unsqueeze(1)
            users_of = block.users_of(rows, max(full, trials))
            summed, within = (_fast_sum if model.fast else _formed_sum)(model, models[places], users_of, limit)
            total[rows] = total[rows] + summed[:trials] if place else summed[:trials]
            bits[rows] += within[:trials]
    return UserSum(total, bits)


def user_gradients(
    model: StackedModel, models: Tensor, features: Tensor, labels: Tensor, users: Tensor, vectors: Tensor | None = None
) -> RecordGradientSummary:
    """Return ||g|| and <v, g>, (trials, users), where g is the sum of a user's gradients and v a vector of its trial.

    Raises `InputError` if shapes do not match.

    Parameters
    ----------
    model
        The stacked model.
    models
        Parameters of each trial, float32 (trials, parameters).
    features
        Features of the records, float32 (n, *shape), with the records of each user adjacent. The result has the users
        in this order.
    labels
        Classes of the records, int64 (n,).
    users
        Number of the user of each record, int64 (n,).
    vectors
        One finite vector per trial, (trials, parameters), converted to float32; None if only the norms are needed.
    """
    records = UserRecords.of(features, labels, users)
    norms, products = [], []
    for block in records.blocks(_examples_at_once(model, models)):
        own_norms, own_products = [], []
        for rows in block.passes(model, len(models)):
            own, users_of = models[rows], block.users_of(rows, rows.stop - rows.start)
            along = None if vectors is None else vectors[rows].float()
            squares, told = (_fast_summary if model.fast else _formed_summary)(model, own, users_of, along)
            own_norms.append(squares.sqrt().float())
            own_products.append(told)
        norms.append(torch.cat(own_norms))
        products.append(torch.cat(own_products))
    none = models.new_zeros(len(models), 0)
    found = [torch.cat([none, *one], dim=1) for one in (norms, products)]
    if records.order is not None:
        back = torch.argsort(records.order)
        found = [one[:, back] for one in found]
    return RecordGradientSummary(*found)


def _examples_at_once(model: StackedModel, models: Tensor) -> int:
    """Return the number of records per trial that fit into a pass."""
    if model.fast:
        return model.examples_per_pass
    return max(1, min(model.examples_per_pass, stacked_model.GRADIENT_BUDGET // models[:1].numel()))


class _Squares(NamedTuple):
    """Squared norms of the users' summed gradients in one layer, and these gradients if they were computed."""

    squares: Tensor  # squared norms of the summed gradients, float64 (axis, users)
    sums: dict[str, Tensor] | None  # the summed gradients of each parameter (axis, users, ...), where they were formed


def _fast_sum(
    model: StackedModel, models: Tensor, users: MicrobatchUsers, norm: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the clipped sums of a pass, and the sums of its centred bits, computed by stacked layers."""
    taped, total, portion = model.backward(models, users.portion), torch.empty_like(models), users.portion
    with torch.no_grad():
        found = [_of_layer(users, visit, signal) for visit, signal in taped]
        squares = torch.stack([one.squares for one in found]).sum(0) if len(found) > 1 else found[0].squares
        is_whole = portion.counted is None and not portion.is_own
        if is_whole:
            of_users, bits = _clipped_users(squares, norm)
            weights = (
                of_users.index_select(1, users.groups.runs[0]) if users.groups.count < portion.examples else of_users
            )
        else:
            of_users, (wide, bits) = squares, _clipped(users, users.by_place(squares), norm, portion.counted)
            weights = wide.float()
        columns = model.layout.slices()
        for (visit, signal), one in zip(taped, found, strict=True):
            if is_whole and one.sums is not None:
                summed = {name: weigh(own, of_users) for name, own in one.sums.items()}
            else:
                summed = visit.layer.weighted_sum(visit, signal, weights, _kept(visit, signal))
            for name, own in summed.items():
                total[:, columns[visit.layer.prefix + name]] = own.flatten(1)
    return total, bits


def _clipped_users(squares: Tensor, norm: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the clipping factors (trials, users), and sums of centred bits (trials,), if all users participate."""
    if norm is None:
        return torch.ones_like(squares, dtype=torch.float32), squares.new_full((len(squares),), squares.shape[1] / 2)
    lengths, limit = squares.clamp_(min=0.0).sqrt_(), norm.double()
    within = (lengths <= limit).sum(1).double() - squares.shape[1] / 2
    return (limit / lengths).clamp_(max=1.0).float(), within


def _clipped(
    users: MicrobatchUsers, squares: Tensor, norm: Tensor | None, counted: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the clipping factor of each record's user (trials, n), and sums of the users' centred bits (trials,)."""
    flags = torch.ones_like(squares) if counted is None else counted.double()
    if norm is None:
        return flags, (0.5 * flags * users.groups.is_first).sum(1)
    lengths = squares.clamp(min=0.0)
    weights = (norm.double() * torch.rsqrt(lengths)).clamp(max=1.0) * flags
    within = (lengths.sqrt() <= norm.double()).double() - 0.5
    return weights, (within * flags * users.groups.is_first).sum(1)


def _kept(visit: LayerCall, signal: Tensor) -> object:
    """Return the intermediates from which a layer can compute its sum once the clipping factors are known."""
    layer = visit.layer
    if isinstance(layer, StackedLinear):
        return None
    if isinstance(layer, StackedConv2d) and layer.groups == 1:
        signals = layer.frame.split(signal.flatten(2))
        return None, signals.sum(3) if layer.parameter("bias") is not None else None
    return layer.squared_norms(visit, signal)[1]


def _of_layer(users: MicrobatchUsers, visit: LayerCall, signal: Tensor) -> _Squares:
    """Return the squared norms of all users' summed gradients in one layer."""
    layer, counted = visit.layer, users.portion.counted
    if isinstance(layer, StackedNormalisation):
        gradients = layer.squared_norms(visit, signal)[1]
        assert isinstance(gradients, dict)
        return _of_sums(users, gradients)
    if isinstance(layer, StackedConv2d) and (layer.groups > 1 or not _is_gram_cheap(users, visit, signal)):
        own = {"weight": layer.example_gradients(visit, signal)}
        if layer.parameter("bias") is not None:
            own["bias"] = layer.frame.split(signal.flatten(2)).sum(3)
        return _of_sums(users, own)
    left, right = _factors(visit, signal)
    left = left if counted is None else left * counted[:, :, None, None]
    left, right = users.along(left), right if visit.shared else users.along(right)
    squares = torch.zeros(len(left), users.groups.count, dtype=torch.float64, device=left.device)
    has_bias = layer.parameter("bias") is not None
    scratch = torch.empty(_WIDENED, dtype=torch.float64, device=left.device)
    for place, bucket in enumerate(users.groups.buckets):
        memory = _Memory(scratch, users.groups.kept if visit.shared else {}, (layer.prefix, place))
        found = _of_products(left, right, bucket, has_bias, memory)
        squares[:, bucket.segments if bucket.run is None else bucket.run] = found
    return _Squares(squares, None)


def _is_gram_cheap(users: MicrobatchUsers, visit: LayerCall, signal: Tensor) -> bool:
    """Return whether Gram matrices over all rows of a user are cheaper than the gradients of its records."""
    outs, *ins = visit.layer.required("weight").shape[1:]
    most = max((one.places.shape[1] for one in users.groups.buckets), default=1) * signal.flatten(2).shape[2]
    return 2 * most**2 < outs * math.prod(ins)


def _of_sums(users: MicrobatchUsers, gradients: dict[str, Tensor]) -> _Squares:
    """Return users' summed gradients and their squared norms from per-record gradients (trials, n, ...)."""
    counted, sums = users.portion.counted, {}
    for name, own in gradients.items():
        flags = None if counted is None else counted.view(*counted.shape, *([1] * (own.dim() - 2)))
        sums[name] = users.summed(own if flags is None else own * flags)
    squares = [torch.linalg.vector_norm(one.flatten(2), dim=2, dtype=torch.float64).square() for one in sums.values()]
    return _Squares(torch.stack(squares).sum(0), sums)


def _factors(visit: LayerCall, signal: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors D and A of a layer's gradients D'A: (trials, n, rows, outs) and (trials or 1, n, rows, ins)."""
    layer, frame = visit.layer, visit.layer.frame
    if isinstance(layer, StackedConv2d):
        patches = layer.split_patches(visit).transpose(-1, -2)
        signals = frame.split(signal.flatten(2)).transpose(2, 3)
        return signals, patches.unsqueeze(0) if visit.shared else patches
    inputs = visit.inputs.unsqueeze(0) if visit.shared else frame.split(visit.inputs)
    return frame.split(signal).unsqueeze(2), inputs.unsqueeze(2)


class _Memory(NamedTuple):
    """Scratch memory and cache for the Gram matrices of one bucket."""

    scratch: Tensor  # for intermediate results, float64 (scalars,)
    kept: dict[tuple[str, int], Tensor]  # matrices of inputs that are the same whenever they are read
    key: tuple[str, int]  # of those of this bucket


def _of_products(left: Tensor, right: Tensor, bucket: Bucket, has_bias: bool, memory: _Memory) -> Tensor:
    """Return ||sum of d a' over a user's rows||^2 for each user of a bucket, with the bias, float64 (axis, users)."""
    # (axis, s, rows, outs or ins): where the left factor is zero, the right one may be anything.
    own, rows = bucket.read(left).flatten(2, 3), bucket.places.shape[1] * right.shape[2]
    (axis, users, _, outs), ins = own.shape, right.shape[3]
    # Inputs that all trials share have one Gram matrix for all of them.
    if rows > 1 and _is_gram_cheaper(rows, outs, ins, len(right) / axis):
        return _by_gram(own, right, bucket, has_bias, memory)
    read = bucket.read(right, padded_by_zeros=False).flatten(2, 3)
    if rows == 1:
        inputs = read.square().sum((2, 3))
        return (own.square().sum((2, 3)) * (inputs + 1 if has_bias else inputs)).double()
    together, found = max(1, stacked_model.GRADIENT_BUDGET // (axis * outs * ins)), []
    for first in range(0, users, together):
        some = slice(first, first + together)
        found.append(_by_gradients(own[:, some], read[:, some], has_bias))
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def _is_gram_cheaper(rows: int, outs: int, ins: int, own: float) -> bool:
    """Return whether Gram matrices of a user's rows are cheaper than its gradient in one layer.

    Rows are converted to float64, where an operation costs twice as much. A gradient is written once and read once, and
    the overhead of a separate matrix product equals some hundred operations. `own` is the share of the inputs that is
    not shared between trials.
    """
    read = outs + ins * own
    return 2 * rows * (rows + 2) * read + 4 * rows**2 <= (rows + 2) * outs * ins + _OF_ONE_PRODUCT


def _by_gram(own: Tensor, right: Tensor, bucket: Bucket, has_bias: bool, memory: _Memory) -> Tensor:
    """Return the squared norms for the users of a bucket, computed by Gram matrices, float64 (axis, users)."""
    (axis, users, rows, outs), ins = own.shape, right.shape[3]
    together, found = max(1, stacked_model.GRADIENT_BUDGET // (axis * rows * (outs + ins + 2 * rows))), []
    inputs = memory.kept.get(memory.key)
    read = bucket.read(right, padded_by_zeros=False).flatten(2, 3) if inputs is None else None
    if read is not None and 2 * rows <= ins:  # no more memory than the inputs themselves
        inputs = memory.kept[memory.key] = _gram(read, memory.scratch)
    for first in range(0, users, together):
        some = slice(first, first + together)
        if inputs is not None:
            products = inputs[:, some]
        else:
            assert read is not None, "what is not kept is read"
            products = _gram(read[:, some], memory.scratch)
        found.append(_gram(own[:, some], memory.scratch).mul_(products + 1 if has_bias else products).sum((2, 3)))
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def _by_gradients(own: Tensor, read: Tensor, has_bias: bool) -> Tensor:
    """Return the squared norms for some users, computed from their summed gradients, float64 (axis, users)."""
    if len(read) < len(own):  # every user's inputs are read once for all trials
        axis, users, rows, outs = own.shape
        answers = own.permute(1, 0, 3, 2).reshape(users, axis * outs, rows)
        inputs = F.pad(read[0], (0, 1), value=1.0) if has_bias else read[0]
        return _squared(torch.bmm(answers, inputs).view(users, axis, outs * inputs.shape[2])).T
    squares = _squared((own.transpose(2, 3) @ read).flatten(2))
    return squares + own.sum(2).double().square().sum(2) if has_bias else squares


def _squared(formed: Tensor) -> Tensor:
    """Return squared norms along the last axis, float64; `formed` is overwritten."""
    return formed.square_().sum(2).double()  # torch adds up in portions, which float32 bears


def _gram(values: Tensor, scratch: Tensor) -> Tensor:
    """Return the Gram matrix of each user's rows, (axis, users, rows, rows), float64."""
    flat = values.reshape(-1, *values.shape[2:])
    products = flat.new_empty(len(flat), flat.shape[1], flat.shape[1], dtype=torch.float64)
    one = flat[0].numel()
    together = max(1, len(scratch) // one)
    for first in range(0, len(flat), together):
        some = flat[first : first + together]
        space = scratch[: some.numel()] if one <= len(scratch) else scratch.new_empty(one)
        rows = space.view(some.shape).copy_(some)
        torch.bmm(rows, rows.transpose(1, 2), out=products[first : first + together])
    return products.view(*values.shape[:2], *products.shape[1:])


def _formed_users(model: StackedModel, models: Tensor, users: MicrobatchUsers) -> Tensor:
    """Return the summed gradients of all users from per-record gradients, float32 (axis, users, parameters)."""
    portion = users.portion
    axis = 1 if portion.is_own else users.trials
    total = models.new_zeros(axis, users.groups.count, models.shape[1])
    together = max(1, stacked_model.GRADIENT_BUDGET // models.numel())
    place = users.groups.runs[0].view(users.groups.users.shape)
    for first in range(0, portion.examples, together):
        some = slice(first, first + together)
        part = portion.take(some)
        gradients = model.example_gradients(models, part)
        if part.counted is not None:
            gradients = gradients * part.counted.unsqueeze(2)
        total.index_add_(1, place[..., some].flatten(), users.along(gradients))
    return total


def _formed_sum(
    model: StackedModel, models: Tensor, users: MicrobatchUsers, norm: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the clipped sums of a pass, and the sums of its centred bits, from per-record gradients."""
    formed = _formed_users(model, models, users)
    squares = formed.double().square().sum(2)
    weights, bits = _clipped(users, users.by_place(squares), norm, users.portion.counted)
    if not users.portion.is_own:
        first = users.groups.is_first.nonzero().flatten()
        return torch.einsum("wu,wup->wp", weights[:, first].float(), formed), bits
    first = users.groups.is_first.flatten().nonzero().flatten()
    weighted = weights.flatten()[first].float().unsqueeze(1) * formed[0]
    return torch.zeros_like(models).index_add_(0, users.groups.trial_of_user, weighted), bits


def _fast_summary(
    model: StackedModel, models: Tensor, users: MicrobatchUsers, vectors: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return users' squared norms, float64, and products, float32, both (trials, users), computed by stacked layers."""
    taped = model.backward(models, users.portion)
    with torch.no_grad():
        squares = torch.stack([_of_layer(users, *one).squares for one in taped]).sum(0).clamp(min=0.0)
        if vectors is None:
            return squares, torch.zeros_like(squares).float()
        taped[0][0].layer.frame.parameters = model.layout.views(vectors)  # all layers' frame
        each = torch.stack([visit.layer.products(visit, signal) for visit, signal in taped]).sum(0)
        return squares, users.summed(each)


def _formed_summary(
    model: StackedModel, models: Tensor, users: MicrobatchUsers, vectors: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return users' squared norms, float64, and products, float32, both (trials, users), from per-record gradients."""
    formed = _formed_users(model, models, users)
    squares = formed.double().square().sum(2)
    if vectors is None:
        return squares, torch.zeros_like(squares).float()
    return squares, torch.bmm(formed, vectors.unsqueeze(2)).squeeze(2)
