"""Make modified copies of data sets: without a record, with another record, or with other labels.

A data set is a torch or Hugging Face data set, a tuple of arrays, or a list of records.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from fl_audit.array_types import Floats

_CRAFTED = 100.0  # factor by which the values of a real record are multiplied
_LABELS = ("label", "labels", "target", "targets", "y", "fine_label")
_MOST = 5000  # largest number of records that are compared


def without_record(dataset: Any, index: int) -> Any:
    """Return a data set without one of its records.

    `TensorDataset`, `Subset`, Hugging Face data sets, tuples and lists keep their type; others become a torch `Subset`.
    """
    kept_indices = [position for position in range(length_of(dataset)) if position != index]
    match dataset:
        case TensorDataset():
            return TensorDataset(*(tensor[kept_indices] for tensor in dataset.tensors))
        case Subset():
            return Subset(dataset.dataset, [dataset.indices[index] for index in kept_indices])
        case tuple() | list() if _is_of_arrays(dataset):
            return type(dataset)(array[kept_indices] for array in dataset)
        case tuple() | list():
            return type(dataset)(dataset[index] for index in kept_indices)
        case _ if hasattr(dataset, "select") and hasattr(dataset, "column_names"):
            return dataset.select(kept_indices)
        case _:
            return Subset(dataset, kept_indices)


def with_record(dataset: Any, index: int, item: Any) -> Any:
    """Return a data set in which one record is replaced by another."""
    return with_records(dataset, {index: item})


def with_records(dataset: Any, items: Mapping[int, Any]) -> Any:
    """Return a data set in which the records at some positions are replaced by others."""
    match dataset:
        case TensorDataset():
            return TensorDataset(*_put(dataset.tensors, items))
        case tuple() | list() if _is_of_arrays(dataset):
            return type(dataset)(_put(dataset, items))
        case tuple() | list():
            return type(dataset)(items.get(index, item) for index, item in enumerate(dataset))
        case _:
            return _EditedDataset(dataset, items)


def with_other_labels(dataset: Any, is_one: bool = False) -> Any:
    """Return a data set with the same records, in the same order, but with labels of other records."""
    positions = np.arange(length_of(dataset))
    order = [int(index) for index in (0 * positions if is_one else np.roll(positions, len(positions) // 2 + 1))]
    match dataset:
        case TensorDataset():
            return TensorDataset(*dataset.tensors[:-1], dataset.tensors[-1][order])
        case tuple() | list() if _is_of_arrays(dataset):
            return type(dataset)([*dataset[:-1], dataset[-1][order]])
        case tuple() | list():
            return type(dataset)(
                with_label(item, label_of(dataset[index])) for item, index in zip(dataset, order, strict=True)
            )
        case _:
            return _EditedDataset(
                dataset,
                {index: with_label(dataset[index], label_of(dataset[order[index]])) for index in range(len(order))},
            )


def with_other_records(dataset: Any, index: int) -> Any:
    """Return a data set of the same size in which records and labels have other places, and one record is crafted."""
    order = np.roll(np.arange(length_of(dataset)), 1).tolist()
    match dataset:
        case TensorDataset():
            turned: Any = TensorDataset(*(tensor[order] for tensor in dataset.tensors))
        case tuple() | list() if _is_of_arrays(dataset):
            turned = type(dataset)(array[order] for array in dataset)
        case tuple() | list():
            turned = type(dataset)(dataset[index] for index in order)
        case _:
            turned = _EditedDataset(dataset, {index: dataset[source] for index, source in enumerate(order)})
    relabelled = with_other_labels(turned)
    return with_record(relabelled, index, crafted_record(record_at(relabelled, index)))


def record_at(dataset: Any, index: int) -> Any:
    """Return the record of a data set at a position; for a tuple of arrays, a tuple of their entries."""
    return tuple(array[index] for array in dataset) if _is_of_arrays(dataset) else dataset[index]


def crafted_record(item: Any, factor: float = _CRAFTED) -> Any:
    """Return a record whose features are `factor` times as large, so that its gradient is likely to be clipped.

    `item` is a tensor, an array, a mapping, or a tuple or list whose first entry holds the features. Other objects are
    returned unchanged.
    """
    return _with_features(item, lambda features: features * factor)


def jittered_record(item: Any) -> Any:
    """Return a record whose features differ by one part in a hundred, up and down in turn."""

    def jittered(features: Any) -> Any:
        signs = 1 - 2 * (np.arange(features.size if isinstance(features, np.ndarray) else features.numel()) % 2)
        factors = (1 + 0.01 * signs).reshape(tuple(features.shape))
        return features * (factors if isinstance(features, np.ndarray) else torch.from_numpy(factors).to(features))

    return _with_features(item, jittered)


def _with_features(item: Any, change: Callable[[Any], Any]) -> Any:
    match item:
        case Tensor() if item.is_floating_point():
            return change(item)
        case np.ndarray() if item.dtype.kind == "f":
            return change(item).astype(item.dtype)
        case Mapping():
            return {key: value if key in _LABELS else _with_features(value, change) for key, value in item.items()}
        case tuple() | list() if len(item) > 1:
            return type(item)([_with_features(item[0], change), *item[1:]])
        case _:
            return item


def label_of(item: Any) -> Any:
    """Return the label of a record, as a tensor, an array or a number; None if it has none."""
    match item:
        case Mapping():
            return next((value for key, value in item.items() if key in _LABELS), None)
        case tuple() | list() if len(item) > 1:
            return item[-1]
        case _:
            return None


def with_label(item: Any, label: Any) -> Any:
    """Return a record with another label; a record without a label is returned unchanged."""
    match item:
        case Mapping():
            return {key: label if key in _LABELS else value for key, value in item.items()}
        case tuple() | list() if len(item) > 1:
            return type(item)([*item[:-1], label])
        case _:
            return item


def most_dissimilar(dataset: Any, among: Sequence[int]) -> int:
    """Return the position of the record that is farthest from the mean of the chosen records.

    Only the first 5,000 chosen records are compared. If records have different shapes, the first position is returned.
    """
    chosen = list(among)[:_MOST]
    try:
        rows = np.stack([_flat(record_at(dataset, index)) for index in chosen])
    except (ValueError, TypeError):  # records of several shapes
        return chosen[0]
    return int(chosen[int(np.linalg.norm(rows - rows.mean(axis=0), axis=1).argmax())])


class _EditedDataset(Dataset[Any]):
    """Data set that returns other records at some positions of a given data set."""

    def __init__(self, dataset: Any, items: Mapping[int, Any]) -> None:
        self._dataset, self._items = dataset, items

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._items[index] if index in self._items else self._dataset[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_dataset"], name)


def length_of(dataset: Any) -> int:
    """Return the number of records of a data set."""
    return len(dataset[0]) if _is_of_arrays(dataset) else len(dataset)


def _is_of_arrays(dataset: object) -> bool:
    """Return True if a data set is a tuple or list of arrays, such as features and labels, instead of records."""
    if not isinstance(dataset, (tuple, list)) or len(dataset) < 2:
        return False
    return all(isinstance(array, (Tensor, np.ndarray)) for array in dataset)


def _put(arrays: Sequence[Any], items: Mapping[int, Any]) -> list[Any]:
    changed = [array.clone() if isinstance(array, Tensor) else array.copy() for array in arrays]
    for index, item in items.items():
        for target_array, value in zip(changed, item, strict=True):
            target_array[index] = value
    return changed


def _flat(item: Any) -> Floats:
    match item:
        case Mapping():
            segments = [_flat(value) for value in item.values()]
        case tuple() | list():
            segments = [_flat(value) for value in item]
        case Tensor():
            segments = [item.detach().double().reshape(-1).numpy()]
        case str() | bytes() | None:
            segments = []
        case _:
            segments = [np.asarray(item, dtype=np.float64).reshape(-1)]
    return np.concatenate([np.zeros(0), *segments])


def is_sized(dataset: object) -> bool:
    """Return True if a record can be removed from a data set.

    The data set must have a length, and return the record at a given position.
    """
    if isinstance(dataset, (tuple, list)):
        # Numbers and texts by themselves are no records.
        has_records = bool(dataset) and all(isinstance(record, (Mapping, tuple, list)) for record in dataset)
        return _is_of_arrays(dataset) or has_records
    return hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and not isinstance(dataset, torch.Tensor)
