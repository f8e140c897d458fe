"""Records as tensors, in the form that models take."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fl_audit.array_types import Integers
from fl_audit.data.records import Records
from fl_audit.device import Device
from fl_audit.errors import require
from fl_audit.learning.frozen_backbones import core_shape, passed_through
from fl_audit.learning.grouped_records import GroupedRecords
from fl_audit.learning.models import ModelSpec


@dataclass(frozen=True)
class Examples:
    """Records as tensors: features, float32 (n, *shape), and labels, int64 (n,).

    With a frozen core (backbone), features are the output of the core. If owners randomise their records, features and
    labels differ between trials: features have shape (trials, n, *shape) and may have a smaller type than float32, and
    labels have shape (trials, n).
    """

    features: Tensor
    labels: Tensor
    user: Tensor | None = None  # user of each record, int64 (n,); None if users are not the units

    @classmethod
    def of(cls, records: Records, device: Device = Device.CPU, core: nn.Module | None = None) -> "Examples":
        """Return records as tensors on a device.

        `core`: None leaves the features as they are.
        """
        features, labels = torch.from_numpy(records.features).clone(), torch.from_numpy(records.labels).clone()
        features = features.to(device)
        if core is not None:
            features = passed_through(core.to(device), features).float()
        user = None if records.user is None else torch.from_numpy(records.user).clone().to(device)
        return cls(features, labels.to(device), user)

    @property
    def count(self) -> int:
        """Number of examples; per trial if examples differ between trials."""
        return self.labels.shape[-1]

    @cached_property
    def grouped(self) -> GroupedRecords:
        """Examples grouped by user, or single examples if users are not the units; grouped once and cached."""
        return GroupedRecords.of(self.features, self.labels, self.user)

    def take(self, indices: Integers) -> "Examples":
        """Return the examples at the positions `indices`, integers (k,), the same in every trial."""
        chosen = torch.from_numpy(indices)
        selection = (slice(None), chosen) if self.labels.dim() == 2 else chosen
        return Examples(
            self.features[selection], self.labels[selection], None if self.user is None else self.user[chosen]
        )


def model_for(name: str, records: Records) -> ModelSpec:
    """Return the specification of the trained model: its name, feature shape, classes and named inputs.

    If the model has frozen layers (a core), the trained model is only the head that follows them. Raises `InputError`
    if the model does not accept the records.
    """
    reads = not records.graphs or ":" in name
    require(reads, f"model is {name} and the records are graphs: accepted is package.module:factory of one for graphs")
    return ModelSpec(name, core_shape(name, records.shape), records.classes, records.inputs)
