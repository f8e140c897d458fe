"""Clients in another process, which know nothing but what a message and their context bring: as on Ray, without one."""

import multiprocessing
import threading
from multiprocessing.connection import Connection

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from ray import cloudpickle


def serve(calls: Connection) -> None:
    """Answer client calls until there are no more; a context is sent back, for a call may have changed its state."""
    import torch

    import experiments  # noqa: F401  # sets the environment before Flower is imported
    from clients.app import app

    torch.set_num_threads(1)
    while True:
        try:
            message, context = cloudpickle.loads(calls.recv_bytes())
        except EOFError:
            return
        try:
            outcome = (app(message=message, context=context), context)
        except Exception as error:  # the caller is to raise it
            outcome = error
        calls.send_bytes(cloudpickle.dumps(outcome))


class AppElsewhere(ClientApp):
    """The app of all clients, every call of which is made in one other process."""

    def __init__(self) -> None:
        super().__init__()
        processes = multiprocessing.get_context("spawn")
        self._calls, theirs = processes.Pipe()
        self._process = processes.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._lock = threading.Lock()
        self.calls = 0

    def __call__(self, message: Message, context: Context) -> Message:
        """Make a call."""
        with self._lock:
            self._calls.send_bytes(cloudpickle.dumps((message, context)))
            outcome = cloudpickle.loads(self._calls.recv_bytes())
            self.calls += 1
        if isinstance(outcome, Exception):
            raise outcome
        reply, after = outcome
        context.state = after.state
        return reply

    def end(self) -> None:
        """End the process."""
        self._calls.close()
        self._process.join(10)
