"""Where a review plays: an app's strategy, started as the app would start it, with clients in seats."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.adjacency import Relation
from fl_audit.errors import InputError
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.seen import Seen
from fl_audit.randomness import Purpose, generator
from strategies.games.campaign import LaboratoryGame
from strategies.games.files import WorkingCopy, apart, moved_here
from strategies.games.kinds import BY_NAME, Kind
from strategies.games.subject import Start, Subject
from strategies.grids import FIRST_NODE, GridAround

USUAL_NODES = 10  # clients of a simulation of Flower's unless another number is named
_MOST_NAMES = 30  # most numbers that a strategy may ask of its clients


class Seated(GridAround):
    """A grid with many clients, of which those that are asked in a round are seated in the order of asking.

    Whoever a strategy asks first is the client whose data differ: it samples as it does, and that one takes part in
    every round, since what is claimed without the help of sampling has to hold for whoever was sampled.
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
        """Send messages to the seats of those that are asked; who finds no seat does not answer."""
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
        """Return the replies, from those that were asked."""
        replies = []
        for number in message_ids:
            for reply in self.grid.pull_messages([number]):
                reply.metadata.__dict__["_src_node_id"] = self._asked[number]
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


@dataclass
class Seating:
    """An app's strategy, started as the app would start it, with clients in seats."""

    start: Start
    nodes: int
    seats: int
    most: dict[str, int] = field(default_factory=dict)

    def made(self) -> Strategy:
        """Return the strategy as it was before the training, whose `start` seats the clients."""
        # Where the generators of the strategy go on follows from the global ones, which are seeded for the games.
        draws = np.random.default_rng(np.random.randint(2**32, size=4))  # noqa: NPY002
        fresh = self.start.again(0, draws, moved_here)
        begin, arguments = fresh.strategy.start, {k: v for k, v in fresh.arguments.items() if k != "num_rounds"}

        def start(grid: Grid, arrays: ArrayRecord, num_rounds: int) -> Result:
            seated = Seated(grid, self.nodes, self.seats)
            self.most = seated.most
            return begin(grid=seated, initial_arrays=arrays, num_rounds=num_rounds, **arguments)

        fresh.strategy.start = start  # type: ignore[method-assign, assignment]
        return fresh.strategy


def rehearsed(subject: Subject, claim: StatedClaim) -> tuple[Subject, float, float, bool]:
    """Play until the strategy is content with the numbers that clients report; return how long games take.

    Parameters
    ----------
    subject, claim
        What is played, and what is said of it.

    Returns
    -------
    Subject, float, float, bool
        With the names of these numbers; seconds of a game on the app's own model, and on a small one; whether
        something writes files in a game.

    Raises
    ------
    InputError
        If no game can be played.
    """
    plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
    own = BY_NAME[f"{plain}, own model"] if subject.model is not None else BY_NAME[plain]
    copy = WorkingCopy(Path.cwd())
    for _ in range(_MOST_NAMES):
        seen, slow = _timed(subject, claim, own, copy)
        # The strategy asks for a number that our clients did not report, as its own do.
        missing = re.fullmatch(r"KeyError: '([^']+)'", seen.refusal or "")
        if missing is None or missing[1] in subject.metrics:
            break
        subject = replace(subject, metrics=(*subject.metrics, missing[1]))
    if seen.refusal is not None:
        raise InputError(f"the strategy cannot be played: it raised {seen.refusal}")
    quick = _timed(subject, claim, BY_NAME[plain], copy)[1]
    copy.remove()
    return subject, slow, quick, copy.was_written


def _timed(subject: Subject, claim: StatedClaim, kind: Kind, copy: WorkingCopy) -> tuple[Seen, float]:
    began = time.monotonic()
    with apart(copy, thoroughly=False):
        seen = LaboratoryGame(subject, claim, kind, True, generator(0, Purpose.LABORATORY)).play()
    return seen, time.monotonic() - began
