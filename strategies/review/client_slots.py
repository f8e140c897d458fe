"""Trials in which an app's strategy sees all its clients, although only as many run as it asks in a round.

The clients that run are called seats.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.strategies.black_box.audited_system import StrategyStart
from fl_audit.strategies.black_box.working_copy import moved_here
from fl_audit.strategies.flower_grids import FIRST_NODE, DelegatingGrid


class ClientSlotGrid(DelegatingGrid):
    """A grid with many clients on top of a grid with few seats, which answer for the clients asked in a round.

    The first client that the strategy asks gets the first seat, and so on. The first seat is the target, so the target
    takes part in every round although the strategy samples clients. This is allowed because a claim that does not rely
    on amplification by sampling has to hold for every sampled client.
    """

    def __init__(self, room: Grid, nodes: int, seats: int) -> None:
        super().__init__(room)
        self._nodes, self._seats = range(FIRST_NODE, FIRST_NODE + nodes), seats
        self._asked: dict[str, int] = {}
        self.most = {"train": 0, "evaluate": 0}

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def get_nodes(self) -> Any:
        return Grid.get_nodes(self)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send the messages to the seats, in their order; messages beyond the number of seats get no reply."""
        asked = list(messages)
        nodes = [message.metadata.dst_node_id for message in asked]
        for kind in self.most:
            count = sum(message.metadata.message_type.startswith(kind) for message in asked)
            self.most[kind] = max(self.most[kind], count)
        for place, message in enumerate(asked[: self._seats]):
            message.metadata.dst_node_id = FIRST_NODE + place
        numbers = list(self.grid.push_messages(asked[: self._seats]))
        self._asked |= dict(zip(numbers, nodes, strict=False))
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies of the seats, each with the node ID of the client that the strategy asked."""
        replies = []
        for number in message_ids:
            for reply in self.grid.pull_messages([number]):
                reply.metadata.__dict__["_src_node_id"] = self._asked[number]
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


@dataclass
class StrategyInSlots:
    """Factory of an app's strategy for trials: it starts with the app's arguments, and its clients are seats."""

    start: StrategyStart
    nodes: int
    seats: int
    most: dict[str, int] = field(default_factory=dict)

    def made(self) -> Strategy:
        """Return a fresh copy of the strategy, whose `start` puts a `ClientSlotGrid` around the grid."""
        # The strategy's generators continue from the global ones, which are seeded for the trials.
        draws = np.random.default_rng(np.random.randint(2**32, size=4))  # noqa: NPY002
        fresh = self.start.again(0, draws, moved_here)
        begin, arguments = fresh.strategy.start, {k: v for k, v in fresh.arguments.items() if k != "num_rounds"}

        def start(grid: Grid, arrays: ArrayRecord, num_rounds: int) -> Result:
            seated = ClientSlotGrid(grid, self.nodes, self.seats)
            self.most = seated.most
            return begin(grid=seated, initial_arrays=arrays, num_rounds=num_rounds, **arguments)

        fresh.strategy.start = start  # type: ignore[method-assign, assignment]
        return fresh.strategy
