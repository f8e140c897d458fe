"""Trials of an app in which its strategy sees all clients, although only a few clients are simulated.

The simulated clients are called seats. Each client that the strategy asks in a round is assigned to a seat, which
replies in its place. Clients that the strategy does not ask are never simulated.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.app_audits.black_box.audited_system import StrategyStartCall
from fl_audit.app_audits.black_box.working_copy import path_in_current_copy
from fl_audit.strategies.flower_grids import DelegatingGrid
from fl_audit.strategies.simulated_grid import FIRST_NODE, readdressed


class VirtualClientGrid(DelegatingGrid):
    """Grid that shows many clients to a strategy, and lets a few simulated clients, called seats, reply in their name.

    The first seat replies for the first client that the strategy asks in a round, and so on. The first seat is the
    target, which thus takes part in every round even if clients are sampled. Trials with this grid can test only a
    claim without amplification by sampling: such a claim must hold for every client that is sampled.
    """

    def __init__(self, room: Grid, nodes: int, seats: int) -> None:
        super().__init__(room)
        self._nodes, self._seats = range(FIRST_NODE, FIRST_NODE + nodes), seats
        self._nodes_of_messages: dict[str, int] = {}
        self.largest_requests = {"train": 0, "evaluate": 0}

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    def get_nodes(self) -> Any:
        return Grid.get_nodes(self)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to the simulated clients, one each, and return their IDs; further messages get no reply."""
        sent = list(messages)
        nodes = [message.metadata.dst_node_id for message in sent]
        for kind in self.largest_requests:
            count = sum(message.metadata.message_type.startswith(kind) for message in sent)
            self.largest_requests[kind] = max(self.largest_requests[kind], count)
        for index, message in enumerate(sent[: self._seats]):
            message.metadata.dst_node_id = FIRST_NODE + index
        numbers = list(self.grid.push_messages(sent[: self._seats]))
        self._nodes_of_messages |= dict(zip(numbers, nodes, strict=False))
        return numbers

    def _pulled(self, identities: Collection[str] | None) -> list[Message]:
        """Return the replies of the simulated clients, each under the node ID of the client that the strategy asked."""
        replies = list[Message]()
        for number in self._nodes_of_messages if identities is None else identities:
            arrived = self.grid.pull_messages([number])
            replies += [readdressed(reply, src_node_id=self._nodes_of_messages[number]) for reply in arrived]
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


@dataclass
class TrialStrategyFactory:
    """Factory of an app's strategy for trials on a `VirtualClientGrid`."""

    start: StrategyStartCall  # the app's strategy, and the arguments of its `start`
    nodes: int  # number of clients that the strategy sees
    seats: int  # number of simulated clients
    # Largest number of messages sent at once, for `train` and `evaluate`.
    largest_requests: dict[str, int] = field(default_factory=dict)

    def new_strategy(self) -> Strategy:
        """Return a copy of the app's strategy, whose `start` takes a grid, initial arrays and a number of rounds.

        `start` wraps the grid in a `VirtualClientGrid`, and passes all other arguments of the app.
        """
        # The strategy's generators continue from the global ones, which are seeded for the trials.
        draws = np.random.default_rng(np.random.randint(2**32, size=4))  # noqa: NPY002
        fresh = self.start.copy_for_trial(0, draws, path_in_current_copy)
        begin = fresh.strategy.start
        arguments = {k: v for k, v in fresh.arguments.items() if k != "num_rounds"}

        def start(grid: Grid, arrays: ArrayRecord, num_rounds: int) -> Result:
            seated = VirtualClientGrid(grid, self.nodes, self.seats)
            self.largest_requests = seated.largest_requests
            return begin(grid=seated, initial_arrays=arrays, num_rounds=num_rounds, **arguments)

        fresh.strategy.start = start  # type: ignore[method-assign, assignment]
        return fresh.strategy
