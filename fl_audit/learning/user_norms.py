"""Norms of users' summed gradients in the layers of a stacked model, without per-record gradients if possible.

The gradient of a layer is a sum of outer products d a^T over records and output positions. Here d is a gradient at the
layer's outputs, and a is an input of the layer. Let D and A be the matrices with the rows d and a of one user. The
squared norm of the user's sum is the inner product of the two small Gram matrices D D^T and A A^T. The norm is computed
from these matrices or from the sum itself, whichever is cheaper. Gram matrices are computed in float64, because
cancellation would otherwise spoil the norms of sums.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.learning import pass_budgets
from fl_audit.learning.convolutions import StackedConv2d
from fl_audit.learning.layers import LayerCall, StackedNormalisation
from fl_audit.learning.user_batching import Bucket, MicrobatchByUser

_WIDENED = 2**16
"""Number of scalars that are converted to float64 at once; they fit the cache."""
_OF_ONE_PRODUCT = 400
"""Number of operations that take as long as the overhead of one matrix product."""


class UserLayerNorms(NamedTuple):
    """Squared norms of users' summed gradients in one layer, and these gradients if they were computed."""

    squares: Tensor  # squared norms of the summed gradients, float64 (axis, users)
    sums: dict[str, Tensor] | None  # summed gradients (axis, users, ...), keyed by parameter; None if not computed


def user_norms_of_layer(users: MicrobatchByUser, visit: LayerCall, signal: Tensor) -> UserLayerNorms:
    """Return the squared norms of all users' summed gradients in one layer, float64 (axis, users).

    `axis` is the number of trials if the trials share the records. Otherwise it is 1, and the users of all trials are
    concatenated.
    """
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
    left, right = users.on_user_axis(left), right if visit.shared else users.on_user_axis(right)
    squares = torch.zeros(len(left), users.groups.count, dtype=torch.float64, device=left.device)
    has_bias = layer.parameter("bias") is not None
    scratch = torch.empty(_WIDENED, dtype=torch.float64, device=left.device)
    for place, bucket in enumerate(users.groups.buckets):
        memory = _GramScratchMemory(scratch, users.groups.kept if visit.shared else {}, (layer.prefix, place))
        found = _of_products(left, right, bucket, has_bias, memory)
        squares[:, bucket.segments if bucket.run is None else bucket.run] = found
    return UserLayerNorms(squares, None)


def _is_gram_cheap(users: MicrobatchByUser, visit: LayerCall, signal: Tensor) -> bool:
    """Return whether the norms of users' gradients cost less from Gram matrices than from the gradients themselves.

    The matrices are D D^T and A A^T of the module's docstring, which grow with the number of a user's records.
    """
    outs, *ins = visit.layer.required_parameter("weight").shape[1:]
    most = max((one.places.shape[1] for one in users.groups.buckets), default=1) * signal.flatten(2).shape[2]
    return 2 * most**2 < outs * math.prod(ins)


def _of_sums(users: MicrobatchByUser, gradients: dict[str, Tensor]) -> UserLayerNorms:
    """Return users' summed gradients and their squared norms, from per-record gradients (trials, n, ...)."""
    counted, sums = users.portion.counted, {}
    for name, own in gradients.items():
        flags = None if counted is None else counted.view(*counted.shape, *([1] * (own.dim() - 2)))
        sums[name] = users.summed(own if flags is None else own * flags)
    squares = [torch.linalg.vector_norm(one.flatten(2), dim=2, dtype=torch.float64).square() for one in sums.values()]
    return UserLayerNorms(torch.stack(squares).sum(0), sums)


def _factors(visit: LayerCall, signal: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output gradients G and the inputs A of a layer; a record's gradient of the weights is G^T A.

    G is (trials, n, rows, outs), and A is (trials or 1, n, rows, ins), with a row for every position of the layer's
    output.
    """
    layer, frame = visit.layer, visit.layer.frame
    if isinstance(layer, StackedConv2d):
        patches = layer.split_patches(visit).transpose(-1, -2)
        signals = frame.split(signal.flatten(2)).transpose(2, 3)
        return signals, patches.unsqueeze(0) if visit.shared else patches
    inputs = visit.inputs.unsqueeze(0) if visit.shared else frame.split(visit.inputs)
    return frame.split(signal).unsqueeze(2), inputs.unsqueeze(2)


class _GramScratchMemory(NamedTuple):
    """Memory for Gram matrices of one bucket, the users of a pass with similar numbers of records."""

    scratch: Tensor  # memory for intermediate results, float64 (scalars,)
    kept: dict[tuple[str, int], Tensor]  # cache of Gram matrices of inputs that do not change, by layer and bucket
    key: tuple[str, int]  # layer and bucket of the matrices of this object


def _of_products(left: Tensor, right: Tensor, bucket: Bucket, has_bias: bool, memory: _GramScratchMemory) -> Tensor:
    """Return the squared norms of the summed gradients of a bucket's users in one layer, float64 (axis, users).

    `left` and `right` are the factors that `_factors` returns.
    """
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
    together = max(1, pass_budgets.GRADIENT_BUDGET // (axis * outs * ins))
    parts = pass_budgets.slices(users, together)
    found = [_by_gradients(own[:, some], read[:, some], has_bias) for some in parts]
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def _is_gram_cheaper(rows: int, outs: int, ins: int, own: float) -> bool:
    """Return whether Gram matrices are cheaper than the summed gradient for a user with `rows` rows.

    `own` is 1 if each trial has its own inputs, and 1 / trials if all trials share the inputs.
    """
    read = outs + ins * own
    return 2 * rows * (rows + 2) * read + 4 * rows**2 <= (rows + 2) * outs * ins + _OF_ONE_PRODUCT


def _by_gram(own: Tensor, right: Tensor, bucket: Bucket, has_bias: bool, memory: _GramScratchMemory) -> Tensor:
    """Return the squared norms of users' summed gradients of a layer, float64 (axis, users).

    They are computed from the Gram matrices of the output gradients `own` and of the inputs `right`.
    """
    (axis, users, rows, outs), ins = own.shape, right.shape[3]
    together, found = max(1, pass_budgets.GRADIENT_BUDGET // (axis * rows * (outs + ins + 2 * rows))), []
    inputs = memory.kept.get(memory.key)
    read = bucket.read(right, padded_by_zeros=False).flatten(2, 3) if inputs is None else None
    if read is not None and 2 * rows <= ins:  # no more memory than the inputs themselves
        inputs = memory.kept[memory.key] = _gram(read, memory.scratch)
    for some in pass_budgets.slices(users, together):
        if inputs is not None:
            products = inputs[:, some]
        else:
            assert read is not None, "what is not kept is read"
            products = _gram(read[:, some], memory.scratch)
        found.append(_gram(own[:, some], memory.scratch).mul_(products + 1 if has_bias else products).sum((2, 3)))
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def _by_gradients(own: Tensor, read: Tensor, has_bias: bool) -> Tensor:
    """Return the squared norms of users' gradients, float64 (axis, users), after computing each user's gradient.

    `own` contains the gradients at the layer's outputs, and `read` the layer's inputs.
    """
    if len(read) < len(own):  # every user's inputs are read once for all trials
        axis, users, rows, outs = own.shape
        answers = own.permute(1, 0, 3, 2).reshape(users, axis * outs, rows)
        inputs = F.pad(read[0], (0, 1), value=1.0) if has_bias else read[0]
        return _squared(torch.bmm(answers, inputs).view(users, axis, outs * inputs.shape[2])).T
    squares = _squared((own.transpose(2, 3) @ read).flatten(2))
    return squares + own.sum(2).double().square().sum(2) if has_bias else squares


def _squared(formed: Tensor) -> Tensor:
    """Return the squared norms along the last axis, float64; `formed` is overwritten."""
    return formed.square_().sum(2).double()  # torch adds up in portions, which float32 bears


def _gram(values: Tensor, scratch: Tensor) -> Tensor:
    """Return each user's Gram matrix, float64 (axis, users, rows, rows), of values (axis, users, rows, width)."""
    flat = values.reshape(-1, *values.shape[2:])
    products = flat.new_empty(len(flat), flat.shape[1], flat.shape[1], dtype=torch.float64)
    one = flat[0].numel()
    together = max(1, len(scratch) // one)
    for part in pass_budgets.slices(len(flat), together):
        some = flat[part]
        space = scratch[: some.numel()] if one <= len(scratch) else scratch.new_empty(one)
        rows = space.view(some.shape).copy_(some)
        torch.bmm(rows, rows.transpose(1, 2), out=products[part])
    return products.view(*values.shape[:2], *products.shape[1:])
