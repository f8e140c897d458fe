"""Where a review plays: an app's strategy, started as the app would start it, with clients in seats."""

import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.adjacency import Relation
from fl_audit.errors import InputError
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.seen import Seen
from fl_audit.randomness import Purpose, generator
from strategies.games.cast import LaboratoryGame
from strategies.games.files import WorkingCopy, apart, moved_here
from strategies.games.kinds import BY_NAME, Kind
from strategies.games.start import Start
from strategies.games.subject import Subject
from strategies.review.seats import Seated

_MOST_NAMES = 30
"""Most numbers that a strategy may ask of its clients."""


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
    subject
        What is played.
    claim
        What is said of it.

    Returns
    -------
    Subject
        With the names of these numbers.
    float, float
        Seconds of a game on the app's own model, and on a small one.
    bool
        Whether something writes files in a game.

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
