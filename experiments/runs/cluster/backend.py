"""Flower's simulation runtime on the client pool; whatever of the runtime's insides is touched, is touched here."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, Queue, SimpleQueue
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend import raybackend
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig

from fl_audit.experiments.runs.cluster.call_context import CallContext, compartment_of
from fl_audit.experiments.runs.cluster.pool import ClientPool
from fl_audit.user_modules import Portable

_CALLS_PER_SLOT = 2
_FEWEST_CALLS, _MOST_CALLS = 16, 1024
"""Calls that Flower's runtime hands over at the same time, a thread each: it would take no more than 32, and fewer on
a head with few cores, however large the cluster is."""

_REPLACED: tuple[tuple[Any, str], ...] = (
    (raybackend, "RayBackend"),
    (vce_api, "ThreadPoolExecutor"),
    (vce_api, "_register_nodes"),
    (vce_api, "add_messages_to_queue"),
)
_REGISTER, _HAND_OVER = vce_api._register_nodes, vce_api.add_messages_to_queue
_SECONDS_BETWEEN_LOOKS = 0.1
"""After so long without a message it is looked whether the run has ended."""


class PoolBackend(raybackend.RayBackend):
    """Flower's Ray backend with another pool of processes.

    Parameters
    ----------
    backend_config, retries
        The configuration, as Flower's backend takes it, and the retries, as `ClientPool` takes them.
    """

    def __init__(self, backend_config: BackendConfig, retries: int = 2) -> None:
        super().__init__(backend_config)
        self._retries = retries
        self._call_context = CallContext()
        self.clients: ClientPool | None = None

    @property
    def num_workers(self) -> int:
        """How many calls Flower hands over at the same time."""
        assert self.clients is not None
        return min(_MOST_CALLS, max(_FEWEST_CALLS, _CALLS_PER_SLOT * self.clients.capacity))

    def is_worker_idle(self) -> bool:
        """Flower never asks."""
        return True

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        """Start no process yet: they start when they are needed."""
        from ray import cloudpickle

        # Workers would look for our modules in the user's directory first; see `Portable`.
        self.clients = ClientPool(Portable(app_fn(), cloudpickle.dumps), self.client_resources, self._retries)

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        """Run a client call."""
        assert self.clients is not None
        call_context = self._call_context.of(message, context)
        return self.clients.call(compartment_of(message, context), message, context, call_context)

    def terminate(self) -> None:
        """End all processes."""
        if self.clients is not None:
            self.clients.close()
        super().terminate()


class PoolInPlace:
    """What Flower's runtime uses while the client pool is in place; `retries` are those of `ClientPool`."""

    def __init__(self, retries: int) -> None:
        self._retries, self._built = retries, list[PoolBackend]()
        self._nodes: list[int] | None = None
        self._written = SimpleQueue[int]()

    def build(self, config: BackendConfig) -> PoolBackend:
        """Build the backend."""
        self._built.append(PoolBackend(config, self._retries))
        return self._built[-1]

    def register(self, num_nodes: int, state_factory: Any) -> dict[int, int]:
        """Register nodes as Flower does, and note them.

        Parameters
        ----------
        num_nodes, state_factory
            As of Flower's.
        """
        found = _REGISTER(num_nodes, state_factory)
        self._nodes = sorted(found, key=found.__getitem__)
        return found

    def watch(self, store: Any) -> None:
        """Note from now on to which nodes messages are written that Flower's store of messages accepts."""
        keep: Callable[[Message], str | None] = store.store_message_ins

        def kept(message: Message) -> str | None:
            identity = keep(message)
            if identity is not None:
                self._written.put(message.metadata.dst_node_id)
            return identity

        store.store_message_ins = kept

    def hand_over(
        self, state: Any, queue: "Queue[Message]", nodes_mapping: Mapping[int, int], f_stop: threading.Event
    ) -> None:
        """Hand every message of a watched store over as soon as it is written, until the run ends.

        Flower's runtime asks for one message to each node, ten times a second, and for each node its store checks all
        messages there are. With ten thousand nodes that takes forever, and with ten it is what a short round waits for.

        Parameters
        ----------
        state, queue
            The store, and where messages wait for a client process.
        nodes_mapping
            The partition of every node; it is not needed.
        f_stop
            Set when the run ends.
        """
        while not f_stop.is_set():
            with suppress(Empty):
                for message in state.get_message_ins(self._written.get(timeout=_SECONDS_BETWEEN_LOOKS), limit=1):
                    queue.put(message)

    def nodes_in_order(self) -> list[int] | None:
        """Return the node of each partition, once all are registered."""
        return self._nodes

    def end_calls(self) -> None:
        """End all calls at once."""
        for backend in self._built:
            if backend.clients is not None:
                backend.clients.close()


@contextmanager
def pool_in_place(retries: int) -> Iterator[PoolInPlace]:
    """Have Flower's runtime use the client pool inside the block."""
    replaced, pool = tuple(getattr(module, name) for module, name in _REPLACED), PoolInPlace(retries)
    _put(pool.build, partial(ThreadPoolExecutor, _MOST_CALLS), pool.register, pool.hand_over)
    try:
        yield pool
    finally:
        _put(*replaced)


def put_pool_in_place() -> None:
    """Have Flower's runtime use the client pool from now on in this process."""
    _put(PoolBackend, partial(ThreadPoolExecutor, _MOST_CALLS), _REGISTER, _HAND_OVER)


def _put(*values: Any) -> None:
    for (module, name), value in zip(_REPLACED, values, strict=True):
        setattr(module, name, value)
