"""The Ray actor of a client process, which makes the calls of several clients in one Ray call.

A long client call does not delay the calls after it: after a time limit, the process returns the finished results and
the number of calls in progress, and other processes make the remaining calls. Calls in progress are the current one and
those that were announced together with it, whose contributions may be computed already. If they are not finished after
the same time again, all of them but the current one are left to other processes as well.
"""

import pickle
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import ray
from flwr.app import Context, Message

from fl_audit.experiments.runs.cluster.array_transport import large_arrays_of

_AHEAD = 8
"""Largest number of calls announced at a time, so that the stacked models of clients stay in the cache."""


class CallReply(NamedTuple):
    """The result of one call: a reply and the context after it, or the message of a failure."""

    reply: Any
    context: Any
    failure: str | None


class CallReplies(NamedTuple):
    """The results of the finished calls, in order, and how many of the next calls are in progress."""

    made: list[CallReply]
    under_way: int
    seconds: float = 0.0  # working time of the process on them


@dataclass(frozen=True)
class ProcessCalls:
    """Client calls to be made in a process, with the context that it needs."""

    messages: list[Message]  # without their large arrays
    holes: list[Any]  # empty arrays in them, see `Hole`
    contexts: list[Context]  # of each call's client
    large: list[Any]  # the bytes that are missing in them, or the `SharedArray` that has them
    # References to functions that bring what many clients need; each is called once in a process.
    call_context: Sequence[Any] = ()
    # A pickle of functions that bring what these clients alone need, and the arrays of these functions; or nothing.
    own: tuple[bytes, list[Any]] | None = None


def process_class() -> Any:
    """Return the actor class of client processes, a local class that is pickled by value (see `PortableValue`)."""
    take_out, put_back = large_arrays_of()

    def written(*values: Any) -> bytes:
        # By itself Ray asks Python of each object how it is to be pickled, and a message has many.
        return pickle.dumps(values, protocol=pickle.HIGHEST_PROTOCOL)

    most = _AHEAD
    nothing = written(None, [], None)

    class ClientProcess:
        def __init__(self, paths: list[str], app: list[Any]) -> None:
            self._paths, self._app, self._given = paths, app, set[Any]()
            self._call: Any = None
            self._announce: Any = None
            self._changed = threading.Condition()
            self._waiting: list[Any] = []  # calls that are not begun
            self._ahead = 0  # of these, those that were announced, and so may be worked out already
            self._done: list[Any] = []  # results of calls that nobody has asked for yet
            self._is_at_work, self._began, self._pace = False, 0.0, 0.0
            self._worker: Any = None

        def run(self, calls: bytes, single: Any, call_context: list[Any], own: Any, seconds: float, *large: Any) -> Any:
            """Make calls; return the results of those that ended in time, and the number of calls in progress."""
            messages, holes, contexts = pickle.loads(calls)
            try:
                shared = iter(large)
                put_back(holes, [next(shared) if one is None else one for one in single])
                self._get_ready(call_context, own)
            except ConnectionAbortedError:
                raise
            except Exception as error:
                return [(nothing, [], str(error) or type(error).__name__)], 0, 0.0
            if self._worker is None:
                # The thread lives as long as the process, and with it what the app keeps for the thread.
                self._worker = threading.Thread(target=self._serve, daemon=True)
                self._worker.start()
            with self._changed:
                self._waiting, self._seconds = list(zip(messages, contexts, strict=True)), seconds
                self._ahead, self._began = 0, time.monotonic()
                self._changed.notify_all()
                self._changed.wait_for(self._is_idle, seconds)
                # If other programs keep the machine busy, the thread may not even have begun.
                self._changed.wait_for(lambda: self._done or self._is_at_work)
                self._waiting = self._waiting[: self._ahead]
                return self._taken()

        def rest(self, seconds: float | None) -> Any:
            """Wait up to `seconds` for the calls in progress, and return results; None waits until all have ended."""
            with self._changed:
                self._changed.wait_for(self._is_idle, seconds)
                self._waiting = []
                return self._taken()

        def _is_idle(self) -> bool:
            return not (self._is_at_work or self._waiting)

        def _taken(self) -> Any:
            done, self._done = self._done, []
            return done, self._is_at_work + len(self._waiting), time.monotonic() - self._began

        def _get_ready(self, call_context: list[Any], own: Any) -> None:
            sys.path.extend(path for path in self._paths if path not in sys.path)
            for reference in call_context:
                if reference not in self._given:
                    self._received(reference)()
                    self._given.add(reference)
            if own is not None:
                for unpack in pickle.loads(own[0], buffers=own[1]):
                    unpack()
            if self._call is None:
                self._call, self._announce = map(self._received, self._app)

        def _received(self, reference: Any) -> Any:
            try:
                return ray.get(reference)
            except OSError as error:  # the process has lost its node, and ends with it
                raise ConnectionAbortedError(str(error)) from error

        def _serve(self) -> None:
            """Make the waiting calls in an endless loop, in the worker thread."""
            size = 0
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting)
                    announced = list[Any]()
                    if self._ahead == 0:
                        # The calls that follow are announced as far as they are likely to be made.
                        fit = self._seconds / self._pace if self._pace else 1
                        size = self._ahead = max(1, min(most, int(fit), len(self._waiting)))
                        announced, began = self._waiting[:size], time.monotonic()
                    call = self._waiting.pop(0)
                    self._ahead, self._is_at_work = self._ahead - 1, True
                    self._changed.notify_all()
                outcome = self._outcome(call, announced)
                with self._changed:
                    self._done.append(outcome)
                    self._is_at_work = False
                    if outcome[-1] is not None:
                        self._waiting = []
                    if self._ahead == 0 or not self._waiting:
                        self._pace, self._ahead = (time.monotonic() - began) / (size - self._ahead), 0
                    self._changed.notify_all()

        def _outcome(self, call: Any, announced: list[Any]) -> Any:
            message, context = call
            try:
                if self._announce is not None and announced:
                    self._announce(announced)
                reply = self._call(message=message, context=context)
                (light,), holes, arrays = take_out([reply])
                return written(light, holes, context), [np.frombuffer(array.data, np.uint8) for array in arrays], None
            except SystemExit as ended:
                return nothing, [], f"it ended itself with status {ended.code}"
            except Exception as error:
                return nothing, [], str(error) or type(error).__name__

    return ray.remote(ClientProcess)
