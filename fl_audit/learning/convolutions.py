"""Two-dimensional convolutions and 2x2 max-pooling, computed for the models of all trials at once.

The convolution is torch's own, with one group of channels for each trial. The weight gradients of all examples are
computed in the same way, with one group for each example (Rochette et al. 2019, "Efficient per-example gradient
computations in convolutional neural networks"). The norm of an example's gradient is computed from two small Gram
matrices if this is cheaper than the gradient itself. (For the built-in model mnist-cnn the gradients are cheaper: with
Gram matrices throughout, a clipped sum took 26 times as long.)
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from fl_audit.learning.layers import LayerCall, SharedPassState, StackedLayer, weighted_gradient_sum

_FEW_CHANNELS = 8
"""With fewer input channels than this, matrix products with unfolded patches are faster than torch's convolution."""


class StackedConv2d(StackedLayer):
    """A two-dimensional convolution with separate weights for each trial, computed for all trials at once.

    The norm of an example's gradient is computed from the gradient itself or from two Gram matrices, whichever is
    cheaper (mixed ghost clipping, Bu et al. 2022, "Scalable and efficient training of large convolutional neural
    networks with differential privacy").
    """

    def __init__(self, state: SharedPassState, prefix: str, template: nn.Conv2d) -> None:
        super().__init__(state, prefix)
        self.kernel = (template.kernel_size[0], template.kernel_size[1])
        self.stride = (template.stride[0], template.stride[1])
        self.dilation = (template.dilation[0], template.dilation[1])
        assert not isinstance(template.padding, str)
        self.padding = (template.padding[0], template.padding[1])
        self.groups = template.groups
        self.unfolds = template.in_channels < _FEW_CHANNELS and self.groups == 1

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of all trials' convolutions, and record this call for the backward pass."""
        shared = self.frame.is_shared(inputs)
        if not self.unfolds:
            return self.record(inputs.detach(), self.respond(inputs, shared), shared)
        patches = self.frame.derive(self.prefix, inputs, self._patches)
        sides = (self._side(inputs.shape[2], 0), self._side(inputs.shape[3], 1))
        outputs = self.respond(patches, shared)
        return self.record(patches.detach(), outputs.reshape(*outputs.shape[:2], *sides), shared)

    def respond(self, inputs: Tensor, shared: bool) -> Tensor:
        """Return the outputs of the layer, (trials * examples, outs, ...).

        If the layer unfolds its inputs, `inputs` are the unfolded patches, and the outputs have a single axis for all
        positions of the image.
        """
        weight = self.required_parameter("weight")
        bias = self.parameter("bias")
        trials, outs = weight.shape[:2]
        if not self.unfolds:
            # Every trial has a group of channels, except in a model's raw input, which all trials read.
            if shared and self.groups > 1:
                inputs = inputs.repeat(trials, 1, 1, 1)
                shared = False
            grouped = inputs if shared else self.frame.split(inputs).transpose(0, 1).flatten(1, 2)
            kernels = weight.flatten(0, 1)
            offsets = None if bias is None else bias.flatten()
            groups = 1 if shared else trials * self.groups
            flat = F.conv2d(grouped, kernels, offsets, self.stride, self.padding, self.dilation, groups)
            return flat.view(len(flat), trials, -1, *flat.shape[2:]).transpose(0, 1).flatten(0, 1)
        if shared:
            flat = torch.matmul(weight.flatten(2).flatten(0, 1), inputs)
            outputs = flat.view(len(flat), trials, outs, -1).transpose(0, 1)
        else:
            outputs = torch.matmul(weight.flatten(2).unsqueeze(1), self.frame.split(inputs))
        if bias is not None:
            outputs = outputs + bias[:, None, :, None]
        return outputs.reshape(-1, outs, outputs.shape[3])

    def _patches(self, inputs: Tensor) -> Tensor:
        return F.unfold(inputs, self.kernel, dilation=self.dilation, padding=self.padding, stride=self.stride)

    def _side(self, size: int, axis: int) -> int:
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1

    def squared_norms(self, call: LayerCall, signal: Tensor) -> tuple[Tensor, object]:
        """Return the squared norm of each example's gradient, (trials, examples), and values for `weighted_sum`."""
        signals = self.frame.split(signal.flatten(2))
        bias = signals.sum(3) if self.parameter("bias") is not None else None
        positions = signals.shape[3]
        size = self.required_parameter("weight")[0].numel()
        if self.groups == 1 and 2 * positions**2 < size:
            # ||d p^T||^2 = <d^T d, p^T p>: cheaper than the gradient where an image has few places and many channels.
            patches = self.split_patches(call)
            gradients = None
            norms = (signals.transpose(2, 3) @ signals * (patches.transpose(-1, -2) @ patches)).sum((2, 3))
        else:
            gradients = self.example_gradients(call, signal)
            norms = gradients.square().flatten(2).sum(2)
        return norms if bias is None else norms + bias.square().sum(2), (gradients, bias)

    def weighted_sum(
        self, call: LayerCall, signal: Tensor, weights: Tensor, intermediates: object
    ) -> dict[str, Tensor]:
        """Return each trial's weighted sum of the examples' gradients, (trials, *shape), keyed by parameter name.

        `StackedLayer.weighted_sum` describes the parameters.
        """
        assert isinstance(intermediates, tuple)
        gradients, bias = intermediates
        if gradients is None:
            # One product over all examples and output positions.
            weighted = self.frame.split(signal.flatten(2)) * weights[:, :, None, None]
            axes = "wnol,nkl->wok" if call.shared else "wnol,wnkl->wok"
            summed = torch.einsum(axes, weighted, self.split_patches(call))
        else:
            summed = weighted_gradient_sum(gradients, weights)
        return {"weight": summed} | ({} if bias is None else {"bias": weighted_gradient_sum(bias, weights)})

    def example_gradients(self, call: LayerCall, signal: Tensor) -> Tensor:
        """Return each example's gradient with respect to the layer's weight, shape (trials, examples, outs, ...).

        If the layer unfolds its inputs, all axes after `outs` are merged into one.
        """
        if self.unfolds:
            return self.frame.split(signal.flatten(2)) @ self.split_patches(call).transpose(-1, -2)
        inputs = call.inputs.repeat(self.frame.trials, 1, 1, 1) if call.shared else call.inputs
        outs, *shape = self.required_parameter("weight").shape[1:]
        if self.groups == outs == inputs.shape[1]:
            return self.frame.split(self._by_channel(inputs, signal))
        flat_inputs, flat_signal = (values.reshape(1, -1, *values.shape[2:]) for values in (inputs, signal))
        examples: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]  # torch's own lack of a type
            flat_inputs,
            (len(signal) * outs, *shape),
            flat_signal,
            self.stride,
            self.padding,
            self.dilation,
            groups=len(signal) * self.groups,
        )
        return self.frame.split(examples.view(len(signal), outs, *shape))

    def _by_channel(self, inputs: Tensor, signal: Tensor) -> Tensor:
        """Return the weight gradients of n examples in a depthwise convolution, (n, channels, 1, *kernel).

        One product for each position in the kernel is much faster than a convolution with as many groups as channels.
        """
        padded = F.pad(inputs, (self.padding[1], self.padding[1], self.padding[0], self.padding[0]))
        gradients = signal.new_empty(*inputs.shape[:2], 1, *self.kernel)
        flat = signal.flatten(2)
        high, wide = signal.shape[2:]
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                top = row * self.dilation[0]
                left_edge = column * self.dilation[1]
                down = (high - 1) * self.stride[0] + 1
                right = (wide - 1) * self.stride[1] + 1
                window = padded[:, :, top : top + down : self.stride[0], left_edge : left_edge + right : self.stride[1]]
                gradients[:, :, 0, row, column] = (window.flatten(2) * flat).sum(2)
        return gradients

    def split_patches(self, call: LayerCall) -> Tensor:
        """Return the patches of a recorded call: (trials, examples, ...), or (examples, ...) if trials share inputs."""
        patches = call.inputs if self.unfolds else self._patches(call.inputs)
        return patches if call.shared else self.frame.split(patches)


class MaxPool2x2(nn.Module):
    """Max-pooling over non-overlapping 2x2 windows.

    On one thread of a CPU a pass forward and backward takes .3 to .5 of the time of torch's own module, as measured.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Return pooled inputs (n, channels, height // 2, width // 2) for inputs (n, channels, height, width).

        An odd last row or column is ignored.
        """
        pooled: Tensor = _Pool2x2.apply(inputs)  # type: ignore[no-untyped-call]  # torch's own lack of a type
        return pooled


class _Pool2x2(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        whole = inputs[:, :, : inputs.shape[2] // 2 * 2, : inputs.shape[3] // 2 * 2]
        top_left = whole[:, :, ::2, ::2]
        top_right = whole[:, :, ::2, 1::2]
        low_left = whole[:, :, 1::2, ::2]
        low_right = whole[:, :, 1::2, 1::2]
        top = torch.maximum(top_left, top_right)
        low = torch.maximum(low_left, low_right)
        if ctx.needs_input_grad[0]:
            # Among equal values the first one, row by row, gets the gradient, as in torch's own pooling.
            is_low = low > top
            is_right = ((top_right > top_left) & ~is_low) | ((low_right > low_left) & is_low)
            ctx.shape = inputs.shape
            width = inputs.shape[3]
            # The index of each window's largest value in the flattened image.
            rows = torch.arange(is_low.shape[2], device=is_low.device).unsqueeze(1) * (2 * width)
            columns = torch.arange(is_low.shape[3], device=is_low.device) * 2
            ctx.save_for_backward(is_right.long().add_(is_low, alpha=width).add_(rows + columns))
        return torch.maximum(top, low)

    @staticmethod
    def backward(ctx: Any, *signals: Tensor) -> Tensor:
        (positions,) = ctx.saved_tensors
        (signal,) = signals
        flat = signal.new_zeros(*ctx.shape[:2], ctx.shape[2] * ctx.shape[3])
        return flat.scatter_(2, positions.flatten(2), signal.flatten(2)).view(ctx.shape)


def is_pool_2x2(module: nn.Module) -> bool:
    """Return whether a module is a max-pooling of torch that computes the same as `MaxPool2x2`."""
    if not isinstance(module, nn.MaxPool2d):
        return False
    pairs = (module.kernel_size, module.stride, module.padding, module.dilation)
    accepted = ((2, 2), (2, 2), (0, 0), (1, 1))
    plain = not module.ceil_mode and not module.return_indices
    return plain and all(pair in (two, two[0]) for pair, two in zip(pairs, accepted, strict=True))
