"""What the clients' own accountants have counted, read along with their contributions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fl_audit.game.columns import Columns
from fl_audit.protocol import Key, Record
from fl_audit.worlds import WorldBatch
from strategies.errors import FederationError
from strategies.inquiries import Transcript, WriteMessage
from strategies.replies import Answer

_TRAIN = "train"


@dataclass(frozen=True)
class _Counted:
    """The one entry of an accountant's history: equal steps."""

    noise_multiplier: float
    sampling_rate: float
    steps: int


class AccountantNotes:
    """Asks nothing: the state of a client's accountant comes with its contribution.

    Parameters
    ----------
    rounds
        Number of rounds.
    evaluated
        Releases that the tables have, 0 being the initial models.
    shards
        Number of records of each client.
    batches
        The batches that travel together.
    """

    def __init__(
        self, rounds: int, evaluated: Sequence[int], shards: Sequence[int], batches: Sequence[WorldBatch]
    ) -> None:
        self._rounds, self._evaluated, self._shards, self._batches = rounds, evaluated, shards, batches
        self._counted: dict[tuple[str, int, int], _Counted] = {}

    @property
    def last_exchange(self) -> int:
        """The last contributions come in the last round."""
        return self._rounds

    def messages(
        self, exchange: int, transcripts: Mapping[str, Transcript], to_observer: WriteMessage, to_owner: WriteMessage
    ) -> list[Message]:
        """Return no message."""
        return []

    def answers(self, exchange: int) -> list[Answer]:
        """Return no answer: those that are read are the strategy's."""
        return []

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of the accountants' states.

        Raises
        ------
        FederationError
            If a client did not send one that can be read.
        """
        for answer, reply in found.items():
            if answer.kind == _TRAIN:
                self._counted[answer.batch, exchange, answer.client] = _read(reply, answer.client, exchange)

    def columns(self, batch: WorldBatch) -> Columns:
        """Return what each client's accountant had counted at every evaluated release, the same in all worlds."""
        clients = range(len(self._shards))
        counted = [[self._at(batch, release, client) for client in clients] for release in self._evaluated]
        columns = {
            f"accounted_{name}": np.array([[getattr(one, name) for one in row] for row in counted], dtype=np.float64)
            for name in ("noise_multiplier", "sampling_rate", "steps")
        }
        columns["records"] = np.tile(np.array(self._shards, dtype=np.float64), (len(self._evaluated), 1))
        return Columns(clients={name: _in_worlds(values, batch.count) for name, values in columns.items()})

    def _at(self, batch: WorldBatch, release: int, client: int) -> _Counted:
        return _NOTHING if release == 0 else self._counted[batch.name, release, client]


_NOTHING = _Counted(np.nan, np.nan, 0)
"""Before the first round an accountant has counted nothing, and knows neither noise nor rate."""


def _in_worlds(values: NDArray[np.float64], worlds: int) -> NDArray[np.float64]:
    return np.tile(values, (worlds, 1, 1))


def _read(reply: Message, client: int, server_round: int) -> _Counted:
    """Return what a client's accountant has counted, whose steps are all alike."""
    try:
        state = json.loads(str(reply.content.config_records[Record.CONFIG][Key.ACCOUNTANT]))
        ((noise_multiplier, sampling_rate, steps),) = state["history"]
        return _Counted(float(noise_multiplier), float(sampling_rate), int(steps))
    except (KeyError, TypeError, ValueError) as error:
        raise FederationError(
            f"round {server_round}: client {client} sent no '{Key.ACCOUNTANT}' that names its equal steps"
        ) from error
