"""The grids of games: one with somebody who listens to an app's own, and a room whose clients answer in process."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from strategies.flower_versions import make_messages_for

RUN_ID, FIRST_NODE = 1, 2
"""The run of a room, and the node of its first client."""
_SERVER = 1


class Ears(Protocol):
    """Who listens to the messages of a game."""

    def sends(self, message: Message) -> None:
        """Note a message that is about to be sent, and write on it."""

    def receives(self, reply: Message) -> None:
        """Note a reply, and take out what the app's strategy is not to see."""


class Room(Grid):
    """A grid whose clients are one function in this process.

    Parameters
    ----------
    clients
        How many there are.
    answer
        Turns a message into its reply; None where there is none.
    """

    def __init__(self, clients: int, answer: Callable[[Message], Message | None]) -> None:
        make_messages_for(RUN_ID, _SERVER)
        self._nodes, self._answer = range(FIRST_NODE, FIRST_NODE + clients), answer
        self._waiting: dict[str, Message | None] = {}

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """There is no run record."""
        raise NotImplementedError("games have no run record")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Have messages answered, and return the numbers under which the replies wait."""
        start = len(self._waiting)
        pushed = {str(start + place): self._answer(message) for place, message in enumerate(messages)}
        self._waiting |= pushed
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that wait."""
        found = [self._waiting.get(number) for number in message_ids]
        self._waiting |= dict.fromkeys(message_ids)
        return [reply for reply in found if reply is not None]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Have messages answered."""
        return [reply for message in messages if (reply := self._answer(message)) is not None]


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

    # What is not listened to.
    set_run = property(lambda self: self._grid.set_run)
    run = property(lambda self: self._grid.run)
    create_message = property(lambda self: self._grid.create_message)
    get_node_ids = property(lambda self: self._grid.get_node_ids)
    get_nodes = property(lambda self: self._grid.get_nodes)

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
