"""Flower grids, which carry messages between server and clients: delegating, recording, and in-process grids."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

_identity: Any = None
with suppress(ModuleNotFoundError):  # before 1.38 Flower has none
    from flwr.supercore.task_identity import TaskIdentity

    _identity = TaskIdentity

RUN_ID, FIRST_NODE = 1, 2  # the run ID of an in-process grid, and the node ID of its first client
_SERVER = 1


class DelegatingGrid(Grid):
    """Base class of grids that wrap another grid; methods that are not overridden call the wrapped grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __getattr__(self, name: str) -> Any:
        # Methods that only some grids have.
        return getattr(self.grid, name)

    set_run = property(lambda self: self.grid.set_run)
    run = property(lambda self: self.grid.run)
    create_message = property(lambda self: self.grid.create_message)
    get_node_ids = property(lambda self: self.grid.get_node_ids)
    get_nodes = property(lambda self: self.grid.get_nodes)
    push_messages = property(lambda self: self.grid.push_messages)
    pull_messages = property(lambda self: self.grid.pull_messages)
    send_and_receive = property(lambda self: self.grid.send_and_receive)


def make_messages_for(run: int, node: int) -> None:
    """Set the run and the node in whose name this process creates messages, as Flower from 1.38 on requires.

    Parameters
    ----------
    run
        ID of the Flower run to which the messages belong.
    node
        ID of the Flower node that sends the messages.
    """
    # Flower makes messages only in a process that is a task of a run.
    if _identity is not None:
        _identity.task_id, _identity.run_id, _identity.node_id = 1, run, node


class MessageInterceptor(Protocol):
    """Interface of an object that reads, and may change, all messages between server and clients."""

    def record_sent(self, message: Message) -> None:
        """Record a message before it is sent; an implementation may also add a tag for the receiver to the message."""

    def record_received(self, reply: Message) -> None:
        """Record a reply, and remove the audit's own data from it before the strategy sees it."""


class SingleRunGrid(Grid):
    """Base class of grids that have only one run, and create messages without Flower's runtime."""

    def set_run(self, run: Run) -> None:
        """Do nothing, because the grid has only one run."""

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new message with the given content and destination.

        Parameters
        ----------
        content
            Records that the message carries.
        message_type
            Type of the message, for example "train".
        dst_node_id
            Id of the node that answers the message.
        group_id
            Group of the message, as in Flower.
        ttl
            Time to live in seconds; None for Flower's default.
        """
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)


class InProcessGrid(SingleRunGrid):
    """A grid whose clients are simulated in this process by one function, which returns a message's reply or None."""

    def __init__(self, clients: int, answer: Callable[[Message], Message | None]) -> None:
        make_messages_for(RUN_ID, _SERVER)
        self._nodes, self._answer = range(FIRST_NODE, FIRST_NODE + clients), answer
        self._waiting: dict[str, Message | None] = {}

    @property
    def run(self) -> Run:
        """Raise `NotImplementedError`, because an in-process grid has no run record."""
        raise NotImplementedError("trials have no run record")

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer the messages at once; return their IDs, by which `pull_messages` returns the replies."""
        start = len(self._waiting)
        pushed = {str(start + place): self._answer(message) for place, message in enumerate(messages)}
        self._waiting |= pushed
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = [self._waiting.get(number) for number in message_ids]
        self._waiting |= dict.fromkeys(message_ids)
        return [reply for reply in found if reply is not None]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return [reply for message in messages if (reply := self._answer(message)) is not None]


class RecordedGrid(DelegatingGrid):
    """A grid that wraps another grid, and shows each message and reply to a recorder."""

    def __init__(self, grid: Grid, recorder: MessageInterceptor) -> None:
        super().__init__(grid)
        self._recorder = recorder

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(self._written(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._read(self.grid.pull_messages(message_ids))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._read(self.grid.send_and_receive(self._written(messages), timeout=timeout))

    def _written(self, messages: Iterable[Message]) -> list[Message]:
        sent = list(messages)
        for message in sent:
            self._recorder.record_sent(message)
        return sent

    def _read(self, replies: Iterable[Message]) -> list[Message]:
        read = list(replies)
        for reply in read:
            self._recorder.record_received(reply)
        return read
