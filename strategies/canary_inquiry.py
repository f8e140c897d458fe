"""The inquiry that shows each release to an observer, who reads it along the directions of canaries and decoys."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Message

from fl_audit.arrays import Floats
from fl_audit.game.canaries import directions_read, parts
from fl_audit.game.columns import Columns
from fl_audit.game.game import Game
from fl_audit.game.private_training import private_steps
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.protocol import Key
from fl_audit.worlds import WorldBatch
from strategies.contributors import Challenger
from strategies.inquiries import More
from strategies.insider_inquiry import InsiderInquiry
from strategies.replies import Answer, read_array

_TRAIN = "train"


class CanaryInquiry(InsiderInquiry):
    """Shows releases as `InsiderInquiry` does, to one observer. What comes back is one score a direction.

    Parameters
    ----------
    game
        The game, with canaries.
    batches
        The batches that travel together.
    challenger
        Knows the coins, which the observer is not told.
    """

    def __init__(self, game: Game, batches: Sequence[WorldBatch], challenger: Challenger) -> None:
        super().__init__(game.public, {game.insider: ()}, batches)
        self._game, self._challenger = game, challenger
        self._trains_privately = isinstance(game.public.law.contribution, PrivateTraining)
        self._scores: dict[str, list[Floats]] = {batch.name: [] for batch in batches}
        self._times: dict[str, list[Floats]] = {batch.name: [] for batch in batches}

    def _told(self, batch: WorldBatch) -> More:
        return {Key.WORLDS: list(batch.worlds)}

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of the scores, and of how many steps of private training took each canary.

        Raises
        ------
        FederationError
            If somebody did not send them.
        """
        public = self._public
        for batch in self._batches:
            if exchange <= public.rounds:
                self._times[batch.name].append(self._taken(batch, exchange, found))
            if self._asks(exchange):
                shape, observer = (batch.count, directions_read(public)), self._game.insider
                reply = next(found[one] for one in self.answers(exchange) if one.batch == batch.name)
                scores = read_array(reply, Key.CANARIES, shape, np.float64, observer, exchange - 1)
                self._scores[batch.name].append(scores.astype(np.float64))

    def _taken(self, batch: WorldBatch, server_round: int, found: Mapping[Answer, Message]) -> Floats:
        """Return how often each canary that is in went into a round, (worlds, canaries)."""
        shape, victim = (batch.count, self._public.canaries), self._game.victim
        if not self._trains_privately:
            return np.ones(shape)
        sent = found[Answer(victim, _TRAIN, batch.name)]
        return read_array(sent, Key.TIMES, shape, np.float64, victim, server_round).astype(np.float64)

    def columns(self, batch: WorldBatch) -> Columns:
        """Return every score, whether its canary was in, and how much of it the score then holds."""
        public, steps = self._public, 1
        if self._trains_privately:
            steps = private_steps(public.law).count(len(self._game.shards[self._game.victim]))
        rounds, decoys = range(1, public.rounds + 1), directions_read(public) - public.canaries
        coins = np.stack([self._challenger.coins(batch.worlds, one, public.canaries) for one in rounds], axis=1)
        held = parts(public, steps, np.stack(self._times[batch.name], axis=1))
        beside = ((0, 0), (0, 0), (0, decoys))
        return Columns(
            canaries={
                "is_in": np.pad(coins, beside),
                "part": np.pad(held, beside),
                "score": np.stack(self._scores[batch.name], axis=1),
            }
        )
