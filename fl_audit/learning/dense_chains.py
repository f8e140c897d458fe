"""Which modules are a plain chain of dense layers, whose backward pass can be written out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn

from fl_audit.learning.layout import ParameterLayout


@dataclass(frozen=True)
class Activation:
    """A function of single numbers that follows a layer."""

    apply: Callable[[Tensor], Tensor]  # the function
    # From the gradients at its outputs, and these outputs, to the gradients at its inputs.
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
    """One dense layer of a chain."""

    # `outs`, `ins`: numbers of outputs and inputs.
    outs: int
    ins: int
    # `weight`, `bias`: which columns of a flat model hold them; the bias may be None.
    weight: slice
    bias: slice | None
    activation: Activation = _NONE  # what follows the layer

    def weights(self, models: Tensor) -> Tensor:
        """Return the weights of stacked models as a view (worlds, outs, ins)."""
        return models[:, self.weight].view(len(models), self.outs, self.ins)

    def biases(self, models: Tensor) -> Tensor | None:
        """Return the biases of stacked models as a view (worlds, 1, outs)."""
        return None if self.bias is None else models[:, self.bias].unsqueeze(1)


def dense_chain(
    module: nn.Module, feature_shape: tuple[int, ...], layout: ParameterLayout
) -> tuple[ChainLayer, ...] | None:
    """Return the layers of a module that is a chain of dense layers; None if it is none, or not certainly one.

    Parameters
    ----------
    module, feature_shape, layout
        The model's template, the shape of one example, and where the module's parameters stand.
    """
    columns, layers, is_flat = layout.slices(), list[ChainLayer](), len(feature_shape) == 1
    for name, part in _parts(module, ""):
        kind = None if _is_altered(part) else type(part)  # a subclass may compute anything
        if isinstance(part, nn.Linear) and kind is nn.Linear and is_flat and _is_trained(name, part, columns):
            weight, bias = columns[f"{name}.weight"], columns.get(f"{name}.bias")
            layers.append(ChainLayer(part.out_features, part.in_features, weight, bias))
        elif kind in _ACTIVATIONS and layers and layers[-1].activation is _NONE:
            layers[-1] = replace(layers[-1], activation=_ACTIVATIONS[kind])
        elif kind is nn.Flatten and part.start_dim == 1 and part.end_dim == -1:
            is_flat = True
        elif kind is not nn.Identity and not (kind is nn.Dropout and part.p == 0):
            return None
    widths = [prod(feature_shape), *(layer.outs for layer in layers)]
    fits = all(width == layer.ins for width, layer in zip(widths, layers, strict=False))
    return tuple(layers) if layers and fits else None


def _parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield path and module of all parts in the order in which nested `nn.Sequential` call them."""
    if type(module) is not nn.Sequential or _is_altered(module):
        yield name, module
        return
    # `named_children` would leave out a part that is called a second time.
    for child, part in module._modules.items():
        assert part is not None
        yield from _parts(part, f"{name}.{child}" if name else child)


def _is_altered(module: nn.Module) -> bool:
    """Whether a module does more than its type says."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _is_trained(name: str, part: nn.Module, columns: Mapping[str, slice]) -> bool:
    """Whether nothing of a dense layer is frozen, and its weights are its own."""
    return f"{name}.weight" in columns and (part.bias is None or f"{name}.bias" in columns)
