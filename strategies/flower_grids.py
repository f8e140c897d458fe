"""Flower grids that wrap another grid, and the interface of Flower's grids in all its versions."""

from abc import abstractmethod
from collections.abc import Collection, Iterable
from importlib import import_module
from typing import Any, Protocol

from flwr.app import Message
from flwr.serverapp import Grid


class PullingGrid(Grid):
    """Base class of grids, which meets the interface of all versions of Flower."""

    def pull_messages(  # type: ignore[override]  # the installed version has one of the two signatures
        self, reply_to_message_ids: Iterable[str] | None = None, *, message_ids: Iterable[str] | None = None
    ) -> list[Message]:
        """Return the replies that have arrived to the messages with the given ids; each is returned only once.

        Flower names the ids `message_ids` up to version 1.42, and `reply_to_message_ids` from 1.43 on.
        """
        identities = message_ids if reply_to_message_ids is None else reply_to_message_ids
        return self._pulled(
            identities if identities is None or isinstance(identities, Collection) else list(identities)
        )

    @abstractmethod
    def _pulled(self, identities: Collection[str] | None) -> list[Message]:
        """Return the replies to the messages with the given ids, or to all messages."""


def sent_ids(grid: Grid, messages: Iterable[Message]) -> list[str]:
    """Send messages, and return the ids of those that were sent: Flower returns None or "" for the others."""
    return [identity for identity in grid.push_messages(messages) if identity]


class DelegatingGrid(PullingGrid):
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
    send_and_receive = property(lambda self: self.grid.send_and_receive)

    def _pulled(self, identities: Collection[str] | None) -> list[Message]:
        grid: Any = self.grid  # only later versions accept no identities
        return list(grid.pull_messages() if identities is None else grid.pull_messages(identities))


def make_messages_for(run: int, node: int) -> None:
    """Set the run and the node in whose name this process creates messages, as Flower from 1.38 on requires."""
    # The only name of Flower that is not public: without it, 1.38 and later make messages only in a task of a run.
    try:
        identity: Any = import_module("flwr.supercore.task_identity").TaskIdentity
    except (ModuleNotFoundError, AttributeError):
        return
    identity.task_id, identity.run_id, identity.node_id = 1, run, node


class MessageInterceptor(Protocol):
    """Interface of an object that reads, and may change, all messages between server and clients."""

    def record_sent(self, message: Message) -> None:
        """Record a message before it is sent; an implementation may also add a tag for the receiver to the message."""

    def record_received(self, reply: Message) -> None:
        """Record a reply, and remove the audit's own data from it before the strategy sees it."""


class RecordedGrid(DelegatingGrid):
    """A grid that wraps another grid, and shows each message and reply to a recorder."""

    def __init__(self, grid: Grid, interceptor: MessageInterceptor) -> None:
        super().__init__(grid)
        self._recorder = interceptor

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(self._written(messages))

    def _pulled(self, identities: Collection[str] | None) -> list[Message]:
        return self._read(super()._pulled(identities))

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
