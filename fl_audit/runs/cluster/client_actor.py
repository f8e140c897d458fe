"""The client process: an actor of Ray that makes several client calls in one Ray call.

The Ray call ends after a time limit, so that one long client call does not delay the others. The process then returns
the results that it has, and the number of calls in progress. The remaining calls are given to other processes.

The calls in progress are the current call and the calls that were announced to the app together with the current one.
The app may already have computed the replies to announced calls. If calls in progress are not finished after a second
time limit, all but the current call are given to other processes, too.
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
from ray import cloudpickle

from fl_audit.runs.cluster import array_transport
from fl_audit.runs.cluster.array_transport import put_back, take_out

_AHEAD = 8
"""Largest number of calls announced at a time, so that the stacked models of clients stay in the cache."""


class CallReply(NamedTuple):
    """The result of one client call: the reply and the client's new context, or the message of a failure."""

    reply: Any
    context: Any
    failure: str | None


class CallReplies(NamedTuple):
    """Reply of one Ray call: results of finished client calls, and the number of client calls still in progress."""

    made: list[CallReply]
    under_way: int
    seconds: float = 0.0  # time since the Ray call began


@dataclass(frozen=True)
class ProcessCalls:
    """Client calls packed for a process, with the data and code that the process needs for them."""

    messages: list[Message]  # without their large arrays
    holes: list[Any]  # the empty arrays in the messages, each with the position of its bytes in `large`
    contexts: list[Context]  # Flower context of each call's client
    large: list[Any]  # the bytes of the empty arrays, or a `SharedArray` that has these bytes
    # Ray's references to functions that load the call context of many clients; a process calls each of them once.
    call_context: Sequence[Any] = ()
    # A pickle of functions that load the call context of these clients alone, and the functions' arrays; or None.
    own: tuple[bytes, list[Any]] | None = None


def _written(*values: Any) -> bytes:
    # Plain pickle is faster than the pickler of Ray, which calls Python code for each of the many objects of a message.
    return pickle.dumps(values, protocol=pickle.HIGHEST_PROTOCOL)


_NOTHING = _written(None, [], None)


class ClientActor:
    """The body of a client process.

    Parameters
    ----------
    paths
        Directories in which the process looks for modules, besides its own.
    app
        Two of Ray's references: to the ClientApp, and to a function or None. The function is called with the next calls
        before they are made.
    """

    def __init__(self, paths: list[str], app: list[Any]) -> None:
        self._paths, self._app, self._given = paths, app, set[Any]()
        self._call: Any = None
        self._announce: Any = None
        self._changed = threading.Condition()
        self._waiting: list[Any] = []  # calls that are not begun
        self._ahead = 0  # of these, those that were announced, and so may be worked out already
        self._done: list[Any] = []  # results of calls that nobody has asked for yet
        self._is_at_work = False
        self._began = 0.0
        self._pace = 0.0
        self._worker: Any = None

    def has_started(self) -> None:
        """Answer once the process has started."""

    def run(
        self, calls: bytes, single: Any, call_context: list[Any], own_context: Any, seconds: float, *large: Any
    ) -> Any:
        """Make client calls until a time limit; return the results, the number of unfinished calls, and the time
        taken.
        """
        messages, holes, contexts = pickle.loads(calls)
        try:
            shared = iter(large)
            put_back(holes, [next(shared) if value is None else value for value in single])
            self._get_ready(call_context, own_context)
        except ConnectionAbortedError:
            raise
        except Exception as error:
            return [(_NOTHING, [], str(error) or type(error).__name__)], 0, 0.0
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

    def wait_for_results(self, seconds: float | None) -> Any:
        """Wait for the client calls in progress, which an earlier call of `run` has started.

        Returns new results, the number of calls that are still in progress, and the seconds since `run` began.
        """
        with self._changed:
            self._changed.wait_for(self._is_idle, seconds)
            self._waiting = []
            return self._taken()

    def _is_idle(self) -> bool:
        return not (self._is_at_work or self._waiting)

    def _taken(self) -> Any:
        done, self._done = self._done, []
        return done, self._is_at_work + len(self._waiting), time.monotonic() - self._began

    def _get_ready(self, call_context: list[Any], own_context: Any) -> None:
        sys.path.extend(path for path in self._paths if path not in sys.path)
        for reference in call_context:
            if reference not in self._given:
                self._received(reference)()
                self._given.add(reference)
        if own_context is not None:
            for unpack in pickle.loads(own_context[0], buffers=own_context[1]):
                unpack()
        if self._call is None:
            self._call, self._announce = map(self._received, self._app)

    def _received(self, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except OSError as error:  # the process has lost its node, and ends with it
            raise ConnectionAbortedError(str(error)) from error

    def _serve(self) -> None:
        """Make the waiting client calls in an endless loop; the body of the worker thread."""
        size = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                announced = list[Any]()
                if self._ahead == 0:
                    # The calls that follow are announced as far as they are likely to be made.
                    fit = self._seconds / self._pace if self._pace else 1
                    size = self._ahead = max(1, min(_AHEAD, int(fit), len(self._waiting)))
                    announced = self._waiting[:size]
                    began = time.monotonic()
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
            return _written(light, holes, context), [np.frombuffer(array.data, np.uint8) for array in arrays], None
        except SystemExit as ended:
            return _NOTHING, [], f"it ended itself with status {ended.code}"
        except Exception as error:
            return _NOTHING, [], str(error) or type(error).__name__


def process_class() -> Any:
    """Return the Ray actor class of client processes.

    The code of the class is sent by value, because other machines may not have this module.
    """
    for module in (array_transport, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return ray.remote(ClientActor)
