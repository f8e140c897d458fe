"""Data sets of common libraries: count their records, and select some records as a data set of the same kind."""

import sys
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from fl_audit.errors import InputError, in_a_line

_ACCEPTED = (
    "accepted are arrays, tensors and tables with one record a row, lists of records, data sets of torch that have a "
    "length, their DataLoader, and Dataset or DatasetDict of Hugging Face"
)
_TORCH = "torch.utils.data"
_TRAIN = "train"  # the split of a DatasetDict that a client trains on
_OF_BATCHES = ("PyDataset", "Sequence")  # classes of Keras whose entries are mini-batches


class SelectableDataset(NamedTuple):
    """A data set's number of records, and a function that selects some of them."""

    records: int  # number of records
    # Function from a list of record indices, in any order, to a data set of the same kind with only these records.
    taken: Callable[[list[int]], Any]


def data_set_of(dataset: Any) -> SelectableDataset:
    """Return the number of records of a data set, and a function that selects some of its records.

    `dataset`: It may also be one part of a data set, such as the labels.
    """
    kind = type(dataset).__name__
    try:
        subset = _found(dataset)
        if subset.records > 0:  # selection is tested now, so that it cannot fail only in trials
            first = subset.taken([subset.records - 1, 0])
            if _found(first).records != 2:
                raise InputError(f"held() was given a {kind}, of which two records cannot be taken: {_ACCEPTED}")
    except InputError:
        raise
    except Exception as error:  # the app's data set may raise any exception
        problem = f"held() was given a {kind}, whose records cannot be taken out ({in_a_line(error)})"
        raise InputError(f"{problem}: {_ACCEPTED}") from error
    return subset


def _found(dataset: Any) -> SelectableDataset:
    if _is_a(dataset, "datasets", "DatasetDict"):
        return _of_splits(dataset)
    if _is_a(dataset, "datasets", "Dataset"):
        return SelectableDataset(len(dataset), dataset.select)
    if _is_a(dataset, _TORCH, "DataLoader"):
        return _of_loader(dataset, sys.modules[_TORCH])
    if _is_a(dataset, _TORCH, "Dataset"):
        return _of_torch(dataset, sys.modules[_TORCH])
    if hasattr(dataset, "iloc"):
        return SelectableDataset(len(dataset), lambda positions: dataset.iloc[positions])
    rows = _rows(dataset)
    if rows is not None:
        return SelectableDataset(rows, lambda positions: dataset[np.asarray(positions, dtype=np.int64)])
    if isinstance(dataset, list):
        return SelectableDataset(len(dataset), lambda positions: [dataset[index] for index in positions])
    if isinstance(dataset, Mapping):
        raise _refusal(dataset, f"hand over its parts one by one, as in held(data[{next(iter(dataset), 'x')!r}], ...)")
    if isinstance(dataset, tuple):
        raise _refusal(dataset, "hand over its parts one by one, as in held(inputs, labels), or a list of records")
    if any(base.__name__ in _OF_BATCHES and base.__module__.startswith("keras") for base in type(dataset).__mro__):
        raise _refusal(dataset, "its entries are batches, and one record differs")
    is_text = isinstance(dataset, (str, bytes, bytearray, Set))
    if is_text or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise _refusal(dataset)
    return SelectableDataset(len(dataset), lambda positions: _RecordSubset(dataset, positions))


def _is_a(dataset: Any, module: str, name: str) -> bool:
    """Return whether an object is an instance of a library's class, without importing the library."""
    # An app may have a module with the library's name, which may lack the class.
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(dataset, kind)


def _rows(dataset: Any) -> int | None:
    shape = getattr(dataset, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return None
    try:
        return int(shape[0]) if len(dataset) == shape[0] else None  # `shape` may mean something else in other classes
    except TypeError:  # a sparse matrix has no length
        return int(shape[0])


def _refusal(dataset: Any, instead: str = "") -> InputError:
    problem = f"held() was given a {type(dataset).__name__}"
    return InputError(f"{problem}: {instead}; {_ACCEPTED}" if instead else f"{problem}: {_ACCEPTED}")


def _of_splits(dataset: Any) -> SelectableDataset:
    """Return a DatasetDict as a data set whose training split can be reduced; its other splits stay whole."""
    name = _TRAIN if _TRAIN in dataset else next(iter(dataset), "")
    if _TRAIN not in dataset and len(dataset) != 1:
        raise _refusal(dataset, f"it has no split {_TRAIN!r}: hand over the one that the client trains on")
    return SelectableDataset(
        len(dataset[name]), lambda positions: type(dataset)({**dataset, name: dataset[name].select(positions)})
    )


def _of_loader(loader: Any, torch_data: Any) -> SelectableDataset:
    """Return the records of a torch DataLoader for selection; `InputError` if its sampler is not of a usual class."""
    sampler = loader.sampler
    remedy = "hand over its data set, and make the loader of what held() returns"
    is_usual = type(sampler) in (torch_data.SequentialSampler, torch_data.RandomSampler)
    batches = (type(None), torch_data.BatchSampler)
    if type(loader) is not torch_data.DataLoader or not is_usual or type(loader.batch_sampler) not in batches:
        raise _refusal(loader, remedy)
    inner = _found(loader.dataset)

    def taken(select: list[int]) -> Any:
        records = inner.taken(select)
        chosen = torch_data.SequentialSampler(records)
        if type(sampler) is torch_data.RandomSampler:
            # `_num_samples` is None by default, which means the number of records.
            chosen = torch_data.RandomSampler(records, sampler.replacement, sampler._num_samples, sampler.generator)
        names = (
            "num_workers",
            "collate_fn",
            "pin_memory",
            "timeout",
            "worker_init_fn",
            "multiprocessing_context",
            "generator",
            "prefetch_factor",
            "persistent_workers",
            "batch_size",
            "drop_last",
        )
        return torch_data.DataLoader(records, sampler=chosen, **{name: getattr(loader, name) for name in names})

    return SelectableDataset(inner.records, taken)


def _of_torch(dataset: Any, torch_data: Any) -> SelectableDataset:
    """Return a torch Dataset as a data set that can be reduced to some records; refuse one without a length."""
    if isinstance(dataset, torch_data.IterableDataset) or not hasattr(dataset, "__len__"):
        raise _refusal(dataset, "it has no length")
    if type(dataset) is torch_data.TensorDataset:
        return SelectableDataset(
            len(dataset), lambda positions: torch_data.TensorDataset(*(tensor[positions] for tensor in dataset.tensors))
        )
    if type(dataset) is torch_data.Subset:
        return SelectableDataset(
            len(dataset),
            lambda positions: torch_data.Subset(dataset.dataset, [dataset.indices[position] for position in positions]),
        )
    return SelectableDataset(len(dataset), lambda positions: torch_data.Subset(dataset, positions))


class _RecordSubset:
    """Selected records of an object of an unknown class; it offers only length, indexing and iteration."""

    def __init__(self, records: Any, positions: list[int]) -> None:
        self._records = records
        self._places = positions

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Any:
        return self._records[self._places[index]]

    def __iter__(self) -> Iterator[Any]:
        return (self._records[index] for index in self._places)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"in trials, what held() returns has records and nothing else, such as {name!r}")
