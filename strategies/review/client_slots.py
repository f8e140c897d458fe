"""Seats for the clients of an app: its strategy is started as the app would start it, and sees all its clients."""

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
    """A grid with many clients, of which those asked in a round are seated in the order of asking.

    The client that a strategy asks first is the one whose data differ: the strategy samples as usual, and this client
    takes part in every round, because a claim that does not rely on sampling has to hold for whoever was sampled.
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
        """Send messages to the seats of the clients that are asked; a client without a seat does not answer."""
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
        """Return the replies of the clients that were asked."""
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
    """An app's strategy, started as the app would start it, with clients in seats."""

    start: StrategyStart
    nodes: int
    seats: int
    most: dict[str, int] = field(default_factory=dict)

    def made(self) -> Strategy:
        """Return the strategy as it was before the training, whose `start` seats the clients."""
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
