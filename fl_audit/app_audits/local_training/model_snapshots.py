"""Keep the models that a training makes private, and copies of their tensors after the optimizers' steps."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fl_audit.app_audits.local_training.opacus_introspection import are_same, digest, named_tensors
from fl_audit.app_audits.local_training.training_facts import UnaccountedTensorChange

_PREFIX = "_module."  # prefix of tensor names in the module that Opacus puts around a model


class PrivateModels:
    """Models that Opacus makes private in a training, with copies of their tensors after the latest optimizer steps."""

    def __init__(self) -> None:
        self.modules = list[nn.Module]()
        self.optimizers = dict[int, Any]()  # Opacus' wrappers of optimizers, by the identity of the latter
        self._after = dict[int, dict[str, Tensor]]()  # by the identity of the optimizer that took the last step
        self._snapshots = list[dict[str, bytes]]()  # digests of the same after each step: copies would fill the memory

    def keep(self, optimizer: Any, is_step: bool = False) -> None:
        """Copy the current tensors of an optimizer's model, and drop older copies of the same tensors."""
        parameters = {id(param) for param in optimizer.params}
        for other_optimizer in self.optimizers.values():
            if any(id(param) in parameters for param in other_optimizer.params):
                self._after.pop(id(other_optimizer), None)
        after = {name: value.detach().cpu().clone() for name, value in self._live(optimizer).items()}
        self._after[id(optimizer)] = after
        if is_step:
            self._snapshots.append({name: digest(value) for name, value in after.items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return the current tensors of all models that Opacus has made private so far, by name."""
        tensors, visited = dict[str, Tensor](), set[int]()
        for index, optimizer in enumerate(self.optimizers.values()):
            for name, value in self._live(optimizer).items():
                if id(value) not in visited:
                    tensors[f"{index} {name}"] = value
                    visited.add(id(value))
        return tensors

    def set_to(self, weights: Mapping[str, Tensor]) -> None:
        """Copy recorded weights into the models that Opacus made private; other names and shapes are skipped."""
        live = self.tensors()
        with torch.no_grad():
            for name, value in weights.items():
                if name in live and live[name].shape == value.shape:
                    live[name].copy_(value)
        for optimizer in self.optimizers.values():
            if weights and id(optimizer) in self._after:
                self.keep(optimizer)

    def changed_tensors(self, optimizer: Any, is_at_end: bool) -> list[UnaccountedTensorChange]:
        """Return the tensors of an optimizer's model that were changed since the end of the optimizer's last step."""
        after, changes = self._after.get(id(optimizer), {}), []
        for name, value in self._live(optimizer).items() if after else ():
            old = after.get(name)
            # NaN counts as equal to NaN, so weights that have become NaN count as unchanged.
            if old is None or torch.allclose(old, value.detach().cpu(), rtol=0, atol=0, equal_nan=True):
                continue
            is_parameter = isinstance(value, nn.Parameter)
            changes.append(
                UnaccountedTensorChange(name, is_parameter, is_parameter and not value.requires_grad, is_at_end)
            )
        return changes

    def compared(self, arrays: Mapping[str, Tensor]) -> tuple[tuple[str, ...], int | None]:
        """Compare the tensors that a client returned with the models that Opacus made private.

        The first result has the names of the returned tensors that are in no private model. The second result is None
        if the other returned tensors have the latest values of a private model, or values of no step. If they have the
        values of an earlier step, it is the number of this step, from 1.
        """
        names = {name.removeprefix(_PREFIX): value.detach().cpu() for name, value in arrays.items()}
        models = list(self._after.values())
        tensors = {name: value for model in models for name, value in model.items()}
        known_names = {name: value for name, value in names.items() if name in tensors}
        # A tensor of a private model may leave by another name.
        values = {digest(value) for model in models for value in model.values()}
        unknown_names = [name for name in names if tensors and known_names and name not in tensors]
        unknown = tuple(name for name in unknown_names if digest(names[name]) not in values)
        earlier = None
        if known_names and not any(are_same(known_names, model) for model in models):
            digests = {name: digest(value.to(tensors[name].dtype)) for name, value in known_names.items()}
            numbers = (index for index, shot in enumerate(self._snapshots, 1) if digests.items() <= shot.items())
            earlier = next(numbers, None)
        return unknown, earlier

    def _live(self, optimizer: Any) -> dict[str, Tensor]:
        parameters = {id(param) for param in optimizer.params}
        for module in reversed(self.modules):
            if any(id(parameter) in parameters for parameter in module.parameters()):
                return {name.removeprefix(_PREFIX): value for name, value in named_tensors(module)}
        return {str(index): value for index, value in enumerate(optimizer.params)}
