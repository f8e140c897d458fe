"""Errors of client calls on Ray."""

from collections.abc import Iterator
from contextlib import contextmanager

from ray.exceptions import ObjectStoreFullError, OutOfDiskError

_NO_ROOM = (
    "Ray's object store is full: give it more room (ray start --object-store-memory), or play fewer trials at a time "
    "(run.trials-per-batch)"
)


class CallError(RuntimeError):
    """Raised if a client call failed; the message is the client's error message, or says how the call was lost."""


class LostCallsError(Exception):
    """Raised if client calls have no result: their process or machine is lost, or Ray failed with a message."""

    @property
    def words(self) -> str:
        """The error message of Ray; empty if the process of the lost calls, or its machine, is gone."""
        return str(self)


@contextmanager
def call_error_if_full() -> Iterator[None]:
    """Raise a one-line `CallError` if Ray reports in a `with` block that its object store or a disk is full."""
    try:
        yield
    except (ObjectStoreFullError, OutOfDiskError) as error:
        raise CallError(_NO_ROOM) from error
