"""The inquiry that shows each release to the insiders of the game of membership, all of whom one client plays."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Message

from fl_audit.arrays import Floats
from fl_audit.evidence.belief.innovations import SMALLEST_SIGNAL
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
        self._sums: dict[tuple[str, str], Floats] = {}

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
        batches = {batch.name: batch for batch in self._batches}
        for answer in self.answers(exchange):
            batch = batches[answer.batch]
            shape = (batch.count, self._public.targets)
            whose = answer.client, exchange - 1
            told = {
                key: read_array(found[answer], key, shape, np.float64, *whose, finite).astype(np.float64)
                for key, finite in ((Key.LOG_ODDS, True), (Key.LOCAL_SENSITIVITY, True), (Key.SCORES, False))
            }
            signal = told[Key.LOCAL_SENSITIVITY]
            # Along other directions the noise has nothing to hide.
            hides = (signal >= SMALLEST_SIGNAL) & ~np.isnan(told[Key.SCORES])
            if self._public.exactly_one:  # who weighs candidates knows the noise along none but the one that is in
                hides &= self._challenger.membership(batch.worlds).is_in
            added = {
                "log_odds": told[Key.LOG_ODDS],
                "mu": signal**2,
                "noise_squares": np.where(hides, told[Key.SCORES] ** 2, 0.0),
                "noise_rounds": hides.astype(np.float64),
            }
            for name, values in added.items():
                at = answer.batch, name
                self._sums[at] = self._sums.get(at, np.zeros(shape)) + values

    def columns(self, batch: WorldBatch) -> Columns:
        """Return the log-odds of every target after the last round, and mu of all rounds together.

        Also the summed squares of the noise along its contributions, and how many these are: in the game of
        reconstruction of the candidate that is in alone.
        """
        sums = {name: values for (of, name), values in self._sums.items() if of == batch.name}
        return Columns(targets=sums | {"mu": np.sqrt(sums["mu"])})
