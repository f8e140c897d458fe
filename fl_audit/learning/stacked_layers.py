"""Stacked versions of a model's layers, which compute all trials at once, and the layout of its flat parameters."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from fl_audit.learning.convolutions import MaxPool2x2, StackedConv2d, is_pool_2x2
from fl_audit.learning.cuda_graphs import GraphedCalls
from fl_audit.learning.layers import SharedPassState, StackedLayer, StackedLinear, StackedNormalisation
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.module_preparation import sharing_copy
from fl_audit.learning.pass_budgets import slices


def parameter_owners(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and layer for every layer of a module that has parameters of its own."""
    for name, layer in module.named_modules():
        if any(True for _ in layer.parameters(recurse=False)):
            yield name, layer


def is_plain(module: nn.Module) -> bool:
    """Return whether a module is a torch layer or an `nn.Sequential` of torch layers, without hooks or other code."""
    return all(
        type(layer).__module__.startswith("torch.nn.modules.")
        and (type(layer) is nn.Sequential or not any(True for _ in layer.children()))
        and not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))
        for layer in module.modules()
    )


def _stack_layers(module: nn.Module, state: SharedPassState) -> nn.Module | None:
    """Replace a model's layers by stacked layers in place, and return the model; None if a layer cannot be stacked.

    A layer cannot be stacked if some of its parameters are frozen, or if another layer uses its parameters too.
    """
    if len(list(module.named_parameters())) != len(list(module.named_parameters(remove_duplicate=False))):
        return None  # shared weights: the norm of the sum of two gradients does not follow from their norms
    for name, layer in list(parameter_owners(module)):
        if isinstance(vars(layer).get("weight"), Tensor) or isinstance(vars(layer).get("bias"), Tensor):
            return None  # the stacked forms know no layer of which a part is frozen
        replacement = _stacked_layer(layer, state, f"{name}." if name else "")
        if replacement is None:
            return None
        module = _replaced(module, name, replacement)
    for name, layer in list(module.named_modules()):
        if is_pool_2x2(layer):
            module = _replaced(module, name, MaxPool2x2())
        elif not isinstance(layer, StackedLayer) and getattr(layer, "inplace", False):
            vars(layer)["inplace"] = False  # the output of the layer before is still needed
    return module


def _replaced(module: nn.Module, name: str, replacement: nn.Module) -> nn.Module:
    if not name:
        return replacement
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, replacement)
    return module


def _stacked_layer(module: nn.Module, state: SharedPassState, prefix: str) -> StackedLayer | None:
    """Return the stacked version of a layer; None if this kind of layer has none.

    In the model, the names of the layer's parameters begin with `prefix`.
    """
    match module:
        case nn.Linear():
            return StackedLinear(state, prefix)
        case nn.Conv2d(padding_mode="zeros") if not isinstance(module.padding, str):
            return StackedConv2d(state, prefix, module)
        case nn.GroupNorm() | nn.LayerNorm() if module.weight is not None:
            return StackedNormalisation(state, prefix, module)
        case _:
            return None


_CACHED_SCALARS = 2**17  # number of parameters that fit the cache of a processor
_SCALARS_ON_A_CARD = 2**24  # number of parameters for a graphics card, where few and large operations are fast


def cached_rows(trials: int, parameters: int, on_card: bool = False) -> Iterator[slice]:
    """Yield slices of consecutive trials, so small that the models of a slice fit the cache even in float64."""
    rows = max(1, (_SCALARS_ON_A_CARD if on_card else _CACHED_SCALARS) // parameters)
    yield from slices(trials, rows)


@dataclass(frozen=True)
class ParameterLayout:
    """Names, shapes and order of a model's parameters in one flat vector; the order is that of `named_parameters`."""

    names: tuple[str, ...]  # parameter names
    shapes: tuple[tuple[int, ...], ...]  # shape of each parameter

    @classmethod
    def of(cls, module: nn.Module) -> "ParameterLayout":
        """Return the layout of all parameters of a module."""
        parameters = list(module.named_parameters())
        return cls(tuple(name for name, _ in parameters), tuple(tuple(value.shape) for _, value in parameters))

    @classmethod
    def of_trained(cls, module: nn.Module) -> "ParameterLayout":
        """Return the layout of a module's parameters that are not frozen."""
        parameters = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
        return cls(tuple(name for name, _ in parameters), tuple(tuple(value.shape) for _, value in parameters))

    @property
    def size(self) -> int:
        """Number of scalar parameters of one model."""
        return sum(math.prod(shape) for shape in self.shapes)

    def slices(self) -> dict[str, slice]:
        """Return the slice of the flat vector that holds each parameter, keyed by parameter name."""
        ends = accumulate(map(math.prod, self.shapes), initial=0)
        return {name: slice(start, end) for name, (start, end) in zip(self.names, pairwise(ends), strict=True)}

    def views(self, models: Tensor) -> dict[str, Tensor]:
        """Return each parameter of models (trials, parameters) as a view (trials, *shape), keyed by parameter name."""
        placed = zip(self.slices().items(), self.shapes, strict=True)
        return {name: models[:, columns].view(len(models), *shape) for (name, columns), shape in placed}

    def of_one(self, model: Tensor) -> dict[str, Tensor]:
        """Return each parameter of one model (parameters,) as a view of its own shape, keyed by parameter name."""
        return {name: value[0] for name, value in self.views(model.unsqueeze(0)).items()}

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return one model's parameters, keyed by name, as one float32 vector (parameters,)."""
        return torch.cat([parameters[name].detach().reshape(-1).float() for name in self.names])


class PerThreadState(threading.local):
    """Objects of a model that change during a pass; every thread has its own copies, so threads do not interfere."""

    def __init__(self, template: nn.Module) -> None:
        self.template = sharing_copy(template)
        self.frame = SharedPassState()
        self.stacked = _stack_layers(sharing_copy(template), self.frame)
        self.graphs = GraphedCalls()


def clipping_weights(
    squared_norms: Tensor, clipping_norm: float | Tensor | None, sample_weights: Tensor | None, slack: float = 0.0
) -> Tensor:
    """Return the clipping factor min(1, C / norm) of each gradient; 0 for an example that does not count.

    Without clipping, and for a zero gradient, the factor is 1.
    """
    if clipping_norm is None:
        return torch.ones_like(squared_norms) if sample_weights is None else sample_weights
    inverse = torch.rsqrt(squared_norms) if slack == 0 else 1 / (squared_norms.sqrt() + slack)
    weights = torch.clamp(clipping_norm * inverse, max=1.0)
    return weights if sample_weights is None else weights * sample_weights


def backward_sums(
    layout: ParameterLayout,
    models: Tensor,
    microbatch: Microbatch,
    loss: Callable[[dict[str, Tensor], Tensor, Tensor], Tensor],
) -> Tensor:
    """Return each trial's sum of the examples' gradients, each clipped to L2 norm 1, shape (trials, parameters).

    There is one plain backward pass for each example and trial.

    Shapes: `models` (trials, parameters).
    """
    sums = torch.zeros_like(models)
    for total, model in zip(sums, models, strict=True):
        parameters = {name: value.detach().requires_grad_() for name, value in layout.of_one(model).items()}
        for example, label in zip(microbatch.features, microbatch.labels, strict=True):
            example_loss = loss(parameters, example.unsqueeze(0), label.unsqueeze(0))
            gradients = torch.autograd.grad(example_loss, list(parameters.values()))
            gradient = layout.flatten(dict(zip(parameters, gradients, strict=True)))
            total += clipping_weights(gradient.square().sum(), 1.0, None) * gradient
    return sums
