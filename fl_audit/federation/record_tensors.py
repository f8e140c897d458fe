"""Records as tensors, in the form that models take, and the records on which a model is tested before a run."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from fl_audit.array_types import Integers
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.multi_array_records import array_of
from fl_audit.data.records import Records
from fl_audit.device import Device
from fl_audit.errors import require
from fl_audit.learning.frozen_backbones import core_shape, passed_through
from fl_audit.learning.microbatching import GroupedRecords
from fl_audit.learning.model_checks import ModelCheckRecords
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.named_inputs import MASK

_SPREAD = 16  # records from the first to the last
_MOST_COLUMNS = 128
"""Largest number of columns for which the records with the extreme values of each column are taken."""
_ENDS = 8  # number of records taken at each end, by their extreme value, where there are more columns


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
        features = torch.from_numpy(records.features).clone()
        labels = torch.from_numpy(records.labels).clone()
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


@lru_cache(maxsize=2)
def probe_records(dataset: LoadedDataset) -> ModelCheckRecords:
    """Return records of a data set on which a model is tested: evenly spaced ones, and ones with extreme values.

    Texts with the most and the least padding come first. Extreme values include the largest token id, which a model
    with an embedding must accept.
    """
    sources = [(dataset.pool, "record"), *([] if dataset.test is None else [(dataset.test, "test record")])]
    chosen = [(records, _chosen(records), label) for records, label in sources]
    features = np.concatenate([records.features[positions] for records, positions, _ in chosen])
    names = tuple(f"{label} {position} (from 0)" for _, positions, label in chosen for position in positions.tolist())
    return ModelCheckRecords(torch.from_numpy(features), names)


def _chosen(records: Records) -> Integers:
    spread = np.unique(np.linspace(0, len(records) - 1, _SPREAD).astype(np.int64))
    numbers = records.features.reshape(len(records), -1)
    if numbers.shape[1] <= _MOST_COLUMNS:
        extreme = np.concatenate([numbers.argmax(0), numbers.argmin(0)])
    else:
        extreme = np.concatenate([numbers.max(1).argsort()[-_ENDS:], numbers.min(1).argsort()[:_ENDS]])
    # A model that is tried on few records gets the first ones: the shortest and the longest text.
    first = _shortest_and_longest(records)
    remaining = np.setdiff1d(spread, first)
    return np.concatenate([first, remaining, np.setdiff1d(extreme, np.concatenate([first, remaining]))])


def _shortest_and_longest(records: Records) -> Integers:
    """Return the positions of the shortest and the longest record by attention mask; empty if there is no mask."""
    if not any(named_input.name == MASK for named_input in records.inputs):
        return np.empty(0, dtype=np.int64)
    lengths = array_of(records, MASK).reshape(len(records), -1).sum(axis=1)
    return np.unique([int(lengths.argmin()), int(lengths.argmax())])
