"""Stacked versions of a module's layers, and the layout of its parameters in one flat vector."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from fl_audit.learning.convolutions import MaxPool2x2, StackedConv2d, is_pool_2x2
from fl_audit.learning.cuda_graphs import GraphedCalls
from fl_audit.learning.layers import ForwardState, StackedLayer, StackedLinear, StackedNormalisation
from fl_audit.learning.microbatching import MicrobatchExamples
from fl_audit.learning.module_checks import sharing_copy


def parameter_owners(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the path and the module of every layer that directly owns parameters."""
    for name, layer in module.named_modules():
        if any(True for _ in layer.parameters(recurse=False)):
            yield name, layer


def is_plain(module: nn.Module) -> bool:
    """Return whether a module is a torch layer or an `nn.Sequential` of torch layers, without any other code."""
    return all(
        type(layer).__module__.startswith("torch.nn.modules.")
        and (type(layer) is nn.Sequential or not any(True for _ in layer.children()))
        and not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))
        for layer in module.modules()
    )


def stack_layers(module: nn.Module, frame: ForwardState) -> nn.Module | None:
    """Return a module whose layers with parameters are replaced by stacked ones; None if one has no stacked version.

    Parameters
    ----------
    module
        Template of the model, which is modified.
    frame
        State that the stacked layers share.
    """
    if len(list(module.named_parameters())) != len(list(module.named_parameters(remove_duplicate=False))):
        return None  # shared weights: the norm of the sum of two gradients does not follow from their norms
    for name, layer in list(parameter_owners(module)):
        if isinstance(vars(layer).get("weight"), Tensor) or isinstance(vars(layer).get("bias"), Tensor):
            return None  # the stacked forms know no layer of which a part is frozen
        replacement = _stacked_layer(layer, frame, f"{name}." if name else "")
        if replacement is None:
            return None
        module = _replaced(module, name, replacement)
    for name, layer in list(module.named_modules()):
        if is_pool_2x2(layer):
            module = _replaced(module, name, MaxPool2x2())
        elif not isinstance(layer, StackedLayer) and getattr(layer, "inplace", False):
            layer.inplace = False  # the output of the layer before is still needed
    return module


def _replaced(module: nn.Module, name: str, replacement: nn.Module) -> nn.Module:
    if not name:
        return replacement
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, replacement)
    return module


def _stacked_layer(module: nn.Module, frame: ForwardState, prefix: str) -> StackedLayer | None:
    """Return the stacked version of a layer; None if there is none."""
    match module:
        case nn.Linear():
            return StackedLinear(frame, prefix)
        case nn.Conv2d(padding_mode="zeros") if not isinstance(module.padding, str):
            return StackedConv2d(frame, prefix, module)
        case nn.GroupNorm() | nn.LayerNorm() if module.weight is not None:
            return StackedNormalisation(frame, prefix, module)
        case _:
            return None


_CACHED_SCALARS = 2**17  # whole stacks of large models would be moved to memory and back at every step
_SCALARS_ON_A_CARD = 2**24  # a card has no such cache, and waits for every call of torch


def cached_rows(trials: int, parameters: int, on_card: bool = False) -> Iterator[slice]:
    """Yield slices of the trials of stacked models, of at least one trial each, that fit in cache even in float64.

    Parameters
    ----------
    trials
        Number of models, from 1.
    parameters
        Number of parameters of each model, from 1.
    on_card
        Whether the models lie on a graphics card, where the slices are as large as its memory suggests.
    """
    rows = max(1, (_SCALARS_ON_A_CARD if on_card else _CACHED_SCALARS) // parameters)
    for first in range(0, trials, rows):
        yield slice(first, min(trials, first + rows))


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of a model's parameters in a flat vector, in the order of `named_parameters`."""

    names: tuple[str, ...]  # parameter names
    shapes: tuple[tuple[int, ...], ...]  # shape of each parameter

    @classmethod
    def of(cls, module: nn.Module) -> "ParameterLayout":
        """Return the layout of all parameters of a module."""
        named = list(module.named_parameters())
        return cls(tuple(name for name, _ in named), tuple(tuple(value.shape) for _, value in named))

    @classmethod
    def of_trained(cls, module: nn.Module) -> "ParameterLayout":
        """Return the layout of the trained parameters of a module."""
        named = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
        return cls(tuple(name for name, _ in named), tuple(tuple(value.shape) for _, value in named))

    @property
    def size(self) -> int:
        """Number of scalars of one model."""
        return sum(math.prod(shape) for shape in self.shapes)

    def slices(self) -> dict[str, slice]:
        """Return the columns of each parameter in the flat vector, by parameter name."""
        ends = accumulate(map(math.prod, self.shapes), initial=0)
        return {name: slice(start, end) for name, (start, end) in zip(self.names, pairwise(ends), strict=True)}

    def views(self, models: Tensor) -> dict[str, Tensor]:
        """Return each parameter of stacked models (trials, parameters) as a view of shape (trials, *shape)."""
        placed = zip(self.slices().items(), self.shapes, strict=True)
        return {name: models[:, columns].view(len(models), *shape) for (name, columns), shape in placed}

    def of_one(self, model: Tensor) -> dict[str, Tensor]:
        """Return each parameter of one model (parameters,) as a view in its own shape."""
        return {name: value[0] for name, value in self.views(model.unsqueeze(0)).items()}

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return one model's parameters as one float32 vector."""
        return torch.cat([parameters[name].detach().reshape(-1).float() for name in self.names])


class PerThreadState(threading.local):
    """Objects that change during a pass; every thread has its own copy, so that threads do not interfere."""

    def __init__(self, template: nn.Module) -> None:
        self.template = sharing_copy(template)
        self.frame = ForwardState()
        self.stacked = stack_layers(sharing_copy(template), self.frame)
        self.graphs = GraphedCalls()
        self._behind: nn.Module | None = None

    def behind(self, suffix: nn.Module) -> nn.Module:
        """Return this thread's copy of `suffix`, the part of a model after its frozen prefix; copied only once."""
        if self._behind is None:
            self._behind = sharing_copy(suffix)
        return self._behind


def clipping_weights(
    squared_norms: Tensor, clipping_norm: float | None, counted: Tensor | None, slack: float = 0.0
) -> Tensor:
    """Return the clipping factors min(1, C / norm) of gradients, or 1 without clipping; 0 for uncounted examples.

    The factor of a zero gradient is 1.

    Parameters
    ----------
    squared_norms
        Squared norms of the gradients.
    clipping_norm
        Clipping norm C, positive; None for no clipping.
    counted
        1 for examples that count and 0 for others, of the shape of the norms; None if all count.
    slack
        Non-negative number that is added to the norms, as Opacus does to avoid a division by 0.
    """
    if clipping_norm is None:
        return torch.ones_like(squared_norms) if counted is None else counted
    inverse = torch.rsqrt(squared_norms) if slack == 0 else 1 / (squared_norms.sqrt() + slack)
    weights = torch.clamp(clipping_norm * inverse, max=1.0)
    return weights if counted is None else weights * counted


def backward_sums(
    layout: ParameterLayout,
    models: Tensor,
    portion: MicrobatchExamples,
    loss: Callable[[dict[str, Tensor], Tensor, Tensor], Tensor],
) -> Tensor:
    """Return sums of gradients clipped to norm 1, computed by one backward pass per example and trial.

    Parameters
    ----------
    layout
        Layout of the parameters in a model.
    models
        Parameters of the models, float32 (trials, parameters).
    portion
        Examples of the pass, shared by all trials.
    loss
        Function of one model's parameters, some examples and their classes that returns the sum of the losses.
    """
    sums = torch.zeros_like(models)
    for total, model in zip(sums, models, strict=True):
        parameters = {name: value.detach().requires_grad_() for name, value in layout.of_one(model).items()}
        for example, label in zip(portion.features, portion.labels, strict=True):
            found = loss(parameters, example.unsqueeze(0), label.unsqueeze(0))
            gradients = torch.autograd.grad(found, list(parameters.values()))
            gradient = layout.flatten(dict(zip(parameters, gradients, strict=True)))
            total += clipping_weights(gradient.square().sum(), 1.0, None) * gradient
    return sums
