"""Metrics in clients' replies: record which names a strategy looks up, and turn values into numbers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from flwr.app import MetricRecord

_MOST_ENTRIES = 50  # number of entries that are used of a list whose entries are not numbers

_asked: ContextVar[dict[str, None] | None] = ContextVar("asked", default=None)


@contextmanager
def names_asked() -> Iterator[dict[str, None]]:
    """Record the metric names that a strategy looks up in replies within a `with` block, whether they exist or not.

    The yielded dictionary has the names as keys, in the order of their first look-up.
    """
    names = dict[str, None]()
    token = _asked.set(names)
    try:
        yield names
    finally:
        _asked.reset(token)


def _note(name: object) -> None:
    names = _asked.get()
    if names is not None and isinstance(name, str):
        names[name] = None


class _TracedMetrics:
    """Mixin for a mapping class that records each name looked up by `[]`, `get` or `in`."""

    def __getitem__(self, name: str) -> Any:
        _note(name)
        return super().__getitem__(name)  # type: ignore[misc]

    def __contains__(self, name: object) -> bool:
        _note(name)
        return super().__contains__(name)  # type: ignore[misc]

    def get(self, name: str, default: Any = None) -> Any:
        _note(name)
        return super().get(name, default)  # type: ignore[misc]


class LookupRecordingMetricRecord(_TracedMetrics, MetricRecord):
    """A Flower MetricRecord that records the metric names that are looked up in it."""

    def keys(self) -> KeysView[str]:
        return KeysView(self)


class TracedDict(_TracedMetrics, dict[str, Any]):
    """A dictionary of metrics, as old Flower strategies receive them, that records which names are looked up in it."""


def numbers_of(records: Iterable[MetricRecord]) -> dict[str, Any]:
    """Return the metrics of several Flower records as one dictionary, keyed by metric name; later records win."""
    return TracedDict((name, value) for record in records for name, value in record.items())


def plain_numbers(name: str, value: object, mean: str = "mean of ") -> Iterator[tuple[str, float]]:
    """Yield the numbers that represent a value, each with a name.

    A number represents itself. A list is represented by its mean and length, a string by its length, and a mapping by
    the numbers of its entries, with names such as `name.key`.
    """
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        yield name, float(value)
    elif isinstance(value, (str, bytes)):
        yield f"length of {name}", float(len(value))
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from plain_numbers(f"{name}.{key}", entry, mean)
    elif isinstance(value, (list, tuple, np.ndarray)) or hasattr(value, "__array__"):
        yield from _of_many(name, value, mean)


def _of_many(name: str, value: Any, mean: str) -> Iterator[tuple[str, float]]:
    try:
        array = np.asarray(value)
    except Exception:  # ragged lists, and arrays of other libraries
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "fiub" and array.size:
        yield f"{mean}{name}", float(np.mean(array))
        if array.ndim:
            yield f"length of {name}", float(len(array))
    elif isinstance(value, (list, tuple)):
        yield f"length of {name}", float(len(value))
        for index, entry in enumerate(value[:_MOST_ENTRIES]):
            yield from plain_numbers(f"{name}[{index}]", entry, mean)


def numbers_over_rounds(
    quantity: str, records: Mapping[int, MetricRecord], mean: str = "mean of "
) -> dict[str, list[float]]:
    """Return the numbers in the metrics of all rounds: for each name, its values in the order of the rounds.

    A list of numbers is represented by its mean and its length.
    """
    numbers_by_name = defaultdict[str, list[float]](list)
    for name, value in (pair for record in records.values() for pair in record.items()):
        for label, number in plain_numbers(name, value, mean):
            numbers_by_name[f"{quantity}: {label}"].append(number)
    return numbers_by_name
