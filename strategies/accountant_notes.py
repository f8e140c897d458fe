"""What the clients' own accountants have counted, read along with their contributions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from flwr.app import Message

from fl_audit.arrays import Floats
from fl_audit.game.columns import Columns
from fl_audit.learning.private_training import PrivateSteps
from fl_audit.protocol import Key, Record
from fl_audit.worlds import WorldBatch
from strategies.errors import FederationError
from strategies.inquiries import Inquiry, Transcript, WriteMessage
from strategies.replies import Answer

_TRAIN = "train"
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Counted:
    """The one entry of an accountant's history: equal steps."""

    noise_multiplier: float
    sampling_rate: float
    steps: int

    def __str__(self) -> str:
        return f"{self.steps} steps (noise multiplier {self.noise_multiplier:g}, sampling rate {self.sampling_rate:g})"


class AccountantNotes(Inquiry):
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
    steps
        What the schedule makes each client's accountant count.
    """

    def __init__(
        self,
        rounds: int,
        evaluated: Sequence[int],
        shards: Sequence[int],
        batches: Sequence[WorldBatch],
        steps: PrivateSteps,
    ) -> None:
        self._steps = steps
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
            If a client did not send one that can be read, or one that its schedule refutes.
        """
        for answer, reply in found.items():
            if answer.kind == _TRAIN:
                counted = _read(str(_sent(reply)), answer.client, exchange)
                self._require_counted(counted, answer.client, exchange)
                self._counted[answer.batch, exchange, answer.client] = counted

    def _require_counted(self, counted: _Counted, client: int, server_round: int) -> None:
        """Refuse what a client cannot have counted: its schedule is public, and so is the size of its shard."""
        state = self._steps.accountant_after(server_round, self._shards[client])
        due = _read(state, client, server_round)
        if not np.allclose(astuple(counted), astuple(due), rtol=_ROUNDING, atol=0.0):
            raise FederationError(
                f"round {server_round}: the accountant of client {client} has counted {counted}, and its schedule "
                f"makes it {due}: what it says of its privacy cannot be true"
            )

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


def _in_worlds(values: Floats, worlds: int) -> Floats:
    return np.tile(values, (worlds, 1, 1))


def _sent(reply: Message) -> object:
    """Return the state of its accountant as a client sent it, None where it sent none."""
    config = reply.content.config_records.get(Record.CONFIG)
    return None if config is None else config.get(Key.ACCOUNTANT)


def _read(text: str, client: int, server_round: int) -> _Counted:
    """Return what a client's accountant has counted, whose steps are all alike."""
    try:
        state = json.loads(text)
        ((noise_multiplier, sampling_rate, steps),) = state["history"]
        if int(steps) != steps:
            raise ValueError("steps are counted in whole numbers")
        return _Counted(float(noise_multiplier), float(sampling_rate), int(steps))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FederationError(
            f"round {server_round}: client {client} sent no '{Key.ACCOUNTANT}' that names its equal steps"
        ) from error
