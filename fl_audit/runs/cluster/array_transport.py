"""Send large arrays separately from their messages, because Ray makes two more copies of arrays inside a message.

An array that several messages share is put into Ray's object store once, and transferred to each machine once. An array
that belongs to a single client is sent together with the call of this client.
"""

import copy
import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import ray
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

_LARGE = 2**16
"""Size in bytes from which an array is sent beside its message."""

Hole = tuple[Array, int]
"""An array that was left empty, and the position of its bytes among those that were taken out."""
TakenOut = tuple[list[Message], list[Hole], list[Array]]
"""Messages without their large arrays, the empty arrays in them, and the arrays that were taken out."""


def take_out(messages: Sequence[Message]) -> TakenOut:
    """Return messages without their large arrays, and the removed arrays; the given messages are not changed."""
    records = dict[int, ArrayRecord]()
    holes = list[Hole]()
    large = dict[int, Array]()
    contents = dict[int, RecordDict]()

    def emptied(record: ArrayRecord) -> ArrayRecord:
        if id(record) not in records:
            large_arrays = {key: array for key, array in record.items() if len(array.data) >= _LARGE}
            emptied = {key: Array(array.dtype, array.shape, array.stype, b"") for key, array in large_arrays.items()}
            records[id(record)] = without = ArrayRecord(dict(record) | emptied) if large_arrays else record
            for key, array in large_arrays.items():
                large.setdefault(id(array.data), array)
                holes.append((without[key], list(large).index(id(array.data))))
        return records[id(record)]

    def without_large(content: RecordDict) -> RecordDict:
        if id(content) not in contents:
            # `content.array_records` makes a dictionary anew whenever it is asked.
            arrays = {name: record for name, record in content.items() if isinstance(record, ArrayRecord)}
            emptied_records = {name: emptied(record) for name, record in arrays.items()}
            is_light = all(emptied_records[name] is record for name, record in arrays.items())
            contents[id(content)] = content if is_light else RecordDict(dict(content) | emptied_records)
        return contents[id(content)]

    def light(message: Message) -> Message:
        content = without_large(message.content) if message.has_content() else None
        if content is None or content is message.content:
            return message
        copied = copy.copy(message)  # its sender still reads the original
        copied.content = content
        return copied

    lights = [light(message) for message in messages]
    return lights, holes, list(large.values())


def put_back(holes: Sequence[Any], large: Sequence[Any]) -> None:
    """Fill empty Flower arrays with their bytes, which were sent separately."""
    content = [values.tobytes() for values in large]
    for hole, hole_index in holes:
        hole.data = content[hole_index]


class StoreViews:
    """Fills empty Flower arrays with their bytes from Ray's object store: as views up to a limit, then as copies.

    A view avoids a copy of an array that is read only once. But the object store keeps the array until its view is
    released. The limit leaves room for further arrays.

    Parameters
    ----------
    limit
        Largest number of bytes in the store that may be viewed at the same time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._lock = threading.Lock()

    def put_back(self, holes: Sequence[Hole], large: Sequence[NDArray[np.uint8]]) -> None:
        """Fill empty Flower arrays with their bytes."""
        content = [self._taken(values) for values in large]
        for hole, hole_index in holes:
            hole.data = content[hole_index]  # type: ignore[assignment]  # `unpack` reads a view as well

    def _taken(self, values: NDArray[np.uint8]) -> bytes | memoryview:
        with self._lock:
            is_room = self.held + values.nbytes <= self.limit
            self.held += values.nbytes * is_room
        if not is_room:
            return values.tobytes()
        weakref.finalize(values, self._let_go, values.nbytes)
        return values.data

    def _let_go(self, size: int) -> None:
        with self._lock:
            self.held -= size


class SharedArray:
    """An array that is part of several messages; its bytes are put into Ray's object store only once."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self._lock = threading.Lock()
        self._reference: Any = None

    def reference(self) -> Any:
        """Return Ray's reference to the bytes of the shared array; the first call puts them into the object store."""
        with self._lock:
            if self._reference is None:
                self._reference = ray.put(bytes_of(self.array))
            return self._reference


def bytes_of(array: Array) -> Any:
    """Return the bytes of a Flower array as a NumPy array of type uint8, without a copy."""
    return np.frombuffer(array.data, np.uint8)


def shared_arrays(messages: Sequence[Message]) -> Mapping[int, SharedArray]:
    """Return the large arrays (from 64 KiB on) that several messages share, keyed by the Python `id` of their bytes."""
    records = {id(record): record for message in messages for record in _array_records(message)}
    counts = Counter(id(record) for message in messages for record in _array_records(message))
    arrays = dict[int, Array]()
    times = Counter[int]()
    for identity, record in records.items():
        for array in record.values():
            if len(array.data) >= _LARGE:
                arrays[id(array.data)] = array
                times[id(array.data)] += counts[identity]
    return {identity: SharedArray(array) for identity, array in arrays.items() if times[identity] > 1}


def _array_records(message: Message) -> list[ArrayRecord]:
    return (
        [record for record in message.content.values() if isinstance(record, ArrayRecord)]
        if message.has_content()
        else []
    )
