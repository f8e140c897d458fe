"""Adaptation of Flower's simulation runtime, which makes it use our pool of client processes.

Flower's runtime starts Ray, registers the nodes and runs the ServerApp. The messages to clients bypass the runtime,
because it would search all messages for each one, and make a separate Ray call for each. Only this module changes
internals of the runtime.
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
    """Flower's Ray backend with our pool of client processes, to which the server's grid sends messages directly.

    Parameters
    ----------
    backend_config
        Configuration as Flower's backend takes it.
    built
        Function that is called once with the pool, or with the exception that prevented its start.
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
        """Return 1, the number of Flower's worker threads, which never get a message."""
        return 1

    def is_worker_idle(self) -> bool:
        """Return True; Flower's interface requires this method, but it is never called."""
        return True

    def build(self, app_fn: Callable[[], ClientApp]) -> None:
        """Build the pool of client processes; each process starts when it is first needed.

        Parameters
        ----------
        app_fn
            Function that returns the ClientApp.
        """
        try:
            # Workers would look for our modules in the user's directory first; see `PortableValue`.
            app, ahead = (PortableValue(one, cloudpickle.dumps) for one in (app_fn(), read_ahead))
            self.clients = ClientPool(app, self.client_resources, ahead)
        except Exception as error:
            self._built(error)
            raise
        self._built(self.clients)

    def process_message(self, message: Message, context: Context) -> tuple[Message, Context]:
        """Raise `AssertionError`, because messages go to the pool directly and must never reach this method."""
        raise AssertionError("messages go to the pool directly")

    def terminate(self) -> None:
        """End all client processes."""
        if self.clients is not None:
            self.clients.close()
        super().terminate()


class PatchedRuntime:
    """Functions that take the place of parts of Flower's runtime, so that messages go to our pool of client processes.

    Parameters
    ----------
    retries
        Number of times that a client call is repeated after its process has died, while the machine of the process
        lives.
    """

    def __init__(self, retries: int = 2) -> None:
        self._retries = retries
        self._nodes: list[int] | None = None
        self._are_known = threading.Event()
        self._grids = list[PoolGrid]()
        self._is_built = threading.Event()
        self._found: ClientPool | Exception | None = None

    def build(self, config: BackendConfig) -> PoolBackend:
        """Return a Ray backend with the pool of client processes; replaces Flower's function for backends.

        Parameters
        ----------
        config
            Flower's configuration of the backend.
        """
        return PoolBackend(config, self._note)

    def _note(self, found: ClientPool | Exception) -> None:
        self._found = found
        self._is_built.set()

    def register(self, num_nodes: int, state_factory: Any) -> dict[int, int]:
        """Register nodes with Flower, remember them, and return the partition number of each node id.

        Parameters
        ----------
        num_nodes
            Number of nodes to register.
        state_factory
            Factory of the store in which Flower keeps nodes and messages.
        """
        found = _REGISTER(num_nodes, state_factory)
        self._note_nodes(found)
        return found

    def _note_nodes(self, partitions: Mapping[int, int]) -> None:
        self._nodes = sorted(partitions, key=partitions.__getitem__)
        self._are_known.set()

    def partitions(self) -> dict[int, int]:
        """Return the partition number of each Flower node, by node id, after waiting until all nodes are registered.

        The result is empty if no nodes are registered within 300 seconds.
        """
        self._are_known.wait(_SECONDS_TO_BUILD)
        return {node: partition for partition, node in enumerate(self._nodes or ())}

    def hand_over(self, state: Any, queue: Any, nodes_mapping: Mapping[int, int], f_stop: threading.Event) -> None:
        """Remember the nodes, then wait for the end of the run; replaces the loop in which Flower passes on messages.

        The loop is not needed, because messages go to the pool directly. If the run was started by Flower's own
        command, this is the first place that learns of the nodes.

        Parameters
        ----------
        state
            The store in which Flower keeps messages; not used.
        queue
            Flower's queue of messages to clients; not used.
        nodes_mapping
            The partition number of each node id.
        f_stop
            Event that is set when the run ends.
        """
        self._note_nodes(nodes_mapping)
        f_stop.wait()

    def nodes_in_order(self) -> list[int] | None:
        """Return the node ids in the order of their partition numbers, or None while the nodes are not registered."""
        return self._nodes

    @property
    def failure(self) -> FederationError | None:
        """The error that prevented the start of the pool of client processes; None if there was no error so far."""
        return FederationError(str(self._found)) if isinstance(self._found, Exception) else None

    def clients(self) -> ClientPool:
        """Return the pool of client processes, after waiting until it is built.

        Raises
        ------
        FederationError
            If the pool could not be built, or was not built within 300 seconds.
        """
        self._is_built.wait(_SECONDS_TO_BUILD)
        if isinstance(self._found, ClientPool):
            return self._found
        said = str(self._found) if self._found is not None else f"Ray did not start within {_SECONDS_TO_BUILD:.0f} s"
        raise FederationError(said)

    def grid(self, grid: InMemoryGrid, context: Context) -> "PoolGrid":
        """Return a grid through which a server sends messages to the pool of client processes.

        Parameters
        ----------
        grid
            The grid that Flower's runtime passes to the ServerApp.
        context
            The context that Flower's runtime passes to the ServerApp.
        """
        # Kept here: what it refers to in Ray must not be let go, in another thread, while Ray is being shut down.
        self._grids.append(PoolGrid(grid, self, self._retries, context))
        return self._grids[-1]

    def end_calls(self) -> None:
        """Close the pool of client processes, which ends all client calls immediately."""
        if isinstance(self._found, ClientPool):
            self._found.close()


class PoolGrid(DelegatingGrid):
    """A Flower grid that sends messages to a pool of client processes, several messages in one call of Ray.

    Parameters
    ----------
    grid
        Flower's own grid, which does everything else.
    pool
        The patched runtime, which has the pool of client processes.
    retries
        Number of times that a client call is repeated after its process has died, while the machine of the process
        lives.
    context
        The context of the ServerApp, with the run's id and settings.
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
        """Return the node ids in the order of their partition numbers, or None while the nodes are not registered."""
        return self._pool.nodes_in_order()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Schedule messages to clients, and return a new message id for each message, in the same order.

        Raises `FederationError` if the pool of client processes could not be started.

        Parameters
        ----------
        messages
            Messages to clients, each addressed to a node id.
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
        """Return those replies to the given messages that have arrived; each reply is returned only once.

        Parameters
        ----------
        message_ids
            Ids of the messages, as `push_messages` returned them.
        """
        with self._changed:
            # Of the many that are asked for few are there.
            asked = message_ids if isinstance(message_ids, set) else set(message_ids)
            return [self._replies.pop(identity) for identity in list(self._replies) if identity in asked]

    def wait_for_replies(self, seconds: float) -> None:
        """Wait until there is a reply that `pull_messages` has not returned yet, but at most for the given time.

        Parameters
        ----------
        seconds
            Longest time to wait, in seconds.
        """
        with self._changed:
            is_there = self._changed.wait_for(lambda: self._replies, seconds)
        if not is_there and self._calls is not None:
            self._calls.use_all_nodes()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages to clients, and return the replies that arrive within the timeout.

        Parameters
        ----------
        messages
            Messages to clients, each addressed to a node id.
        timeout
            Longest time to wait for replies, in seconds; None waits until all replies have arrived.
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
        """Store the replies to messages for `pull_messages`; a failed client call becomes an error reply.

        Parameters
        ----------
        outcomes
            Pairs of a message id and the reply or failure of the client call.
        """
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
    """The Flower context of each node, by node id; created when a node is called for the first time."""

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
    """Return a grid that sends messages to the pool of client processes, or Flower's own grid if there is no pool.

    Parameters
    ----------
    grid
        The grid that Flower's runtime passes to the ServerApp.
    context
        The context that Flower's runtime passes to the ServerApp.
    """
    return _IN_PLACE[-1].grid(grid, context) if _IN_PLACE else grid


@contextmanager
def pool_in_place(retries: int) -> Iterator[PatchedRuntime]:
    """Make Flower's runtime use our pool of client processes while the block runs, and yield the patched runtime.

    Parameters
    ----------
    retries
        Number of times that a client call is repeated after its process has died, while the machine of the process
        lives.
    """
    replaced = tuple(getattr(module, name) for module, name in _REPLACED)
    try:
        yield put_pool_in_place(retries)
    finally:
        _put(*replaced)
        _IN_PLACE.pop()


def put_pool_in_place(retries: int = 2) -> PatchedRuntime:
    """Make Flower's runtime use our pool of client processes from now on, and return the patched runtime.

    Parameters
    ----------
    retries
        Number of times that a client call is repeated after its process has died, while the machine of the process
        lives.
    """
    pool = PatchedRuntime(retries)
    _IN_PLACE.append(pool)
    _put(pool.build, pool.register, pool.hand_over)
    return pool


def _put(*values: Any) -> None:
    for (module, name), value in zip(_REPLACED, values, strict=True):
        setattr(module, name, value)
