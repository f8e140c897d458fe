"""Which clients of an app sit in a game: whoever a strategy asks first in a round is the one whose data differ."""

from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp import Grid

from strategies.games.grid import FIRST_NODE

USUAL_NODES = 10  # clients of a simulation of Flower's unless another number is named


class Seated(Grid):
    """A grid with many clients, of which those that are asked in a round are seated in the order of asking.

    A strategy samples clients as it does, and the client that differs takes part in every round: what is claimed
    without the help of sampling has to hold for whoever was sampled.

    Parameters
    ----------
    room
        Where the seats are.
    nodes
        How many clients the strategy sees.
    seats
        How many of them can be asked at once.
    """

    def __init__(self, room: Grid, nodes: int, seats: int) -> None:
        self._room, self._nodes, self._seats = room, range(FIRST_NODE, FIRST_NODE + nodes), seats
        self._asked: dict[str, int] = {}
        self.most = {"train": 0, "evaluate": 0}

    # What is not about nodes.
    set_run = property(lambda self: self._room.set_run)
    run = property(lambda self: self._room.run)
    create_message = property(lambda self: self._room.create_message)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids of all clients."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to the seats of those that are asked; who finds no seat does not answer."""
        asked = list(messages)
        nodes = [message.metadata.dst_node_id for message in asked]
        for kind in self.most:
            count = sum(message.metadata.message_type.startswith(kind) for message in asked)
            self.most[kind] = max(self.most[kind], count)
        for place, message in enumerate(asked[: self._seats]):
            message.metadata.dst_node_id = FIRST_NODE + place
        numbers = list(self._room.push_messages(asked[: self._seats]))
        self._asked |= dict(zip(numbers, nodes, strict=False))
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies, from those that were asked."""
        replies = []
        for number in message_ids:
            for reply in self._room.pull_messages([number]):
                reply.metadata.__dict__["_src_node_id"] = self._asked[number]
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return their replies."""
        return self.pull_messages(self.push_messages(messages))
