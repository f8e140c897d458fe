"""The inquiry that shows each release to the insiders of the game of membership, all of whom one client plays."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Message

from fl_audit.arrays import Floats
from fl_audit.game.columns import Columns
from fl_audit.game.public import PublicGame
from fl_audit.protocol import Key
from fl_audit.worlds import WorldBatch
from strategies.contributors import Challenger
from strategies.inquiries import More
from strategies.insider_inquiry import InsiderInquiry
from strategies.replies import Answer, read_array


class TargetInquiry(InsiderInquiry):
    """Shows releases as `InsiderInquiry` does, and tells who is in. What comes back is about every target.

    Each target's insider knows all coins but that one. A client who plays all insiders is told all coins. In the game
    of reconstruction one insider weighs all candidates, and is told nothing of them.

    Parameters
    ----------
    public, insiders, batches
        As for `InsiderInquiry`.
    challenger
        Knows who is in.
    """

    def __init__(
        self,
        public: PublicGame,
        insiders: Mapping[int, Sequence[int]],
        batches: Sequence[WorldBatch],
        challenger: Challenger,
    ) -> None:
        super().__init__(public, insiders, batches)
        self._challenger = challenger
        self._log_odds: dict[str, Floats] = {}
        self._squares: dict[str, Floats] = {}

    def _told(self, batch: WorldBatch) -> More:
        if self._public.exactly_one:
            return {}  # the one insider has to find out which candidate is in
        return {Key.MEMBERSHIP: self._challenger.membership(batch.worlds).pack()}

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of what a round says of every target.

        Raises
        ------
        FederationError
            If the insider did not send it.
        """
        sizes = {batch.name: batch.count for batch in self._batches}
        for answer in self.answers(exchange):
            shape = (sizes[answer.batch], self._public.targets)
            added, signal = (
                read_array(found[answer], key, shape, np.float64, answer.client, exchange - 1).astype(np.float64)
                for key in (Key.LOG_ODDS, Key.LOCAL_SENSITIVITY)
            )
            self._log_odds[answer.batch] = self._log_odds.get(answer.batch, np.zeros(shape)) + added
            self._squares[answer.batch] = self._squares.get(answer.batch, np.zeros(shape)) + signal**2

    def columns(self, batch: WorldBatch) -> Columns:
        """Return the log-odds of every target after the last round, and mu of all rounds together."""
        log_odds, mu = self._log_odds[batch.name], np.sqrt(self._squares[batch.name])
        return Columns(targets={"log_odds": log_odds, "mu": mu})
