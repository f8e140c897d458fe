"""Records as tensors, as models read them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.data.records import Records
from fl_audit.device import Device


@dataclass(frozen=True)
class Examples:
    """Records as tensors: features (n, *shape) in float32, labels (n,) in int64."""

    features: Tensor
    labels: Tensor

    @classmethod
    def of(cls, records: Records, device: Device = Device.CPU) -> "Examples":
        """Return records as tensors on a device."""
        features, labels = torch.from_numpy(records.features).clone(), torch.from_numpy(records.labels).clone()
        return cls(features.to(device), labels.to(device))

    def take(self, indices: NDArray[np.int64]) -> "Examples":
        """Return the examples at `indices`."""
        chosen = torch.from_numpy(indices)
        return Examples(self.features[chosen], self.labels[chosen])
