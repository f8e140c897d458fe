"""Where each parameter of a model is found in one flat vector, so that stacked models are plain matrices."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_CACHED_SCALARS = 2**17  # whole stacks of large models would be moved to memory and back at every step


def cached_rows(worlds: int, parameters: int) -> Iterator[slice]:
    """Yield the rows of stacked models in portions of at least one world that stay in cache even in float64.

    Parameters
    ----------
    worlds, parameters
        Number of models, from 1, and of the parameters of each.
    """
    rows = max(1, _CACHED_SCALARS // parameters)
    for first in range(0, worlds, rows):
        yield slice(first, min(worlds, first + rows))


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of a model's parameters, in the order of `named_parameters`."""

    names: tuple[str, ...]  # parameter names
    shapes: tuple[tuple[int, ...], ...]  # shape of each parameter

    @classmethod
    def of(cls, module: nn.Module) -> "ParameterLayout":
        """Return the layout of a module."""
        named = list(module.named_parameters())
        return cls(tuple(name for name, _ in named), tuple(tuple(value.shape) for _, value in named))

    @property
    def size(self) -> int:
        """Number of scalars in one model."""
        return sum(math.prod(shape) for shape in self.shapes)

    def slices(self) -> dict[str, slice]:
        """Return the columns of a flat vector that hold each parameter, by its name."""
        result, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            result[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)
        return result

    def views(self, models: Tensor) -> dict[str, Tensor]:
        """Return each parameter of stacked models (worlds, parameters) as a view of shape (worlds, *shape)."""
        placed = zip(self.slices().items(), self.shapes, strict=True)
        return {name: models[:, columns].view(len(models), *shape) for (name, columns), shape in placed}

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return one model's parameters as one float32 vector."""
        return torch.cat([parameters[name].detach().reshape(-1).float() for name in self.names])
