"""Flower's simulation runtime on the client pool; only this module uses internals of the runtime.

Flower's runtime starts Ray, registers the nodes and runs the ServerApp. Messages go directly to the client pool,
because the runtime would search all messages for each one, and make a separate Ray call for each.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend import raybackend
from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.simulation import run_simulation as run_simulation
from flwr.superlink.grid import InMemoryGrid as InMemoryGrid
from ray import cloudpickle

from fl_audit.clients.app import read_ahead
from fl_audit.experiments.runs.cluster.call_scheduling import CallScheduler, Outcome
from fl_audit.experiments.runs.cluster.pool import CallError, ClientPool
from fl_audit.strategies.errors import FederationError
from fl_audit.strategies.flower_grids import DelegatingGrid
from fl_audit.user_modules import PortableValue

_REPLACED: tuple[tuple[Any, str], ...] = (
    (raybackend, "RayBackend"),
    (vce_api, "_register_nodes"),
    (vce_api, "add_messages_to_queue"),
)
_REGISTER = vce_api._register_nodes
_SECONDS_TO_BUILD = 300.0
"""Time limit for the start of a Ray, after which a run gives up."""


class PoolBackend(raybackend.RayBackend):
    """Flower's Ray backend with our client pool, to which the grid of the run sends messages directly.

    Parameters
    ----------
    backend_config
        Configuration as Flower's backend takes it.
    built
        Function that is called with the pool, or with the exception that prevented it.
    """

    def __init__(self, backend_config: BackendConfig, built: Callable[[ClientPool | Exception], None]) -> None:
        self._built = built
        try:
            super().__init__(backend_config)
        except Exception as error:
            built(error)
            raise
        self.clients: ClientPool | None = None

    @property
    def num_workers(self) -> int:
        """Number of Flower's worker threads; it does not matter, because they never get a message."""
        return 1

    def is_worker_idle(self) -> bool:
        """Return True; the method is required by the interface, but never called."""
        return True

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        """Build the client pool, whose processes start when they are needed."""
        try:
            # Workers would look for our modules in the user's directory first; see `PortableValue`.
            app, ahead = (PortableValue(one, cloudpickle.dumps) for one in (app_fn(), read_ahead))
            self.clients = ClientPool(app, self.client_resources, ahead)
        except Exception as error:
            self._built(error)
            raise
        self._built(self.clients)

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        """Raise `AssertionError`: messages never reach this method, because they go to the pool directly."""
        raise AssertionError("messages go to the pool directly")

    def terminate(self) -> None:
        """End all processes."""
        if self.clients is not None:
            self.clients.close()
        super().terminate()


class PatchedRuntime:
    """Replacements for functions of Flower's runtime, which connect it with the client pool.

    Parameters
    ----------
    retries
        Number of times that a call is repeated whose process has died on a live node.
    """

    def __init__(self, retries: int = 2) -> None:
        self._retries = retries
        self._nodes: list[int] | None = None
        self._are_known = threading.Event()
        self._grids = list[PoolGrid]()
        self._is_built = threading.Event()
        self._found: ClientPool | Exception | None = None

    def build(self, config: BackendConfig) -> PoolBackend:
        """Return the backend for a configuration, in place of Flower's function that builds one."""
        return PoolBackend(config, self._note)

    def _note(self, found: ClientPool | Exception) -> None:
        self._found = found
        self._is_built.set()

    def register(self, num_nodes: int, state_factory: Any) -> dict[int, int]:
        """Register nodes as Flower does, and record them.

        Parameters
        ----------
        num_nodes
            Number of nodes to register, as in Flower.
        state_factory
            Factory of Flower's store, as in Flower.
        """
        found = _REGISTER(num_nodes, state_factory)
        self._note_nodes(found)
        return found

    def _note_nodes(self, partitions: Mapping[int, int]) -> None:
        self._nodes = sorted(partitions, key=partitions.__getitem__)
        self._are_known.set()

    def partitions(self) -> dict[int, int]:
        """Wait until all nodes are registered, and return the partition of each."""
        self._are_known.wait(_SECONDS_TO_BUILD)
        return {node: partition for partition, node in enumerate(self._nodes or ())}

    def hand_over(self, state: Any, queue: Any, nodes_mapping: Mapping[int, int], f_stop: threading.Event) -> None:
        """Record the nodes and wait for the end of the run; replaces Flower's loop that passes on messages.

        No messages are in Flower's store. Flower's own command registers the nodes before it imports this module, so in
        that case they become known only here.

        Parameters
        ----------
        state
            Flower's store.
        queue
            Queue in which messages wait for a client process.
        nodes_mapping
            Partition of every node.
        f_stop
            Event that is set when the run ends.
        """
        self._note_nodes(nodes_mapping)
        f_stop.wait()

    def nodes_in_order(self) -> list[int] | None:
        """Return the node of each partition; None until all are registered."""
        return self._nodes

    @property
    def failure(self) -> FederationError | None:
        """The error that prevented the pool from being built; None if it was built, or is not built yet."""
        return FederationError(str(self._found)) if isinstance(self._found, Exception) else None

    def clients(self) -> ClientPool:
        """Wait for the pool of client processes, and return it.

        Raises
        ------
        FederationError
            If the pool could not be built, or not in time.
        """
        self._is_built.wait(_SECONDS_TO_BUILD)
        if isinstance(self._found, ClientPool):
            return self._found
        said = str(self._found) if self._found is not None else f"Ray did not start within {_SECONDS_TO_BUILD:.0f} s"
        raise FederationError(said)

    def grid(self, grid: InMemoryGrid, context: Context) -> "PoolGrid":
        """Return the grid with which a server reaches the clients in the processes of the pool.

        Parameters
        ----------
        grid
            The grid that Flower's runtime passes to the server's app.
        context
            The context that Flower's runtime passes to the server's app.
        """
        # Kept here: what it refers to in Ray must not be let go, in another thread, while Ray is being shut down.
        self._grids.append(PoolGrid(grid, self, self._retries, context))
        return self._grids[-1]

    def end_calls(self) -> None:
        """Close the pool, which ends all calls immediately."""
        if isinstance(self._found, ClientPool):
            self._found.close()


class PoolGrid(DelegatingGrid):
    """A grid whose messages go to the client pool, where calls of several clients share one call of Ray.

    Parameters
    ----------
    grid
        Flower's own grid.
    pool
        Pool of client processes.
    retries
        Number of times that a call is repeated whose process died.
    context
        Context of the server.
    """

    def __init__(self, grid: InMemoryGrid, pool: PatchedRuntime, retries: int, context: Context) -> None:
        super().__init__(grid)
        self._pool, self._retries = pool, retries
        self._contexts = _Contexts(pool, context)
        self._changed = threading.Condition()
        self._messages: dict[str, Message] = {}
        self._replies: dict[str, Message] = {}
        self._calls: CallScheduler | None = None

    def nodes_in_order(self) -> list[int] | None:
        """Return the node of each partition; None until all are registered."""
        return self._pool.nodes_in_order()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Schedule messages for the clients to answer, and return the identifiers of the messages.

        Raises `FederationError` if there are no client processes.

        Parameters
        ----------
        messages
            The messages.
        """
        if self._calls is None:
            self._calls = CallScheduler(self._pool.clients(), self._retries, self._contexts, self._settle)
        sent = {str(uuid.uuid4()): message for message in messages}
        for identity, message in sent.items():
            message.metadata.__dict__["_message_id"] = identity
        with self._changed:
            self._messages |= sent
        self._calls.add(sent)
        return list(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived."""
        with self._changed:
            # Of the many that are asked for few are there.
            asked = message_ids if isinstance(message_ids, set) else set(message_ids)
            return [self._replies.pop(identity) for identity in list(self._replies) if identity in asked]

    def wait_for_replies(self, seconds: float) -> None:
        """Wait until there is a reply that has not been pulled, or until the time is over."""
        with self._changed:
            is_there = self._changed.wait_for(lambda: self._replies, seconds)
        if not is_there and self._calls is not None:
            self._calls.use_all_nodes()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return the replies that arrive within the timeout.

        Parameters
        ----------
        messages
            Messages to send.
        timeout
            Seconds to wait for replies; None waits for all.
        """
        waiting, found = set(self.push_messages(messages)), list[Message]()
        deadline = None if timeout is None else time.monotonic() + timeout
        while waiting and (deadline is None or time.monotonic() < deadline):
            self.wait_for_replies(1.0 if deadline is None else min(1.0, deadline - time.monotonic()))
            arrived = self.pull_messages(waiting)
            waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
            found += arrived
        return found

    def _settle(self, outcomes: Sequence[tuple[str, Outcome]]) -> None:
        """Store the replies to messages, given as pairs of message id and outcome; errors become error replies."""
        with self._changed:
            messages = [self._messages.pop(identity) for identity, _ in outcomes]
        replies = dict[str, Message]()
        for message, (identity, outcome) in zip(messages, outcomes, strict=True):
            if isinstance(outcome, CallError):
                error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"Message: {outcome}")
                replies[identity] = Message(error, reply_to=message)
            else:
                replies[identity] = outcome
            replies[identity].metadata.__dict__["_message_id"] = str(uuid.uuid4())
        with self._changed:
            self._replies |= replies
            self._changed.notify_all()


class _Contexts(dict[int, Context]):
    """The Flower context (state between calls) of each node, created when the node is first called."""

    def __init__(self, pool: PatchedRuntime, server: Context) -> None:
        super().__init__()
        self._pool, self._server = pool, server
        self._partitions: dict[int, int] = {}

    def __missing__(self, node: int) -> Context:
        if not self._partitions:
            self._partitions = self._pool.partitions()
        told = {"partition-id": self._partitions[node], "num-partitions": len(self._partitions)}
        run, settings = self._server.run_id, self._server.run_config
        self[node] = Context(run, node, UserConfig(told), RecordDict(), UserConfig(settings))
        return self[node]


_IN_PLACE = list[PatchedRuntime]()
"""The current pool, as the last element."""


def grid_on_pool(grid: InMemoryGrid, context: Context) -> "InMemoryGrid | PoolGrid":
    """Return the grid for a server: a `PoolGrid` if the client pool is in use, else Flower's own grid.

    Parameters
    ----------
    grid
        The grid that Flower's runtime passes to the server's app.
    context
        The context that Flower's runtime passes to the server's app.
    """
    return _IN_PLACE[-1].grid(grid, context) if _IN_PLACE else grid


@contextmanager
def pool_in_place(retries: int) -> Iterator[PatchedRuntime]:
    """Patch Flower's runtime to use the client pool inside the block."""
    replaced = tuple(getattr(module, name) for module, name in _REPLACED)
    try:
        yield put_pool_in_place(retries)
    finally:
        _put(*replaced)
        _IN_PLACE.pop()


def put_pool_in_place(retries: int = 2) -> PatchedRuntime:
    """Patch Flower's runtime to use the client pool in this process from now on.

    Parameters
    ----------
    retries
        Number of times that a call is repeated whose process has died on a live node.
    """
    pool = PatchedRuntime(retries)
    _IN_PLACE.append(pool)
    _put(pool.build, pool.register, pool.hand_over)
    return pool


def _put(*values: Any) -> None:
    for (module, name), value in zip(_REPLACED, values, strict=True):
        setattr(module, name, value)
