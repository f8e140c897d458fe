"""Where each parameter of a model is found in one flat vector, so that stacked models are plain matrices."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


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
        """Return each parameter of stacked models as a view of shape (worlds, *shape).

        Parameters
        ----------
        models
            Tensor (worlds, parameters).
        """
        columns = self.slices()
        return {
            name: models[:, columns[name]].view(len(models), *shape)
            for name, shape in zip(self.names, self.shapes, strict=True)
        }

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return one model's parameters as one float32 vector."""
        return torch.cat([parameters[name].detach().reshape(-1).float() for name in self.names])
