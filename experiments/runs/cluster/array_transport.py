"""Large arrays of messages travel beside them: Ray copies what is inside a message twice more on its way.

Models that many clients are sent lie in Ray's object store once, and go to each node once, not once for each client.
"""

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import ray
from flwr.app import Array, ArrayRecord, Message, RecordDict

_LARGE = 2**20
"""Bytes from which on an array travels beside its message."""
_KEPT = 2
"""So many arrays that were sent last stay in the object store for other clients: the models of two batches."""


def large_arrays_of() -> tuple[
    Callable[[Message], tuple[Message, dict[Any, Any]]], Callable[[Any, Mapping[Any, Any]], Any]
]:
    """Return how large arrays are taken out of a message, by their places in it, and how they are put back into it.

    Both are local functions, so that Ray sends them whole to machines that do not have this module.
    """

    def take_out(message: Message) -> tuple[Message, dict[Any, Any]]:
        """Return a copy of a message without its large arrays, and their bytes by record and name."""
        if not message.has_content():
            return message, {}
        content, large = RecordDict(dict(message.content)), dict[Any, Any]()
        for name, record in message.content.array_records.items():
            found = {key: array for key, array in record.items() if len(array.data) >= _LARGE}
            large |= {(name, key): np.frombuffer(array.data, np.uint8) for key, array in found.items()}
            emptied = {key: Array(array.dtype, array.shape, array.stype, b"") for key, array in found.items()}
            content[name] = ArrayRecord(dict(record) | emptied)
        light = copy.copy(message)  # Flower's own store of messages holds the original
        light.content = content
        return light, large

    def put_back(message: Any, large: Mapping[Any, Any]) -> Any:
        """Return a message with its large arrays.

        Parameters
        ----------
        message, large
            As `take_out` returns them; where a call has failed, there is no message and nothing is put into it.
        """
        for (name, key), values in large.items():
            message.content.array_records[name][key].data = values.tobytes()
        return message

    return take_out, put_back


take_out, put_back = large_arrays_of()


class SentArrays:
    """References to the arrays that were sent last."""

    def __init__(self) -> None:
        self._sent, self._lock = dict[int, tuple[Any, Any]](), threading.Lock()

    def reference(self, values: Any) -> Any:
        """Put the bytes of an array into the object store, unless they are there."""
        with self._lock:
            address = values.ctypes.data
            if address not in self._sent:
                self._sent[address] = values, ray.put(values)
            while len(self._sent) > _KEPT:
                del self._sent[next(iter(self._sent))]
            return self._sent[address][1]
