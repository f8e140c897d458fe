"""Local SGD of chains of dense layers (MLPs), in all trials at once, with few and small operations.

A plain step on a mini-batch of ten records reads and writes every weight of the first layer for ten examples. This
module avoids these operations, because all trials train on the same records X and the first layer is linear. Let W be
the initial weights of the first layer. Let G be the gradients at its outputs, times the learning rate and summed over
the steps so far. With ' for the transpose, the current weights are W - G' X, and the outputs are X W' - (X X') G. So X
W' and X X' are computed once for several steps, a step reads only small matrices, and the weights are updated once at
the end. All other layers are updated at every step. The backward pass is written out, because the overhead of autograd
exceeds the arithmetic of such steps.

Trials may have different records, because clients of a round are stacked or records are randomised. The matrices are
then computed for each trial's records.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from fl_audit.array_types import Integers
from fl_audit.learning.layers import dense_outputs
from fl_audit.learning.losses import TrainingLoss, label_targets
from fl_audit.learning.pass_budgets import slices
from fl_audit.learning.stacked_layers import ParameterLayout


@dataclass(frozen=True)
class Activation:
    """An elementwise activation function that follows a layer, and its backward pass."""

    apply: Callable[[Tensor], Tensor]  # the activation function
    # Backward pass: function of the gradients at the outputs and of the outputs, which returns those at the inputs.
    pull_back: Callable[[Tensor, Tensor], Tensor]


_aten = torch.ops.aten
_NONE = Activation(lambda inputs: inputs, lambda signal, outputs: signal)
_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation(torch.relu, lambda signal, outputs: _aten.threshold_backward(signal, outputs, 0.0)),
    nn.Tanh: Activation(torch.tanh, lambda signal, outputs: _aten.tanh_backward(signal, outputs)),
    nn.Sigmoid: Activation(torch.sigmoid, lambda signal, outputs: _aten.sigmoid_backward(signal, outputs)),
}


@dataclass(frozen=True)
class ChainLayer:
    """One dense layer of a chain and the activation that follows it."""

    outs: int  # number of outputs
    ins: int  # number of inputs
    weight: slice  # indices of the weights among the flattened parameters of a model
    bias: slice | None  # indices of the bias among the flattened parameters; None without a bias
    activation: Activation = _NONE  # activation that follows the layer

    def weights(self, models: Tensor) -> Tensor:
        """Return the layer's weights in models (trials, parameters) as a view (trials, outs, ins)."""
        return models[:, self.weight].view(len(models), self.outs, self.ins)

    def biases(self, models: Tensor) -> Tensor | None:
        """Return the layer's biases in models (trials, parameters) as a view (trials, 1, outs); None without a bias."""
        return None if self.bias is None else models[:, self.bias].unsqueeze(1)


def dense_chain(
    module: nn.Module, feature_shape: tuple[int, ...], layout: ParameterLayout
) -> tuple[ChainLayer, ...] | None:
    """Return the dense layers of a module that is a chain of them; None for any other module.

    Flattening, identities, and one activation after each layer may be part of the chain. A layer must not be frozen,
    shared or altered by hooks, and the last one has an output for each of two or more classes.
    """
    columns = layout.slices()
    layers = list[ChainLayer]()
    is_flat = len(feature_shape) == 1
    for name, module_part in _parts(module, ""):
        layer_type = None if _is_altered(module_part) else type(module_part)  # a subclass may compute anything
        weight = columns.get(f"{name}.weight")
        bias = columns.get(f"{name}.bias")
        # Nothing of a dense layer may be frozen, and its weights have to be its own.
        if (
            isinstance(module_part, nn.Linear)
            and layer_type is nn.Linear
            and is_flat
            and weight
            and (bias or module_part.bias is None)
        ):
            layers.append(ChainLayer(module_part.out_features, module_part.in_features, weight, bias))
        elif layer_type in _ACTIVATIONS and layers and layers[-1].activation is _NONE:
            layers[-1] = replace(layers[-1], activation=_ACTIVATIONS[layer_type])
        elif layer_type is nn.Flatten and module_part.start_dim == 1 and module_part.end_dim == -1:
            is_flat = True
        elif layer_type is not nn.Identity and not (layer_type is nn.Dropout and module_part.p == 0):
            return None
    widths = [prod(feature_shape), *(layer.outs for layer in layers)]
    fits = all(width == layer.ins for width, layer in zip(widths, layers, strict=False))
    is_classifier = bool(layers) and layers[-1].outs > 1  # the backward pass here is that of the cross-entropy
    return tuple(layers) if is_classifier and fits else None


def _parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a module with their names; nested `nn.Sequential` are split, in the order of their calls."""
    if type(module) is not nn.Sequential or _is_altered(module):
        yield name, module
        return
    # `named_children` would leave out a part that is called a second time.
    for child, layer in module._modules.items():
        assert layer is not None
        yield from _parts(layer, f"{name}.{child}" if name else child)


def _is_altered(module: nn.Module) -> bool:
    """Return whether a module has hooks or a replaced `forward`."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


_STRETCH = 256
"""Largest number of records of a range of steps; with more, the products between records cost more than they save."""


def chain_updates(
    layers: Sequence[ChainLayer],
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    rate: float,
    batches: Sequence[Integers],
    trials_together: Callable[[int], int],
    proximal_rate: float,
    loss: TrainingLoss,
) -> Tensor:
    """Return models before local SGD minus models after it, for a chain of dense layers, float32 (trials, parameters).

    The result equals that of `local_updates` up to rounding.

    Shapes: `models` (trials, parameters), `features` (n, ...), `labels` (n,), `batches` (batch,).

    `batches`: The batches may differ between trials, (trials, batch), only if `fits_one_stretch` says that the records
    are few enough.

    `proximal_rate`: The learning rate times the weight of a proximal term, by which every step moves the parameters
    towards those at the start of the round; 0 without the term.

    `loss`: The loss of a record.
    """
    moved = models.new_empty(models.shape)  # stacked clients share one start, whose memory is that of one model
    is_own = labels.dim() == 2
    for number, (chosen, steps) in enumerate(_step_ranges(labels.shape[-1], batches)):
        shared = None if is_own else _StepsOnRecords.of(layers, features[chosen], labels[chosen], steps, loss)
        together = trials_together(labels.shape[-1] if isinstance(chosen, slice) else len(chosen))
        for rows in slices(len(models), together):
            theirs = [step[rows] if step.ndim == 2 else step for step in steps]
            stretch = shared or _StepsOnRecords.of(layers, features[rows, chosen], labels[rows, chosen], theirs, loss)
            start = models[rows]
            now = start if number == 0 else start - moved[rows]
            _take_steps(layers, start, now, moved[rows], stretch, rate, 1 - proximal_rate)
    return moved


def fits_one_stretch(records: int, used: int) -> bool:
    """Return whether a client has so few records that one array of its records is used for all steps of a round.

    The client must have at most 256 records, and at most as many as its mini-batches contain together.
    """
    return records <= min(_STRETCH, used)


@dataclass(frozen=True)
class _StepsOnRecords:
    """Some records of a client, and the consecutive steps of local SGD that use only these records."""

    # Whether each trial has records of its own. If not, the first axis of the next three tensors has length 1.
    is_own: bool
    features: Tensor  # features of the n records, float32 (trials, n, ins)
    # Targets of the records' cross-entropy: without weights and smoothing 1 at a record's class, otherwise 0; float32
    # (trials, n, classes).
    targets: Tensor
    is_weighted: bool  # whether the targets of a record may sum to another number than 1
    # Inner products between records, plus 1 if the first layer has a bias, float32 (trials, n, n).
    products: Tensor
    # Indices of the records of each step, (batch,). If each trial has its own records, the indices refer to the
    # concatenated records of all trials, (trials * batch,).
    steps: tuple[Tensor, ...]

    @classmethod
    def of(
        cls,
        layers: Sequence[ChainLayer],
        features: Tensor,
        labels: Tensor,
        steps: Sequence[Integers],
        loss: TrainingLoss,
    ) -> "_StepsOnRecords":
        is_own = labels.dim() == 2
        flat = features.flatten(2 if is_own else 1).float()
        targets = label_targets(labels, layers[-1].outs, flat.dtype, loss)
        products = flat @ flat.mT if len(steps) > 1 else flat.new_empty(0)
        if layers[0].bias is not None:
            products += 1
        if is_own:
            # Steps that are the same in all trials are named trial by trial here.
            firsts = np.arange(len(flat))[:, np.newaxis] * flat.shape[1]
            steps = [(firsts + step).reshape(-1) for step in steps]
        else:
            flat = flat[None]
            targets = targets[None]
            products = products[None]
        placed = tuple(torch.from_numpy(step).to(flat.device) for step in steps)
        return cls(is_own, flat, targets, bool(loss.class_weights), products, placed)

    def picked(self, values: Tensor, step: Tensor) -> Tensor:
        """Return one step's rows, (trials, batch, width), of `values` (trials, n, width)."""
        if self.is_own:
            return values.flatten(0, 1).index_select(0, step).view(len(values), -1, values.shape[2])
        return values.index_select(1, step)

    def add(self, values: Tensor, step: Tensor, increments: Tensor) -> None:
        """Add `increments` (trials, batch, width) in place to one step's rows of `values` (trials, n, width)."""
        if self.is_own:
            values.view(-1, values.shape[2]).index_add_(0, step, increments.flatten(0, 1))
        else:
            values.index_add_(1, step, increments)


def _step_ranges(records: int, batches: Sequence[Integers]) -> Iterator[tuple[slice | Tensor, Sequence[Integers]]]:
    """Divide the steps of a training into ranges of consecutive steps, each of which uses few different records.

    Yield for each range the indices of its records (or a slice of all records), and its mini-batches. A mini-batch
    holds positions among the records of the range.
    """
    sizes = [batch.shape[-1] for batch in batches]
    if fits_one_stretch(records, sum(sizes)):
        yield slice(None), batches
        return
    first = 0
    while first < len(batches):
        reached = accumulate(sizes[first:])
        last = first + max(1, sum(1 for size in reached if size <= _STRETCH))
        chosen, positions = np.unique(np.concatenate(batches[first:last]), return_inverse=True)
        yield torch.from_numpy(chosen), np.split(positions, np.cumsum(sizes[first : last - 1]))
        first = last


def _take_steps(
    layers: Sequence[ChainLayer],
    models: Tensor,
    now: Tensor,
    moved: Tensor,
    stretch: _StepsOnRecords,
    rate: float,
    shrink: float,
) -> None:
    """Take the SGD steps of `stretch` from the parameters `now`, and write the update of the round so far to `moved`.

    The update is the parameters at the start of the round, `models`, minus the parameters after these steps. `rate` is
    the learning rate. `shrink` is the share of the update so far that is left by the proximal term of a step; 1 without
    such a term.
    """
    is_fresh = now is models
    if is_fresh or shrink == 1:
        front = _FirstLayer(layers[0], now, stretch, shrink)
    else:
        front = _FirstLayer(layers[0], models, stretch, shrink, moved)
    upper = [_UpperLayer(layer, now, models, shrink) for layer in layers[1:]]
    for step in stretch.steps:
        values = front.forward(step)
        for layer in upper:
            values = layer.forward(values)
        # The gradient of cross-entropy at the logits; here it takes the learning rate and the mean once for all.
        targets = stretch.picked(stretch.targets, step)
        probabilities = torch.softmax(values, 2)
        if stretch.is_weighted:
            probabilities.mul_(targets.sum(2, keepdim=True))
        signal = probabilities.sub_(targets).mul_(rate / values.shape[1])
        for layer in reversed(upper):
            signal = layer.backward(signal)
        front.backward(signal)
    front.settle(moved, is_fresh)
    for layer in upper:
        layer.settle(models, moved)


class _FirstLayer:
    """The first dense layer of a chain, for some trials; its weights change only when `settle` is called.

    `moved` holds earlier updates that a proximal term shrinks; None if there are none, or if they are in `now`.
    """

    def __init__(
        self, layer: ChainLayer, now: Tensor, stretch: _StepsOnRecords, shrink: float, moved: Tensor | None = None
    ) -> None:
        self._layer = layer
        self._stretch = stretch
        self._inputs = stretch.features.expand(len(now), -1, -1)
        self._first = dense_outputs(self._inputs, layer.weights(now), layer.biases(now))
        self._pulled = torch.zeros_like(self._first)
        self._shrink = shrink
        self._left = 1.0  # share of the earlier updates that is left
        self._earlier = None
        if moved is not None:
            self._earlier = dense_outputs(self._inputs, layer.weights(moved), layer.biases(moved))
        self._is_moved = False

    def forward(self, step: Tensor) -> Tensor:
        outputs = self._stretch.picked(self._first, step)
        if self._earlier is not None:
            outputs = outputs.sub(self._stretch.picked(self._earlier, step), alpha=self._left)
        if self._is_moved:
            products = self._stretch.picked(self._stretch.products, step).expand(len(outputs), -1, -1)
            outputs.baddbmm_(products, self._pulled, alpha=-1)
        self._step = step
        self._outputs = self._layer.activation.apply(outputs)
        return self._outputs

    def backward(self, signal: Tensor) -> None:
        if self._shrink != 1:
            self._pulled.mul_(self._shrink)
            self._left *= self._shrink
        self._stretch.add(self._pulled, self._step, self._layer.activation.pull_back(signal, self._outputs))
        self._is_moved = True

    def settle(self, moved: Tensor, is_fresh: bool) -> None:
        """Write the layer's total update to `moved` if `is_fresh`; otherwise add it to the earlier updates there."""
        beta = 0.0 if is_fresh else self._left
        self._layer.weights(moved).baddbmm_(self._pulled.transpose(1, 2), self._inputs, beta=beta)
        if self._layer.bias is not None:
            biases = moved[:, self._layer.bias]
            shift = self._pulled.sum(1)
            biases.copy_(shift if is_fresh else beta * biases + shift)


class _UpperLayer:
    """A dense layer of a chain other than the first, for some trials; its weights are updated at every step.

    `models` holds the parameters at the start of the round, to which a proximal term draws the layer.
    """

    def __init__(self, layer: ChainLayer, now: Tensor, models: Tensor, shrink: float) -> None:
        self._layer = layer
        self._weights = layer.weights(now).clone()
        biases = layer.biases(now)
        self._biases = None if biases is None else biases.clone()
        self._models = models
        self._shrink = shrink

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = dense_outputs(inputs, self._weights, self._biases)
        self._inputs = inputs
        self._outputs = self._layer.activation.apply(outputs)
        return self._outputs

    def backward(self, signal: Tensor) -> Tensor:
        """Update the layer, and return the gradients at its inputs, computed with the weights before the update.

        All gradients are multiplied by the learning rate.
        """
        signal = self._layer.activation.pull_back(signal, self._outputs)
        below = torch.bmm(signal, self._weights)
        if self._shrink != 1:
            self._weights.lerp_(self._layer.weights(self._models), 1 - self._shrink)
            if self._biases is not None and (start := self._layer.biases(self._models)) is not None:
                self._biases.lerp_(start, 1 - self._shrink)
        self._weights.baddbmm_(signal.transpose(1, 2), self._inputs, alpha=-1)
        if self._biases is not None:
            self._biases.sub_(signal.sum(1, keepdim=True))
        return below

    def settle(self, models: Tensor, moved: Tensor) -> None:
        """Write the layer's update, its initial minus its trained parameters, to its columns of `moved`.

        `models` holds the initial parameters. Both tensors have the shape (trials, parameters).
        """
        torch.sub(self._layer.weights(models), self._weights, out=self._layer.weights(moved))
        if self._layer.bias is not None and self._biases is not None:
            torch.sub(models[:, self._layer.bias], self._biases.squeeze(1), out=moved[:, self._layer.bias])
