"""A Flower grid that sends messages to the pool of client processes."""

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.superlink.grid import InMemoryGrid

from fl_audit.runs.cluster.call_errors import CallError
from fl_audit.runs.cluster.call_scheduling import CallScheduler, Outcome
from fl_audit.runs.cluster.pool import ClientPool
from fl_audit.runs.grid_messages import failed_reply, give_id
from fl_audit.strategies.flower_grids import DelegatingGrid


class RuntimeWithPool(Protocol):
    """The part of a patched runtime of Flower that a grid needs: the pool of client processes, and the nodes."""

    def clients(self) -> ClientPool: ...

    def partitions(self) -> dict[int, int]: ...

    def nodes_in_order(self) -> list[int] | None: ...


class ClientPoolFlowerGrid(DelegatingGrid):
    """A Flower grid that sends messages to a pool of client processes, several messages in one call of Ray.

    Parameters
    ----------
    grid
        Flower's own grid, which does everything else.
    pool
        Flower's patched runtime, which holds the pool of client processes.
    retries
        Number of times that a client call is repeated if its process dies, but not its machine.
    context
        The context of the ServerApp, with the run's id and settings.
    """

    def __init__(self, grid: InMemoryGrid, pool: RuntimeWithPool, retries: int, context: Context) -> None:
        super().__init__(grid)
        self._pool, self._retries = pool, retries
        self._contexts = _NodeContexts(pool, context)
        self._changed = threading.Condition()
        self._messages: dict[str, Message] = {}
        self._replies: dict[str, Message] = {}
        self._calls: CallScheduler | None = None

    def nodes_in_order(self) -> list[int] | None:
        """Return the node ids in the order of their partition numbers, or None while the nodes are not registered."""
        return self._pool.nodes_in_order()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Schedule messages, each addressed to a node id, and return a new message id for each, in the same order.

        Raises `FederationError` if the pool of client processes could not be started.
        """
        if self._calls is None:
            self._calls = CallScheduler(self._pool.clients(), self._retries, self._contexts, self._settle)
        sent = {give_id(message): message for message in messages}
        with self._changed:
            self._messages |= sent
        self._calls.add(sent)
        return list(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived to the messages with the given ids; each reply is returned only once."""
        with self._changed:
            # The loop is over the replies that have arrived. They are fewer than the messages that are asked for.
            asked = message_ids if isinstance(message_ids, set) else set(message_ids)
            return [self._replies.pop(identity) for identity in list(self._replies) if identity in asked]

    def wait_for_replies(self, seconds: float) -> None:
        """Wait up to the given seconds until there is a reply that `pull_messages` has not returned yet."""
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
            Longest time to wait, in seconds; None waits for all replies.
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
        """Store the replies for `pull_messages`; a failed call becomes an error reply."""
        with self._changed:
            messages = [self._messages.pop(identity) for identity, _ in outcomes]
        replies = dict[str, Message]()
        for message, (identity, outcome) in zip(messages, outcomes, strict=True):
            replies[identity] = failed_reply(message, outcome) if isinstance(outcome, CallError) else outcome
            give_id(replies[identity])
        with self._changed:
            self._replies |= replies
            self._changed.notify_all()


class _NodeContexts(dict[int, Context]):
    """The Flower context of each node, by node id; created when a node is first called."""

    def __init__(self, pool: RuntimeWithPool, server: Context) -> None:
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
