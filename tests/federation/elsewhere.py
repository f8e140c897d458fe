"""Clients in other processes that know only what a call brings, as on Ray, but without Ray."""

import multiprocessing
import threading
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from ray import cloudpickle

from fl_audit.runs.cluster.process_data_and_code import compartment_of, parts_of

PROCESSES = multiprocessing.get_context("forkserver")
"""Each process is a copy of one that has imported what clients need and has done nothing: importing takes seconds."""
PROCESSES.set_forkserver_preload(["fl_audit.experiments", "fl_audit.clients.app", "ray.cloudpickle"])


def serve(calls: Connection) -> None:
    """Answer client calls until there are no more; the context is sent back, because a call may change its state."""
    import torch

    import fl_audit.experiments  # noqa: F401  # sets the environment before Flower is imported
    from fl_audit.clients.app import app
    from fl_audit.data import catalogue

    def unread(spec: object) -> None:
        raise AssertionError("a client reads no files of data")

    catalogue._load = unread  # type: ignore[assignment]
    torch.set_num_threads(1)
    while True:
        try:
            call_context, message, context = cloudpickle.loads(calls.recv_bytes())
        except EOFError:
            return
        try:
            for unpack in call_context:
                unpack()
            outcome = (app(message=message, context=context), context)
        except Exception as error:  # the caller is to raise it
            outcome = error
        calls.send_bytes(cloudpickle.dumps(outcome))


class _SentFunction:
    """A function of a module that another process cannot import: it is pickled with its code."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return cloudpickle.loads, (cloudpickle.dumps(self.function),)


class _Compartment:
    """A process, with the keys of all parts that it has been sent."""

    def __init__(self) -> None:
        self.calls, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=_SentFunction(serve), args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.given: set[Hashable] = set()


class AppElsewhere(ClientApp):
    """App that makes every client call in another process, one process for each compartment."""

    def __init__(self) -> None:
        super().__init__()
        self._compartments: dict[int, _Compartment] = {}
        self._lock = threading.Lock()
        self.calls = 0

    def __call__(self, message: Message, context: Context) -> Message:
        """Make a client call in the process of its compartment."""
        with self._lock:
            number = compartment_of(message, context)
            pieces = parts_of(message, context)
            if number not in self._compartments:
                self._compartments[number] = _Compartment()
            there = self._compartments[number]
            call_context = [packed() for key, packed in pieces if key not in there.given]
            there.given |= {key for key, _ in pieces}
            there.calls.send_bytes(cloudpickle.dumps((call_context, message, context)))
            outcome = cloudpickle.loads(there.calls.recv_bytes())
            self.calls += 1
        if isinstance(outcome, Exception):
            raise outcome
        reply, after = outcome
        context.state = after.state
        return reply

    def end(self) -> None:
        """End all processes."""
        for compartment in self._compartments.values():
            compartment.process.kill()
            compartment.process.join()
            compartment.calls.close()
