"""Layers that run many models at once and compute the gradient norms of single examples.

A stacked layer takes the examples of all trials merged into the leading axis, trial by trial, so the forward code
around it sees one large mini-batch and needs no change. The raw input of a model is the same in every trial: a layer
that reads it gets each example once, not once for every trial. After the backward pass each layer returns the squared
norm of every example's gradient and the weighted sum of these gradients. A dense layer computes both without
per-example gradients, since ||d a^T||^2 = ||d||^2 ||a||^2 (Goodfellow 2015, "Efficient per-example gradient
computations"). Inner products of gradients with a vector never need per-example gradients, because outputs are linear
in a layer's own parameters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_NARROW = 16
"""Number of outputs below which a dense layer computes all trials in one matrix product, if they share the input.

A product for each trial would be too small to be fast. Wider layers have one product for each trial, which spares them
the copies that put the outputs of the one product in the order of trials."""


@dataclass
class ForwardState:
    """State that the stacked layers share during a forward pass."""

    parameters: Mapping[str, Tensor] = field(default_factory=dict)  # each by its name, float32 (trials, *shape)
    trials: int = 1  # size of the first of the two axes that are merged in the layers' inputs
    examples: int = 1  # size of the second of them
    recording: bool = False  # whether the layers note their calls for a backward pass
    tape: list["LayerCall"] = field(default_factory=list)  # the calls that were noted, in order
    features: Tensor | None = None  # the raw input of the model; None before there is one
    derived: dict[object, Tensor] = field(default_factory=dict)  # computed from the raw input, to be used again

    def forget(self) -> None:
        """Clear the cache of values derived from the raw input, whose content may have changed."""
        self.features, self.derived = None, {}

    def read(self, features: Tensor) -> None:
        """Set the model's raw input, and clear the cache of derived values unless it is the same tensor as before."""
        if self.features is None or not _same_memory(features, self.features):
            self.derived = {}
        self.features = features

    def derive(self, name: str, inputs: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return make(inputs); if `inputs` is a view of the whole raw input, the result is cached for later passes.

        Parameters
        ----------
        name
            Name of the result in the cache.
        inputs
            Input of the function.
        make
            Deterministic function of the inputs.
        """
        if self.features is None or not _same_memory(inputs, self.features):
            return make(inputs)
        key = (name, inputs.shape, inputs.stride())
        if key not in self.derived:
            self.derived[key] = make(inputs)
        return self.derived[key]

    def split(self, merged: Tensor) -> Tensor:
        """Return values of shape (trials * examples, ...) reshaped to (trials, examples, ...)."""
        return merged.reshape(self.trials, self.examples, *merged.shape[1:])

    def is_shared(self, values: Tensor) -> bool:
        """Return whether the values are the model's raw input, which is the same in all trials."""
        return values.shape[0] == self.examples and self.trials > 1


def _same_memory(left: Tensor, right: Tensor) -> bool:
    # `features` keeps its memory alive, so no other tensor can have been put at the same address.
    return left.data_ptr() == right.data_ptr() and left.numel() == right.numel()


@dataclass
class LayerCall:
    """A recorded call of a stacked layer; `shared` tells whether all trials have the same inputs."""

    layer: "StackedLayer"
    inputs: Tensor
    outputs: Tensor
    shared: bool


class StackedLayer(nn.Module):
    """A layer with its own parameters in each trial."""

    def __init__(self, frame: ForwardState, prefix: str) -> None:
        super().__init__()
        self.frame = frame
        self.prefix = prefix

    def parameter(self, name: str) -> Tensor | None:
        """Return the layer's parameter `name` of all trials, (trials, *shape); None if the layer has none."""
        return self.frame.parameters.get(f"{self.prefix}{name}")

    def required(self, name: str) -> Tensor:
        """Return the layer's parameter `name` of all trials, (trials, *shape)."""
        return self.frame.parameters[f"{self.prefix}{name}"]

    def record(self, inputs: Tensor, outputs: Tensor, shared: bool) -> Tensor:
        """Store a call of the layer for the backward pass and return its outputs.

        Parameters
        ----------
        inputs
            Inputs of the layer, with the examples of all trials along the first axis.
        outputs
            Outputs of the layer for these inputs.
        shared
            Whether all trials have the same inputs.
        """
        if self.frame.recording:
            if not outputs.requires_grad:
                outputs.requires_grad_()
            self.frame.tape.append(LayerCall(self, inputs, outputs, shared))
        return outputs

    def respond(self, inputs: Tensor, shared: bool) -> Tensor:
        """Return the outputs for recorded inputs, which are linear in the parameters; trailing axes may be merged.

        Parameters
        ----------
        inputs
            Inputs in the form that `LayerCall` stores.
        shared
            Whether all trials have the same inputs.
        """
        raise NotImplementedError("each stacked layer computes its own outputs")

    def products(self, visit: LayerCall, signal: Tensor) -> Tensor:
        """Return the inner product of every example's gradient with a vector in parameter space, (trials, examples).

        The caller puts the vector into `frame.parameters` in place of the parameters. The outputs are linear in the
        layer's parameters, so calling the layer with the vector gives the Jacobian-vector product of the outputs. Its
        product with `signal` is the inner product of gradient and vector.

        Parameters
        ----------
        visit
            Recorded call of this layer.
        signal
            Gradients of the losses with respect to the outputs of this call, of the outputs' shape.
        """
        moved = self.frame.split(self.respond(visit.inputs, visit.shared)).flatten(2)
        return (self.frame.split(signal).flatten(2) * moved).sum(2)

    def squared_norms(self, visit: LayerCall, signal: Tensor) -> tuple[Tensor, object]:
        """Return the squared gradient norms (trials, examples), and intermediate results for `weighted_sum`.

        Parameters
        ----------
        visit
            Recorded call of this layer.
        signal
            Gradients of the losses with respect to the outputs of this call.
        """
        raise NotImplementedError("each stacked layer computes its own norms")

    def weighted_sum(self, visit: LayerCall, signal: Tensor, weights: Tensor, kept: object) -> dict[str, Tensor]:
        """Return sum_e weights[w, e] * gradient[w, e], the weighted sum over examples e in trial w, for each parameter.

        Each has the shape (trials, *shape).

        Parameters
        ----------
        visit
            Recorded call of this layer.
        signal
            Gradients of the losses with respect to the outputs of this call.
        weights
            Weight of every example, shape (trials, examples).
        kept
            Intermediate results that `squared_norms` returned beside the norms.
        """
        raise NotImplementedError("each stacked layer computes its own sums")


class StackedLinear(StackedLayer):
    """Dense layers of all trials."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of each trial's dense layer."""
        shared = self.frame.is_shared(inputs)
        return self.record(inputs, self.respond(inputs, shared), shared)

    def respond(self, inputs: Tensor, shared: bool) -> Tensor:
        """Return the outputs of the layer in all trials; overrides `StackedLayer.respond`."""
        frame, weight, bias = self.frame, self.required("weight"), self.parameter("bias")
        trials, outs = weight.shape[0], weight.shape[1]
        if shared and outs < _NARROW:
            flat = F.linear(inputs, weight.reshape(-1, weight.shape[2]), None if bias is None else bias.reshape(-1))
            return flat.view(-1, trials, outs).transpose(0, 1).reshape(-1, outs)
        stacked = inputs.expand(trials, -1, -1) if shared else frame.split(inputs)
        return applied(stacked, weight, None if bias is None else bias.unsqueeze(1)).flatten(0, 1)

    def squared_norms(self, visit: LayerCall, signal: Tensor) -> tuple[Tensor, object]:
        """Return the squared gradient norms of this layer; overrides `StackedLayer.squared_norms`."""
        signals, inputs = self.frame.split(signal).square().sum(2), visit.inputs.square().sum(1)
        inputs = inputs if visit.shared else self.frame.split(inputs)
        return signals * (inputs if self.parameter("bias") is None else inputs + 1), None

    def weighted_sum(self, visit: LayerCall, signal: Tensor, weights: Tensor, kept: object) -> dict[str, Tensor]:
        """Return the weighted sums of gradients of this layer; overrides `StackedLayer.weighted_sum`."""
        weighted = self.frame.split(signal) * weights.unsqueeze(2)
        transposed = weighted.transpose(1, 2)
        trials, outs, examples = transposed.shape
        if visit.shared and outs < _NARROW:
            summed = (transposed.reshape(-1, examples) @ visit.inputs).view(trials, outs, -1)
        else:
            inputs = visit.inputs.expand(trials, -1, -1) if visit.shared else self.frame.split(visit.inputs)
            summed = torch.bmm(transposed, inputs)
        return {"weight": summed} | ({} if self.parameter("bias") is None else {"bias": weighted.sum(1)})


class StackedNormalisation(StackedLayer):
    """Group or layer normalisation of all trials, with its learned scale and shift; neither mixes examples."""

    def __init__(self, frame: ForwardState, prefix: str, template: nn.GroupNorm | nn.LayerNorm) -> None:
        super().__init__(frame, prefix)
        self.template = template

    def _standardise(self, inputs: Tensor) -> Tensor:
        match self.template:
            case nn.GroupNorm():
                return F.group_norm(inputs, self.template.num_groups, eps=self.template.eps)
            case _:
                return F.layer_norm(inputs, self.template.normalized_shape, eps=self.template.eps)

    def _aligned(self, parameter: Tensor, standardised: Tensor) -> Tensor:
        """Return a parameter (trials, *shape) reshaped so that it broadcasts against values (trials, examples, ...)."""
        left_over = standardised.dim() - parameter.dim()
        middle, trailing = (1, left_over) if isinstance(self.template, nn.GroupNorm) else (left_over + 1, 0)
        return parameter.reshape(len(parameter), *([1] * middle), *parameter.shape[1:], *([1] * trailing))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the normalised inputs times the scale of each trial plus its shift."""
        frame, standardised = self.frame, self._standardise(inputs)
        if frame.is_shared(inputs):
            standardised = standardised.repeat(frame.trials, *([1] * (inputs.dim() - 1)))
        return self.record(standardised.detach(), self.respond(standardised, shared=False), shared=False)

    def respond(self, inputs: Tensor, shared: bool) -> Tensor:
        """Return the outputs of the layer in all trials; overrides `StackedLayer.respond`."""
        weight, bias = self._aligned(self.required("weight"), inputs), self.parameter("bias")
        outputs = self.frame.split(inputs) * weight
        if bias is not None:
            outputs.add_(self._aligned(bias, inputs))
        return outputs.flatten(0, 1)

    def _reduced(self, values: Tensor) -> Tensor:
        """Return values (trials, examples, ...) summed over the axes along which the parameter is broadcast."""
        if isinstance(self.template, nn.GroupNorm):
            return values.flatten(3).sum(3) if values.dim() > 3 else values
        spanned = values.dim() - 2 - len(self.template.normalized_shape)
        return values.sum(tuple(range(2, 2 + spanned))) if spanned else values

    def squared_norms(self, visit: LayerCall, signal: Tensor) -> tuple[Tensor, object]:
        """Return the squared gradient norms of this layer; overrides `StackedLayer.squared_norms`."""
        signals, gradients = self.frame.split(signal), {}
        if self.parameter("weight") is not None:
            gradients["weight"] = self._reduced(signals * self.frame.split(visit.inputs))
        if self.parameter("bias") is not None:
            gradients["bias"] = self._reduced(signals)
        norms = [gradient.square().flatten(2).sum(2) for gradient in gradients.values()]
        return torch.stack(norms).sum(0), gradients

    def weighted_sum(self, visit: LayerCall, signal: Tensor, weights: Tensor, kept: object) -> dict[str, Tensor]:
        """Return the weighted sums of gradients of this layer; overrides `StackedLayer.weighted_sum`."""
        assert isinstance(kept, dict)
        return {name: weigh(gradients, weights) for name, gradients in kept.items()}


def weigh(gradients: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of gradients over examples, (trials, ...).

    Parameters
    ----------
    gradients
        Gradient of each example, shape (trials, examples, ...).
    weights
        Weight of each example, shape (trials, examples).
    """
    summed = torch.bmm(weights.unsqueeze(1), gradients.flatten(2))
    return summed.reshape(len(weights), *gradients.shape[2:])


def applied(inputs: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """Return the outputs of a dense layer in every trial, inputs W' + b, shape (trials, n, outs).

    Parameters
    ----------
    inputs
        Inputs of a dense layer, shape (trials, n, ins).
    weights
        Weights W of the layer, shape (trials, outs, ins).
    biases
        Biases b of the layer, shape (trials, 1, outs); None if it has none.
    """
    if biases is None:
        return torch.bmm(inputs, weights.transpose(1, 2))
    return torch.baddbmm(biases, inputs, weights.transpose(1, 2))
