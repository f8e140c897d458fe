"""Norms of the gradients of units (users, or single records) in the layers of a stacked model.

The gradient of a user is the sum of the gradients of the user's records. A user with one record is a record, whose norm
the layer itself computes. For users with more records, per-record gradients are avoided if possible: the gradient of a
layer is a sum of outer products d a^T over records and output positions. Here d is a gradient at the layer's outputs,
and a is an input of the layer. Let D and A be the matrices with the rows d and a of one user. The squared norm of the
user's sum is the inner product of the two small Gram matrices D D^T and A A^T. The norm is computed from these matrices
or from the sum itself, whichever is cheaper. Gram matrices are computed in float64, because cancellation would
otherwise spoil the norms of sums.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.learning import pass_budgets
from fl_audit.learning.convolutions import StackedConv2d
from fl_audit.learning.layers import LayerCall, StackedNormalisation
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.user_groups import Bucket, UserGroups

_WIDENED_SCALARS = 2**16
"""Number of scalars that are converted to float64 at once; they fit the cache."""
_PRODUCT_OVERHEAD = 400
"""Number of operations that take as long as the overhead of one matrix product."""


class UnitNorms(NamedTuple):
    """Squared norms of the units' gradients in one layer."""

    squares: Tensor  # float32 (trials, records) if each record is a user, otherwise float64 (axis, users)
    intermediates: object  # values that `StackedLayer.weighted_sum` needs besides the records' weights


def unit_norms(microbatch: Microbatch, call: LayerCall, signal: Tensor) -> UnitNorms:
    """Return the squared norms of the gradients of all users of a microbatch in one layer."""
    if microbatch.groups is None:
        return UnitNorms(*call.layer.squared_norms(call, signal))
    match call.layer:
        case StackedNormalisation() as layer:
            _, gradients = layer.squared_norms(call, signal)
            assert isinstance(gradients, dict)
            return UnitNorms(_norms_of_sums(microbatch, microbatch.groups, gradients.values()), gradients)
        case StackedConv2d() as layer:
            has_bias = layer.parameter("bias") is not None
            bias = layer.frame.split(signal.flatten(2)).sum(3) if has_bias else None
            if layer.groups == 1 and _is_gram_cheap(microbatch.groups, call, signal):
                return UnitNorms(_norms_of_products(microbatch, microbatch.groups, call, signal), (None, bias))
            gradients = layer.example_gradients(call, signal)
            tensors = [gradients] if bias is None else [gradients, bias]
            return UnitNorms(_norms_of_sums(microbatch, microbatch.groups, tensors), (gradients, bias))
        case _:
            return UnitNorms(_norms_of_products(microbatch, microbatch.groups, call, signal), None)


def _is_gram_cheap(groups: UserGroups, call: LayerCall, signal: Tensor) -> bool:
    """Return whether the norms of users' gradients cost less from Gram matrices than from the gradients themselves.

    The matrices are D D^T and A A^T of the module's docstring, which grow with the number of a user's records.
    """
    outs, *ins = call.layer.required_parameter("weight").shape[1:]
    most_records = max((bucket.positions.shape[1] for bucket in groups.buckets), default=1)
    rows = most_records * signal.flatten(2).shape[2]
    return 2 * rows**2 < outs * math.prod(ins)


def _norms_of_sums(microbatch: Microbatch, groups: UserGroups, gradients: Iterable[Tensor]) -> Tensor:
    """Return the squared norms of users' summed gradients, (axis, users), from per-record gradients (trials, n, ...).

    The norms are taken over all tensors of gradients together.
    """
    sample_weights = microbatch.sample_weights
    squares = list[Tensor]()
    for tensor in gradients:
        weights = (
            None if sample_weights is None else sample_weights.view(*sample_weights.shape, *([1] * (tensor.dim() - 2)))
        )
        sums = groups.summed(tensor if weights is None else tensor * weights)
        squares.append(torch.linalg.vector_norm(sums.flatten(2), dim=2, dtype=torch.float64).square())
    return torch.stack(squares).sum(0)


def _norms_of_products(microbatch: Microbatch, groups: UserGroups, call: LayerCall, signal: Tensor) -> Tensor:
    """Return the squared norms of users' summed gradients, float64 (axis, users), from a layer's inputs and signals."""
    layer = call.layer
    sample_weights = microbatch.sample_weights
    signals, inputs = _factors(call, signal)
    signals = signals if sample_weights is None else signals * sample_weights[:, :, None, None]
    signals = groups.on_user_axis(signals)
    inputs = inputs if call.shared else groups.on_user_axis(inputs)
    squares = torch.zeros(len(signals), groups.count, dtype=torch.float64, device=signals.device)
    has_bias = layer.parameter("bias") is not None
    scratch = torch.empty(_WIDENED_SCALARS, dtype=torch.float64, device=signals.device)
    for number, bucket in enumerate(groups.buckets):
        cache = groups.input_products if call.shared else {}
        memory = _GramMemory(scratch, cache, (layer.prefix, number))
        index = bucket.users if bucket.user_slice is None else bucket.user_slice
        squares[:, index] = _bucket_norms(signals, inputs, bucket, has_bias, memory)
    return squares


def _factors(call: LayerCall, signal: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output gradients G and the inputs A of a layer; a record's gradient of the weights is G^T A.

    G is (trials, n, rows, outs), and A is (trials or 1, n, rows, ins), with a row for every position of the layer's
    output.
    """
    layer = call.layer
    frame = call.layer.frame
    if isinstance(layer, StackedConv2d):
        patches = layer.split_patches(call).transpose(-1, -2)
        signals = frame.split(signal.flatten(2)).transpose(2, 3)
        return signals, patches.unsqueeze(0) if call.shared else patches
    inputs = call.inputs.unsqueeze(0) if call.shared else frame.split(call.inputs)
    return frame.split(signal).unsqueeze(2), inputs.unsqueeze(2)


class _GramMemory(NamedTuple):
    """Memory for Gram matrices of one bucket, the users of a pass with similar numbers of records."""

    scratch: Tensor  # memory for intermediate results, float64 (scalars,)
    # Cache of Gram matrices of inputs that do not change, keyed by layer and bucket.
    input_products: dict[tuple[str, int], Tensor]
    key: tuple[str, int]  # layer and bucket of the matrices of this object


def _bucket_norms(
    layer_signals: Tensor, layer_inputs: Tensor, bucket: Bucket, has_bias: bool, memory: _GramMemory
) -> Tensor:
    """Return the squared norms of the summed gradients of a bucket's users in one layer, float64 (axis, users).

    `layer_signals` and `layer_inputs` are the factors that `_factors` returns.
    """
    # (axis, s, rows, outs or ins): where the left factor is zero, the right one may be anything.
    signals = bucket.read(layer_signals).flatten(2, 3)
    rows = bucket.positions.shape[1] * layer_inputs.shape[2]
    axis, users, _, outs = signals.shape
    ins = layer_inputs.shape[3]
    # Inputs that all trials share have one Gram matrix for all of them.
    if rows > 1 and _is_gram_cheaper(rows, outs, ins, len(layer_inputs) / axis):
        return _norms_by_gram(signals, layer_inputs, bucket, has_bias, memory)
    inputs = bucket.read(layer_inputs, padded_by_zeros=False).flatten(2, 3)
    if rows == 1:
        squares = inputs.square().sum((2, 3))
        return (signals.square().sum((2, 3)) * (squares + 1 if has_bias else squares)).double()
    together = max(1, pass_budgets.GRADIENT_BUDGET // (axis * outs * ins))
    ranges = pass_budgets.slices(users, together)
    norms = [_norms_by_gradients(signals[:, user_slice], inputs[:, user_slice], has_bias) for user_slice in ranges]
    return norms[0] if len(norms) == 1 else torch.cat(norms, dim=1)


def _is_gram_cheaper(rows: int, outs: int, ins: int, input_share: float) -> bool:
    """Return whether Gram matrices are cheaper than the summed gradient for a user with `rows` rows.

    `input_share` is 1 if each trial has its own inputs, and 1 / trials if all trials share the inputs.
    """
    width = outs + ins * input_share
    return 2 * rows * (rows + 2) * width + 4 * rows**2 <= (rows + 2) * outs * ins + _PRODUCT_OVERHEAD


def _norms_by_gram(
    signals: Tensor, layer_inputs: Tensor, bucket: Bucket, has_bias: bool, memory: _GramMemory
) -> Tensor:
    """Return the squared norms of users' summed gradients of a layer, float64 (axis, users).

    They are computed from the Gram matrices of the output gradients `signals` and of the inputs `layer_inputs`.
    """
    axis, users, rows, outs = signals.shape
    ins = layer_inputs.shape[3]
    together = max(1, pass_budgets.GRADIENT_BUDGET // (axis * rows * (outs + ins + 2 * rows)))
    input_products = memory.input_products.get(memory.key)
    inputs = bucket.read(layer_inputs, padded_by_zeros=False).flatten(2, 3) if input_products is None else None
    if inputs is not None and 2 * rows <= ins:  # no more memory than the inputs themselves
        input_products = memory.input_products[memory.key] = _gram(inputs, memory.scratch)
    norms = list[Tensor]()
    for user_slice in pass_budgets.slices(users, together):
        if input_products is not None:
            products = input_products[:, user_slice]
        else:
            assert inputs is not None, "inputs whose products are not cached are read"
            products = _gram(inputs[:, user_slice], memory.scratch)
        signal_products = _gram(signals[:, user_slice], memory.scratch)
        norms.append(signal_products.mul_(products + 1 if has_bias else products).sum((2, 3)))
    return norms[0] if len(norms) == 1 else torch.cat(norms, dim=1)


def _norms_by_gradients(signals: Tensor, inputs: Tensor, has_bias: bool) -> Tensor:
    """Return the squared norms of users' gradients, float64 (axis, users), after computing each user's gradient.

    `signals` contains the gradients at the layer's outputs, and `inputs` the layer's inputs.
    """
    if len(inputs) < len(signals):  # every user's inputs are read once for all trials
        axis, users, rows, outs = signals.shape
        transposed = signals.permute(1, 0, 3, 2).reshape(users, axis * outs, rows)
        columns = F.pad(inputs[0], (0, 1), value=1.0) if has_bias else inputs[0]
        return _squared_norms(torch.bmm(transposed, columns).view(users, axis, outs * columns.shape[2])).T
    squares = _squared_norms((signals.transpose(2, 3) @ inputs).flatten(2))
    return squares + signals.sum(2).double().square().sum(2) if has_bias else squares


def _squared_norms(gradients: Tensor) -> Tensor:
    """Return the squared norms along the last axis, float64; `gradients` is overwritten."""
    return gradients.square_().sum(2).double()  # torch adds up in portions, which float32 bears


def _gram(values: Tensor, scratch: Tensor) -> Tensor:
    """Return each user's Gram matrix, float64 (axis, users, rows, rows), of values (axis, users, rows, width)."""
    flat = values.reshape(-1, *values.shape[2:])
    products = flat.new_empty(len(flat), flat.shape[1], flat.shape[1], dtype=torch.float64)
    size = flat[0].numel()
    together = max(1, len(scratch) // size)
    for matrix_slice in pass_budgets.slices(len(flat), together):
        narrow = flat[matrix_slice]
        space = scratch[: narrow.numel()] if size <= len(scratch) else scratch.new_empty(size)
        wide = space.view(narrow.shape).copy_(narrow)
        torch.bmm(wide, wide.transpose(1, 2), out=products[matrix_slice])
    return products.view(*values.shape[:2], *products.shape[1:])
