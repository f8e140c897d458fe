"""The inquiry that shows the insider each release and notes what it says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from numpy.typing import NDArray

from fl_audit.adversaries.noise_meter import Residuals, column_names
from fl_audit.game.columns import Columns
from fl_audit.game.public import PublicGame
from fl_audit.game.seen import show
from fl_audit.packing import pack
from fl_audit.protocol import Key, Query
from fl_audit.worlds import WorldBatch
from strategies.inquiries import Transcript, WriteMessage
from strategies.replies import Answer, read_array

_OBSERVE = f"query.{Query.OBSERVE}"

Floats = NDArray[np.float64]


@dataclass
class Observed:
    """What the insider said of a batch, one array (worlds, ...) a round."""

    increments: list[Floats] = field(default_factory=list)
    local_sensitivity: list[Floats] = field(default_factory=list)
    residuals: list[Floats] = field(default_factory=list)


class InsiderInquiry:
    """Shows release i in exchange i + 1, while the clients work on the next round.

    Parameters
    ----------
    public
        The public game: what clients see of a round.
    insider
        Partition of the insider.
    batches
        The batches that travel together.
    tensors
        Names of the model's parameter tensors.
    directions
        Number of public directions along which noise is measured.
    """

    def __init__(
        self,
        public: PublicGame,
        insider: int,
        batches: Sequence[WorldBatch],
        tensors: tuple[str, ...],
        directions: int,
    ) -> None:
        self._public = public
        self._insider = insider
        self._batches = batches
        self._tensors = tensors
        self._columns = len(column_names(tensors, directions))
        self._observed = {batch.name: Observed() for batch in batches}

    @property
    def last_exchange(self) -> int:
        """The last release is shown after the last round."""
        return self._public.rounds + 1

    def messages(
        self, exchange: int, transcripts: Mapping[str, Transcript], to_observer: WriteMessage, to_owner: WriteMessage
    ) -> list[Message]:
        """Return the newest release of each batch, as clients see it."""
        if not self._asks(exchange):
            return []
        written = []
        for batch in self._batches:
            transcript = transcripts[batch.name]
            assert transcript.release is not None, "an exchange from the second on follows a release"
            seen = show(self._public.view, self._public.law, transcript.models, transcript.release)
            arrays = ArrayRecord({name: Array(*pack(value.numpy())) for name, value in seen.tensors().items()})
            written.append(to_observer(self._insider, _OBSERVE, batch, exchange - 1, arrays, {}))
        return written

    def answers(self, exchange: int) -> list[Answer]:
        """Return the insider's answers, one a batch."""
        return [Answer(self._insider, _OBSERVE, batch.name) for batch in self._batches if self._asks(exchange)]

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of increments, sensitivities and residuals.

        Raises
        ------
        FederationError
            If the insider did not send them.
        """
        for answer in self.answers(exchange):
            reply, observed = found[answer], self._observed[answer.batch]
            worlds = next(batch.count for batch in self._batches if batch.name == answer.batch)
            said: tuple[tuple[Key, list[Floats], tuple[int, ...], bool], ...] = (
                (Key.LOG_ODDS, observed.increments, (worlds,), True),
                (Key.LOCAL_SENSITIVITY, observed.local_sensitivity, (worlds,), True),
                (Key.RESIDUALS, observed.residuals, (worlds, self._columns), False),
            )
            for key, kept, shape, finite in said:
                array = read_array(reply, key, shape, np.float64, self._insider, exchange - 1, finite)
                kept.append(array.astype(np.float64))

    def columns(self, batch: WorldBatch) -> Columns:
        """Return what the insider said of a batch, as columns of the run's tables."""
        observed = self._observed[batch.name]
        increments = np.stack(observed.increments, axis=1)
        sensitivity = np.stack(observed.local_sensitivity, axis=1)
        residuals = Residuals.of_array(np.stack(observed.residuals, axis=1), self._tensors)
        log_odds = increments.cumsum(axis=1)
        rounds = {
            "sigma": self._public.law.noise_scale(sensitivity),
            "local_sensitivity": sensitivity,
            "log_odds": log_odds,
            "increment": increments,
            "measured_sigma": residuals.sigma,
        }
        return Columns(worlds={"log_odds": log_odds[:, -1]}, rounds=rounds, residuals=residuals.columns())

    def _asks(self, exchange: int) -> bool:
        return 1 < exchange <= self.last_exchange
