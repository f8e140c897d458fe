"""Compute the features of a white-box attacker: gradient, activations, outputs and loss of each target.

The gradient is taken in the last dense layer of a released model. For one example it has rank one. Let h be the layer's
inputs, and d the gradient of the loss at its outputs (if these are the logits, softmax minus one-hot label). The
gradient of the weight is d h', and the gradient of the bias is d. So only d and h are stored. For a layer with ins
inputs and outs outputs, these are outs + ins numbers instead of outs (ins + 1). Functions raise `InputError` if shapes
do not fit or numbers are out of range.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fl_audit.array_types import Floats32, Integers
from fl_audit.errors import require
from fl_audit.learning.stacked_model import StackedModel

_PROBES = 2
_ARRAYS = ("signals", "inputs", "log_probabilities", "losses")


@dataclass(frozen=True)
class WhiteBoxFeatures:
    """A white-box attacker's features of each target in each trial, under one released model or several."""

    signals: Floats32  # gradient of the loss at the outputs of the last dense layer, (trials, targets, releases, outs)
    inputs: Floats32  # inputs of the last dense layer (the last hidden activations), (trials, targets, releases, ins)
    log_probabilities: Floats32  # log-probabilities of all classes, shape (trials, targets, releases, classes)
    losses: Floats32  # cross-entropy losses, shape (trials, targets, releases)
    labels: Integers  # class of each target, int64 (targets,)

    def __post_init__(self) -> None:
        shape = self.losses.shape
        require(len(shape) == 3, f"losses have shape {shape}: accepted is (trials, targets, releases)")
        for name in ("signals", "inputs", "log_probabilities"):
            shape_found = getattr(self, name).shape
            fits = shape_found[:-1] == shape and len(shape_found) == 4
            require(fits, f"{name} have shape {shape_found}: accepted is {shape} and an axis of their own")
        labels = self.labels
        classes = self.log_probabilities.shape[-1]
        fits = labels.shape == shape[1:2] and np.issubdtype(labels.dtype, np.integer)
        require(fits, f"labels are {labels.dtype} of shape {labels.shape}: accepted are whole numbers {shape[1:2]}")
        is_class = bool(((labels >= 0) & (labels < classes)).all())
        require(is_class, f"labels lie outside 0 to {classes - 1}: accepted are the {classes} classes of the outputs")
        for name in _ARRAYS:
            is_finite = bool(np.isfinite(getattr(self, name)).all())
            require(is_finite, f"{name} contain NaN or infinity: accepted are finite numbers; did training diverge?")

    @property
    def trials(self) -> int:
        """The number of trials, which is the length of the first axis of the arrays."""
        return int(self.losses.shape[0])

    @property
    def targets(self) -> int:
        """The number of targets in each trial, which is the length of the second axis of the arrays."""
        return int(self.losses.shape[1])

    @property
    def releases(self) -> int:
        """The number of released models for which there are features."""
        return int(self.losses.shape[2])

    def of_trials(self, trials: slice) -> "WhiteBoxFeatures":
        """Return the features of the trials that a slice selects, as views of the arrays."""
        return replace(self, **{name: getattr(self, name)[trials] for name in _ARRAYS})

    def of_last_release(self) -> "WhiteBoxFeatures":
        """Return the features of the last release only; the axis of releases stays, with length 1."""
        return replace(self, **{name: getattr(self, name)[:, :, -1:] for name in _ARRAYS})

    @staticmethod
    def over_releases(features: Sequence["WhiteBoxFeatures"]) -> "WhiteBoxFeatures":
        """Return the features of several parts as one value, joined along the axis of releases in the given order.

        The parts have the same trials and targets. Raises `InputError` if they do not match.
        """
        require(len(features) > 0, "there are no features to put together: accepted is one part or more")
        first = features[0]
        alike = all(np.array_equal(trial_features.labels, first.labels) for trial_features in features)
        require(alike, "features of other targets or of another layer cannot be put together: accepted are the same")
        for name in _ARRAYS:
            shapes = [getattr(trial_features, name).shape for trial_features in features]
            remaining_shapes = {shape[:2] + shape[3:] for shape in shapes}
            require(
                len(remaining_shapes) == 1,
                f"{name} have shapes {shapes}: accepted are shapes that differ along axis 2 alone",
            )
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(trial_features, name) for trial_features in features], 2) for name in _ARRAYS
        }
        return replace(first, **arrays)


def white_box_features(model: StackedModel, models: Tensor, features: Tensor, labels: Tensor) -> WhiteBoxFeatures:
    """Return the features of targets in all trials, under the models of one release.

    Source: Nasr, Shokri & Houmansadr 2019, section II. (The code of Bernau et al. 2019 uses the last layer and no
    activations.) Log-probabilities and losses are computed in float64 from float32 logits; otherwise 1 - p would round
    to 0 for records with a confidence p near 1.

    Raises `InputError` if the module has no suitable layer, or if a result is not finite. The error is also raised if
    the layer's gradient of the first examples differs from the gradient by autograd. This happens if the weight is
    shared or the forward method was replaced.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,).

    `model`: If there are several, the one that is called last is used. Operations after this layer, such as a
    temperature, are allowed.
    """
    require(len(labels) > 0, "there are no targets: accepted is one or more")
    layer = _last_dense_layer(model, models[0], features[:1])
    _require_rank_one(model, layer, models[0], features[:_PROBES], labels[:_PROBES])
    trials = [_of_trial(model, layer, one_model, features, labels) for one_model in models]
    signals, inputs, log_probabilities, losses = (
        torch.stack(arrays).unsqueeze(2).cpu().numpy() for arrays in zip(*trials, strict=True)
    )
    classes = labels.cpu().numpy().astype(np.int64)
    return WhiteBoxFeatures(signals, inputs, log_probabilities, losses, classes)


def _of_trial(model: StackedModel, layer: str, tensor: Tensor, features: Tensor, labels: Tensor) -> list[Tensor]:
    """Return signals, inputs, log-probabilities and losses of all targets under one model, computed in portions."""
    width = model.examples_per_pass
    parameters = model.layout.of_one(tensor)
    portions = zip(torch.split(features, width), torch.split(labels, width), strict=True)
    observations = [_seen(model, layer, parameters, *portion) for portion in portions]
    return [torch.cat(tensors) for tensors in zip(*observations, strict=True)]


def _seen(
    model: StackedModel, layer: str, parameters: dict[str, Tensor], features: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run one model on n examples, and return signals, inputs, log-probabilities (n, classes) and losses (n,).

    The inputs (n, ins) are those of the dense layer named `layer`. The signals (n, outs) are the gradients of the
    losses with respect to the outputs of this layer.
    """
    with torch.enable_grad(), _watched(_linear(model, layer)) as calls:
        log_probabilities = _log_probabilities(model, parameters, features)
        losses = F.nll_loss(log_probabilities, labels, reduction="none")
        inputs, outputs = calls[0]
        (signals,) = torch.autograd.grad(losses.sum(), [outputs])
    return signals, inputs, log_probabilities.detach().float(), losses.detach().float()


def _log_probabilities(model: StackedModel, parameters: dict[str, Tensor], features: Tensor) -> Tensor:
    """Return the log-probabilities of all classes under one model, float64 (n, classes)."""
    with model.naming_layer_and_record({name: value.unsqueeze(0) for name, value in parameters.items()}, features):
        logits: Tensor = functional_call(model.template, parameters, (features,))
    return F.log_softmax(logits.double(), dim=1)


def _linear(model: StackedModel, layer: str) -> nn.Linear:
    """Return the dense layer at a path, from this thread's copy of the module."""
    module = model.template.get_submodule(layer)
    assert isinstance(module, nn.Linear)
    return module


@contextmanager
def _watched(layer: nn.Linear) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Context manager that records the inputs and outputs of every call of a layer in the yielded list.

    Backpropagation stops at these outputs, so that the gradients with respect to them are available.
    """
    calls: list[tuple[Tensor, Tensor]] = []

    def note(
        module: nn.Module, tensors: tuple[Tensor, ...], tensors_by_name: dict[str, Tensor], outputs: Tensor
    ) -> Tensor:
        leaf = outputs.detach().requires_grad_()
        calls.append(((tensors or tuple(tensors_by_name.values()))[0].detach(), leaf))
        return leaf.clone()  # a leaf must not be changed in place by later operations

    handle = layer.register_forward_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _last_dense_layer(model: StackedModel, tensor: Tensor, features: Tensor) -> str:
    """Return the path of the dense layer that the model calls last; `tensor` holds the parameters of one trial's model.

    Raises `InputError` if there is no dense layer, if the layer is called more than once, or if its input does not have
    one row for each example.
    """
    dense = {name: layer for name, layer in model.template.named_modules() if type(layer) is nn.Linear}
    order: list[str] = []
    handles = [layer.register_forward_hook(lambda *_, name=name: order.append(name)) for name, layer in dense.items()]
    try:
        with torch.no_grad():
            _log_probabilities(model, model.layout.of_one(tensor), features)
    finally:
        for handle in handles:
            handle.remove()
    require(len(order) > 0, "the model calls no dense layer: accepted are models with a torch.nn.Linear")
    layer = order[-1]
    with torch.no_grad(), _watched(dense[layer]) as calls:
        _log_probabilities(model, model.layout.of_one(tensor), features)
    shape = tuple(calls[-1][0].shape)
    expected = (len(features), dense[layer].in_features)
    problem = f"dense layer {layer!r} is called {len(calls)} times, at last with inputs of shape {shape}"
    is_plain = len(calls) == 1 and shape == expected
    accepted = f"one call with shape {expected}, a row for each example"
    require(is_plain, f"{problem}: accepted is {accepted}")
    return layer


def _require_rank_one(model: StackedModel, layer: str, tensor: Tensor, features: Tensor, labels: Tensor) -> None:
    """Raise `InputError` unless the gradient of the layer's weight is the outer product of signals and inputs.

    The inputs are those of the layer, and the signals are the gradients of the loss at its outputs. This is tested on
    the given examples, with `tensor` as the parameters of the model.

    The gradient is no such product if, for example, the model uses the same weight in a second place.
    """
    signals, inputs, _, _ = _seen(model, layer, model.layout.of_one(tensor), features, labels)
    name = f"{layer}.weight" if layer else "weight"
    for index in range(len(labels)):
        parameters = model.layout.of_one(tensor)
        require(name in parameters, f"the weight of dense layer {layer!r} is no parameter of its own: accepted is one")
        parameters[name] = parameters[name].detach().requires_grad_()
        with torch.enable_grad():
            log_probabilities = _log_probabilities(model, parameters, features[index : index + 1])
            (gradient,) = torch.autograd.grad(-log_probabilities[0, labels[index]], [parameters[name]])
        away = (torch.outer(signals[index], inputs[index]) - gradient).abs().max()
        is_alike = not bool(away > 1e-2 * gradient.abs().max())  # `WhiteBoxFeatures` refuses NaN
        require(is_alike, f"the weight of dense layer {layer!r} serves elsewhere, too: accepted is a weight used once")
