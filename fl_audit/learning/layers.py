"""Layers that run the models of all trials at once, and compute the gradient norm of every single example.

A trial is one of many independent trainings of the same model. A stacked layer has separate parameters for each trial.
Its inputs are the examples of all trials along one axis, trial by trial, so the code of the model sees one large
mini-batch and needs no change. The raw input of a model is usually the same in every trial; a layer that reads it gets
each example once instead of once per trial. After the backward pass each layer returns the squared norm of every
example's gradient, and the weighted sum of these gradients. A dense layer computes both without per-example gradients,
because ||d a^T||^2 = ||d||^2 ||a||^2 for an input a and a gradient d at the outputs (Goodfellow 2015, "Efficient
per-example gradient computations"). Inner products of gradients with a vector never need per-example gradients, because
outputs are linear in a layer's own parameters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_NARROW = 16
"""Number of outputs below which a dense layer computes all trials in one matrix product, if they share the input.

Below it, one product per trial would be too small to be fast. From it on, one product per trial is faster, because no
copies are needed to order the outputs by trial."""


@dataclass
class SharedPassState:
    """State that a model's stacked layers share during a pass: parameters, raw input and recorded calls."""

    parameters: Mapping[str, Tensor] = field(default_factory=dict)  # float32 (trials, *shape), keyed by parameter name
    trials: int = 1  # number of trials; the first axis of a layer's inputs has trials * examples entries
    examples: int = 1  # number of examples per trial
    recording: bool = False  # whether the layers record their calls for a backward pass
    tape: list["LayerCall"] = field(default_factory=list)  # recorded calls, in order
    features: Tensor | None = None  # raw input of the model; None before the first pass
    derived: dict[object, Tensor] = field(default_factory=dict)  # cache of values computed from the raw input

    def forget(self) -> None:
        """Forget the raw input and all cached values computed from it, because its content may have changed."""
        self.features = None
        self.derived = {}

    def set_input(self, features: Tensor) -> None:
        """Set the model's raw input; clear the values cached for the earlier input, unless both are the same tensor."""
        if self.features is None or not _same_memory(features, self.features):
            self.derived = {}
        self.features = features

    def derive(self, name: str, inputs: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `make(inputs)`; if `inputs` is a view of the whole raw input, cache the result for later passes."""
        if self.features is None or not _same_memory(inputs, self.features):
            return make(inputs)
        key = (name, inputs.shape, inputs.stride())
        if key not in self.derived:
            self.derived[key] = make(inputs)
        return self.derived[key]

    def split(self, merged: Tensor) -> Tensor:
        """Return values (trials * examples, ...) reshaped to (trials, examples, ...)."""
        return merged.reshape(self.trials, self.examples, *merged.shape[1:])

    def is_shared(self, values: Tensor) -> bool:
        """Return True if values are the raw input of the model, which several trials share."""
        return values.shape[0] == self.examples and self.trials > 1


def _same_memory(tensor: Tensor, other_tensor: Tensor) -> bool:
    # `features` keeps its memory alive, so no other tensor can have been put at the same address.
    return tensor.data_ptr() == other_tensor.data_ptr() and tensor.numel() == other_tensor.numel()


@dataclass
class LayerCall:
    """A recorded call of a stacked layer, with its inputs and outputs."""

    layer: "StackedLayer"  # layer that was called
    inputs: Tensor  # (trials * examples, ...), or (examples, ...) if all trials share them
    outputs: Tensor  # (trials * examples, ...)
    shared: bool  # whether all trials have the same inputs, which are given once


class StackedLayer(nn.Module):
    """Base class of layers with separate parameters for each trial, which compute all trials at once."""

    def __init__(self, state: SharedPassState, prefix: str) -> None:
        super().__init__()
        self.frame = state
        self.prefix = prefix

    def parameter(self, name: str) -> Tensor | None:
        """Return the layer's parameter with this name for all trials, (trials, *shape); None if there is none."""
        return self.frame.parameters.get(f"{self.prefix}{name}")

    def required_parameter(self, name: str) -> Tensor:
        """Return the layer's parameter with this name for all trials, (trials, *shape); `KeyError` if there is none."""
        return self.frame.parameters[f"{self.prefix}{name}"]

    def record(self, inputs: Tensor, outputs: Tensor, shared: bool) -> Tensor:
        """Record a call of the layer for the backward pass, if calls are recorded, and return its outputs.

        Shapes: `inputs` (trials * examples, ...), `outputs` (trials * examples, ...).
        """
        if self.frame.recording:
            if not outputs.requires_grad:
                outputs.requires_grad_()
            self.frame.tape.append(LayerCall(self, inputs, outputs, shared))
        return outputs

    def respond(self, inputs: Tensor, shared: bool) -> Tensor:
        """Return the layer's outputs, (trials * examples, ...), as a linear function of the layer's parameters.

        Axes after the first may be merged.
        """
        raise NotImplementedError("each stacked layer computes its own outputs")

    def products(self, call: LayerCall, signal: Tensor) -> Tensor:
        """Return the inner product of each example's gradient with a vector in parameter space, (trials, examples).

        The caller puts the vector into `frame.parameters` in place of the parameters. Since the outputs are linear in
        the parameters, a call with the vector gives the Jacobian-vector product. The result is the inner product of
        `signal` with this product.
        """
        moved = self.frame.split(self.respond(call.inputs, call.shared)).flatten(2)
        return (self.frame.split(signal).flatten(2) * moved).sum(2)

    def squared_norms(self, call: LayerCall, signal: Tensor) -> tuple[Tensor, object]:
        """Return the examples' squared gradient norms, (trials, examples), and intermediate values for
        `weighted_sum`."""
        raise NotImplementedError("each stacked layer computes its own norms")

    def weighted_sum(
        self, call: LayerCall, signal: Tensor, weights: Tensor, intermediates: object
    ) -> dict[str, Tensor]:
        """Return the weighted sum over examples of this layer's gradients, (trials, *shape), keyed by parameter name.

        Shapes: `weights` (trials, examples).
        """
        raise NotImplementedError("each stacked layer computes its own sums")


class StackedLinear(StackedLayer):
    """A dense layer with separate weights for each trial, computed for all trials at once."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of the layer in all trials, (trials * examples, outs), and record this call."""
        shared = self.frame.is_shared(inputs)
        return self.record(inputs, self.respond(inputs, shared), shared)

    def respond(self, inputs: Tensor, shared: bool) -> Tensor:
        """Return the layer's outputs, (trials * examples, outs); `StackedLayer.respond` describes the parameters."""
        frame = self.frame
        weight = self.required_parameter("weight")
        bias = self.parameter("bias")
        trials = weight.shape[0]
        outs = weight.shape[1]
        if shared and outs < _NARROW:
            flat = F.linear(inputs, weight.reshape(-1, weight.shape[2]), None if bias is None else bias.reshape(-1))
            return flat.view(-1, trials, outs).transpose(0, 1).reshape(-1, outs)
        stacked = inputs.expand(trials, -1, -1) if shared else frame.split(inputs)
        return dense_outputs(stacked, weight, None if bias is None else bias.unsqueeze(1)).flatten(0, 1)

    def squared_norms(self, call: LayerCall, signal: Tensor) -> tuple[Tensor, object]:
        """Return the squared gradient norms of the examples, (trials, examples), and None.

        Other layers return intermediate results for `weighted_sum` in place of None; a dense layer needs none.
        """
        signals = self.frame.split(signal).square().sum(2)
        inputs = call.inputs.square().sum(1)
        inputs = inputs if call.shared else self.frame.split(inputs)
        return signals * (inputs if self.parameter("bias") is None else inputs + 1), None

    def weighted_sum(
        self, call: LayerCall, signal: Tensor, weights: Tensor, intermediates: object
    ) -> dict[str, Tensor]:
        """Return each trial's weighted sum of the examples' gradients, (trials, *shape), keyed by parameter name."""
        weighted = self.frame.split(signal) * weights.unsqueeze(2)
        transposed = weighted.transpose(1, 2)
        trials, outs, examples = transposed.shape
        if call.shared and outs < _NARROW:
            summed = (transposed.reshape(-1, examples) @ call.inputs).view(trials, outs, -1)
        else:
            inputs = call.inputs.expand(trials, -1, -1) if call.shared else self.frame.split(call.inputs)
            summed = torch.bmm(transposed, inputs)
        return {"weight": summed} | ({} if self.parameter("bias") is None else {"bias": weighted.sum(1)})


class StackedNormalisation(StackedLayer):
    """A group or layer normalisation with separate scale and shift for each trial, computed for all trials at once."""

    def __init__(self, state: SharedPassState, prefix: str, template: nn.GroupNorm | nn.LayerNorm) -> None:
        super().__init__(state, prefix)
        self.template = template

    def _standardise(self, inputs: Tensor) -> Tensor:
        match self.template:
            case nn.GroupNorm():
                return F.group_norm(inputs, self.template.num_groups, eps=self.template.eps)
            case _:
                return F.layer_norm(inputs, self.template.normalized_shape, eps=self.template.eps)

    def _aligned(self, parameter: Tensor, standardised: Tensor) -> Tensor:
        """Return a parameter (trials, *shape), reshaped to broadcast against values (trials, examples, ...)."""
        left_over = standardised.dim() - parameter.dim()
        middle, trailing = (1, left_over) if isinstance(self.template, nn.GroupNorm) else (left_over + 1, 0)
        return parameter.reshape(len(parameter), *([1] * middle), *parameter.shape[1:], *([1] * trailing))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise the inputs, apply each trial's scale and shift, and record the call for a backward pass."""
        frame = self.frame
        standardised = self._standardise(inputs)
        if frame.is_shared(inputs):
            standardised = standardised.repeat(frame.trials, *([1] * (inputs.dim() - 1)))
        return self.record(standardised.detach(), self.respond(standardised, shared=False), shared=False)

    def respond(self, inputs: Tensor, shared: bool) -> Tensor:
        """Return normalised inputs times each trial's scale plus its shift."""
        weight = self._aligned(self.required_parameter("weight"), inputs)
        bias = self.parameter("bias")
        outputs = self.frame.split(inputs) * weight
        if bias is not None:
            outputs.add_(self._aligned(bias, inputs))
        return outputs.flatten(0, 1)

    def _reduced(self, values: Tensor) -> Tensor:
        """Return values (trials, examples, ...), summed over the axes along which the parameters are broadcast."""
        if isinstance(self.template, nn.GroupNorm):
            return values.flatten(3).sum(3) if values.dim() > 3 else values
        spanned = values.dim() - 2 - len(self.template.normalized_shape)
        return values.sum(tuple(range(2, 2 + spanned))) if spanned else values

    def squared_norms(self, call: LayerCall, signal: Tensor) -> tuple[Tensor, object]:
        """Return the squared gradient norm of each example, (trials, examples), and the gradients themselves.

        The gradients are a dict keyed by parameter name, with arrays of shape (trials, examples, *shape of parameter).
        """
        signals = self.frame.split(signal)
        gradients = {}
        if self.parameter("weight") is not None:
            gradients["weight"] = self._reduced(signals * self.frame.split(call.inputs))
        if self.parameter("bias") is not None:
            gradients["bias"] = self._reduced(signals)
        norms = [gradient.square().flatten(2).sum(2) for gradient in gradients.values()]
        return torch.stack(norms).sum(0), gradients

    def weighted_sum(
        self, call: LayerCall, signal: Tensor, weights: Tensor, intermediates: object
    ) -> dict[str, Tensor]:
        """Return each trial's weighted sum of the examples' gradients, (trials, *shape), keyed by parameter name."""
        assert isinstance(intermediates, dict)
        return {name: weighted_gradient_sum(gradients, weights) for name, gradients in intermediates.items()}


def weighted_gradient_sum(gradients: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of gradients over the examples of each trial, (trials, ...).

    Shapes: `gradients` (trials, examples, ...), `weights` (trials, examples).
    """
    summed = torch.bmm(weights.unsqueeze(1), gradients.flatten(2))
    return summed.reshape(len(weights), *gradients.shape[2:])


def dense_outputs(inputs: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """Return the outputs of a dense layer, inputs W' + b, with separate W and b for each trial, (trials, n, outs).

    Shapes: `inputs` (trials, n, ins), `weights` (trials, outs, ins), `biases` (trials, 1, outs).
    """
    if biases is None:
        return torch.bmm(inputs, weights.transpose(1, 2))
    return torch.baddbmm(biases, inputs, weights.transpose(1, 2))
