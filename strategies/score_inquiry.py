"""The inquiry that shows insiders each release where no likelihood ratio is known, and notes their scores."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Message

from fl_audit.arrays import Floats
from fl_audit.game.columns import Columns
from fl_audit.game.public import PublicGame
from fl_audit.protocol import Key
from fl_audit.worlds import WorldBatch
from strategies.insider_inquiry import InsiderInquiry
from strategies.replies import Answer, read_array


class ScoreInquiry(InsiderInquiry):
    """Shows releases as `InsiderInquiry` does. What comes back are scores, which are no log-odds.

    Parameters
    ----------
    public, insiders, batches
        As for `InsiderInquiry`.
    """

    def __init__(
        self, public: PublicGame, insiders: Mapping[int, Sequence[int]], batches: Sequence[WorldBatch]
    ) -> None:
        super().__init__(public, insiders, batches)
        self._scores: dict[tuple[int, str], list[Floats]] = {
            (client, batch.name): [] for client in insiders for batch in batches
        }

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of scores.

        Raises
        ------
        FederationError
            If an insider did not send them.
        """
        sizes = {batch.name: batch.count for batch in self._batches}
        for answer in self.answers(exchange):
            shape = (sizes[answer.batch],)
            array = read_array(found[answer], Key.SCORE, shape, np.float64, answer.client, exchange - 1)
            self._scores[answer.client, answer.batch].append(array.astype(np.float64))

    def columns(self, batch: WorldBatch) -> Columns:
        """Return the scores of the first insider by round and in total, and the totals of several."""
        by_insider = [np.stack(self._scores[client, batch.name], axis=1) for client in self._insiders]
        found = Columns(worlds={"score": by_insider[0].sum(axis=1)}, rounds={"score": by_insider[0]})
        if len(by_insider) == 1:
            return found
        totals = np.stack([one.sum(axis=1) for one in by_insider], axis=1)
        return found | Columns(insiders={"score": totals}, insider_clients=tuple(self._insiders))
