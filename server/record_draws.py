"""What the owners' draws tell of one record: measured as an insider would who sees the randomised record itself.

Only a simulation can measure it: the seeds are the owners' secrets, and the challenger of a simulation draws them all.
"""

import numpy as np

from fl_audit.arrays import Floats
from fl_audit.game.columns import Columns
from fl_audit.game.game import Game
from fl_audit.game.randomised import randomised_records
from fl_audit.game.record_pair import PlacedRecord, record_pair
from fl_audit.worlds import WorldBatch
from strategies.contributors import Challenger

OF_FIRST, OF_SECOND = "record_log_odds", "other_log_odds"
"""Columns of the table of worlds: log-odds of the first record against the second, seen what became of either."""


class RecordDraws:
    """Weighs, in every world, what became of the two records of `record_pair`.

    Parameters
    ----------
    game
        The game, with a randomiser.
    challenger
        Tells the owners' seeds.
    """

    def __init__(self, game: Game, challenger: Challenger) -> None:
        self._game, self._challenger = game, challenger
        self._pair = record_pair(game)

    def columns(self, batch: WorldBatch) -> Columns:
        """Return the log-odds of the first record against the second, where either was randomised, (worlds,)."""
        if self._pair is None:
            return Columns()
        places = {OF_FIRST: self._pair.first, OF_SECOND: self._pair.second}
        return Columns(worlds={name: self._weighed(batch, record) for name, record in places.items()})

    def _weighed(self, batch: WorldBatch, record: PlacedRecord) -> Floats:
        game, pair = self._game, self._pair
        assert pair is not None, "asked only where there is a pair"
        assert game.public.randomiser is not None, "asked only where records are randomised"
        seed, found = self._challenger.noise_seed(record.client), np.empty(batch.count)
        for row, world in enumerate(batch.worlds):
            told = randomised_records(game, record.client, seed, world, record.place + 1)[-1:]
            found[row] = game.public.randomiser.log_odds(told, pair.first.features, pair.second.features)[0]
        return found
