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


def data_set_of(part: Any) -> SelectableDataset:
    """Return the number of records of a data set, and a function that selects some of its records.

    `part`: It may also be one part of a data set, such as the labels.
    """
    kind = type(part).__name__
    try:
        found = _found(part)
        if found.records > 0:  # selection is tested now, so that it cannot fail only in trials
            first = found.taken([found.records - 1, 0])
            if _found(first).records != 2:
                raise InputError(f"held() was given a {kind}, of which two records cannot be taken: {_ACCEPTED}")
    except InputError:
        raise
    except Exception as error:  # the app's data set may raise any exception
        said = f"held() was given a {kind}, whose records cannot be taken out ({in_a_line(error)})"
        raise InputError(f"{said}: {_ACCEPTED}") from error
    return found


def _found(part: Any) -> SelectableDataset:
    if _is_a(part, "datasets", "DatasetDict"):
        return _of_splits(part)
    if _is_a(part, "datasets", "Dataset"):
        return SelectableDataset(len(part), part.select)
    if _is_a(part, _TORCH, "DataLoader"):
        return _of_loader(part, sys.modules[_TORCH])
    if _is_a(part, _TORCH, "Dataset"):
        return _of_torch(part, sys.modules[_TORCH])
    if hasattr(part, "iloc"):
        return SelectableDataset(len(part), lambda places: part.iloc[places])
    rows = _rows(part)
    if rows is not None:
        return SelectableDataset(rows, lambda places: part[np.asarray(places, dtype=np.int64)])
    if isinstance(part, list):
        return SelectableDataset(len(part), lambda places: [part[place] for place in places])
    if isinstance(part, Mapping):
        raise _refusal(part, f"hand over its parts one by one, as in held(data[{next(iter(part), 'x')!r}], ...)")
    if isinstance(part, tuple):
        raise _refusal(part, "hand over its parts one by one, as in held(inputs, labels), or a list of records")
    if any(one.__name__ in _OF_BATCHES and one.__module__.startswith("keras") for one in type(part).__mro__):
        raise _refusal(part, "its entries are batches, and one record differs")
    is_text = isinstance(part, (str, bytes, bytearray, Set))
    if is_text or not (hasattr(part, "__getitem__") and hasattr(part, "__len__")):
        raise _refusal(part)
    return SelectableDataset(len(part), lambda places: _RecordSubset(part, places))


def _is_a(part: Any, module: str, name: str) -> bool:
    """Return whether an object is an instance of a library's class, without importing the library."""
    # An app may have a module with the library's name, which may lack the class.
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(part, kind)


def _rows(part: Any) -> int | None:
    shape = getattr(part, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return None
    try:
        return int(shape[0]) if len(part) == shape[0] else None  # `shape` may mean something else in other classes
    except TypeError:  # a sparse matrix has no length
        return int(shape[0])


def _refusal(part: Any, instead: str = "") -> InputError:
    said = f"held() was given a {type(part).__name__}"
    return InputError(f"{said}: {instead}; {_ACCEPTED}" if instead else f"{said}: {_ACCEPTED}")


def _of_splits(part: Any) -> SelectableDataset:
    """Return a DatasetDict as a data set whose training split can be reduced; its other splits stay whole."""
    name = _TRAIN if _TRAIN in part else next(iter(part), "")
    if _TRAIN not in part and len(part) != 1:
        raise _refusal(part, f"it has no split {_TRAIN!r}: hand over the one that the client trains on")
    return SelectableDataset(len(part[name]), lambda places: type(part)({**part, name: part[name].select(places)}))


def _of_loader(part: Any, torch_data: Any) -> SelectableDataset:
    """Return the records of a torch DataLoader for selection; `InputError` if its sampler is not of a usual class."""
    sampler, own = part.sampler, "hand over its data set, and make the loader of what held() returns"
    is_usual = type(sampler) in (torch_data.SequentialSampler, torch_data.RandomSampler)
    batches = (type(None), torch_data.BatchSampler)
    if type(part) is not torch_data.DataLoader or not is_usual or type(part.batch_sampler) not in batches:
        raise _refusal(part, own)
    inner = _found(part.dataset)

    def taken(places: list[int]) -> Any:
        records = inner.taken(places)
        chosen = torch_data.SequentialSampler(records)
        if type(sampler) is torch_data.RandomSampler:
            # `_num_samples` is None by default, which means the number of records.
            chosen = torch_data.RandomSampler(records, sampler.replacement, sampler._num_samples, sampler.generator)
        names = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
                 "generator", "prefetch_factor", "persistent_workers", "batch_size", "drop_last")  # fmt: skip
        return torch_data.DataLoader(records, sampler=chosen, **{name: getattr(part, name) for name in names})

    return SelectableDataset(inner.records, taken)


def _of_torch(part: Any, torch_data: Any) -> SelectableDataset:
    """Return a torch Dataset as a data set that can be reduced to some records; refuse one without a length."""
    if isinstance(part, torch_data.IterableDataset) or not hasattr(part, "__len__"):
        raise _refusal(part, "it has no length")
    if type(part) is torch_data.TensorDataset:
        return SelectableDataset(
            len(part), lambda places: torch_data.TensorDataset(*(one[places] for one in part.tensors))
        )
    if type(part) is torch_data.Subset:
        return SelectableDataset(
            len(part), lambda places: torch_data.Subset(part.dataset, [part.indices[place] for place in places])
        )
    return SelectableDataset(len(part), lambda places: torch_data.Subset(part, places))


class _RecordSubset:
    """Selected records of an object of an unknown class; it offers only length, indexing and iteration."""

    def __init__(self, records: Any, places: list[int]) -> None:
        self._records, self._places = records, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> Any:
        return self._records[self._places[place]]

    def __iter__(self) -> Iterator[Any]:
        return (self._records[place] for place in self._places)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"in trials, what held() returns has records and nothing else, such as {name!r}")
