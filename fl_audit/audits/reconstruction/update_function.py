"""The update that an owner shares for its records, as a differentiable function of the records.

Gradient inversion uses it to search for records with a given update.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fl_audit.array_types import Integers
from fl_audit.errors import require
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.module_preparation import without_hints
from fl_audit.learning.pass_budgets import CACHE_BUDGET
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.learning.training_enums import LocalOptimizer

_Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class UpdateFunction:
    """The function that maps an owner's records to the update that the owner sends, for a fixed model and update rule.

    Raises `InputError` if the local optimizer is not SGD.
    """

    model: StackedModel  # the architecture of the model
    start: Tensor  # parameters of the model at the start of the round, float32 (parameters,)
    # Clipping norm of each record's gradient or, with local training, of the whole update; None for no clipping.
    clipping_norm: float | None = None
    # Schedule of local training by SGD; None if the update is a sum of gradients.
    schedule: LocalSchedule | None = None
    # Indices of the records in each local step, which are public; empty without local training.
    batches: Sequence[Integers] = field(default=())

    def __post_init__(self) -> None:
        optimizer = LocalOptimizer.SGD if self.schedule is None else self.schedule.optimizer
        accepted = "accepted for inversion is 'sgd', whose updates are sums of gradients"
        require(optimizer is LocalOptimizer.SGD, f"local-optimizer is '{optimizer}': {accepted}")

    def of(self, records: Tensor, labels: Tensor) -> Tensor:
        """Return the update that a data owner with the given records would send, float32 (parameters,).

        The computation is differentiable in the records and can be used with vmap.

        Shapes: `records` (records, *shape), `labels` (records,).
        """
        parameters = self.model.layout.of_one(self.start)
        with without_hints():
            if self.schedule is not None:
                return self._clipped(self._moved(parameters, records, labels).unsqueeze(0))[0]
            if self.clipping_norm is None:
                return self._flat(grad(self._loss)(parameters, records, labels))
            element = vmap(grad(self._loss), (None, 0, 0))(parameters, records.unsqueeze(1), labels.unsqueeze(1))
        return self._clipped(torch.cat([element[name].flatten(1) for name in self.model.layout.names], dim=1)).sum(0)

    def of_many(self, records: Tensor, labels: Tensor) -> Tensor:
        """Return the update of each of many owners, float32 (owners, parameters), detached from autograd.

        Shapes: `records` (owners, records, *shape), `labels` (owners, records).
        """
        together = max(1, CACHE_BUDGET // (records.shape[1] * self.model.layout.size))
        return vmap(self.of, chunk_size=together)(records, labels).detach()

    def _clipped(self, contributions: Tensor) -> Tensor:
        if self.clipping_norm is None:
            return contributions
        lengths = contributions.square().sum(1, keepdim=True)
        return contributions * (self.clipping_norm * torch.rsqrt(lengths)).clamp(max=1)

    def _moved(self, parameters: _Parameters, records: Tensor, labels: Tensor) -> Tensor:
        """Return the parameters before local training minus those after it, as one vector."""
        assert self.schedule is not None, "local training has a schedule"
        now = parameters
        for batch in self.batches:
            chosen = torch.from_numpy(batch).to(records.device)
            slope = grad(partial(self._loss, reduction="mean"))(now, records[chosen], labels[chosen])
            now = {name: value - self.schedule.learning_rate * slope[name] for name, value in now.items()}
        return self._flat({name: parameters[name] - now[name] for name in now})

    def _loss(self, parameters: _Parameters, records: Tensor, labels: Tensor, reduction: str = "sum") -> Tensor:
        stacked = {name: value.unsqueeze(0) for name, value in parameters.items()}
        with self.model.naming_layer_and_record(stacked, records):
            logits = functional_call(self.model.template, parameters, (records,))
        return F.cross_entropy(logits, labels, reduction=reduction)

    def _flat(self, parameters: _Parameters) -> Tensor:
        return torch.cat([parameters[name].reshape(-1) for name in self.model.layout.names])
