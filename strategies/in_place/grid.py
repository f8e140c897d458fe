"""A grid that lets the audit write on what is sent and read what comes back."""

from collections.abc import Iterable
from typing import Any, Protocol

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run


class Ears(Protocol):
    """Who listens to the messages of a game."""

    def sends(self, message: Message) -> None:
        """Note a message that is about to be sent, and write on it."""

    def receives(self, reply: Message) -> None:
        """Note a reply, and take out what the app's strategy is not to see."""


class HeardGrid(Grid):
    """A grid of Flower's with somebody who listens; all else is as without.

    Parameters
    ----------
    grid
        The grid.
    ears
        Who listens.
    """

    def __init__(self, grid: Grid, ears: Ears) -> None:
        self._grid, self._ears = grid, ears

    def __getattr__(self, name: str) -> Any:
        # What only some grids have.
        return getattr(self._grid, name)

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """Return the nodes."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._grid.push_messages(self._written(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        return self._read(self._grid.pull_messages(message_ids))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return their replies."""
        return self._read(self._grid.send_and_receive(self._written(messages), timeout=timeout))

    def _written(self, messages: Iterable[Message]) -> list[Message]:
        sent = list(messages)
        for message in sent:
            self._ears.sends(message)
        return sent

    def _read(self, replies: Iterable[Message]) -> list[Message]:
        read = list(replies)
        for reply in read:
            self._ears.receives(reply)
        return read
