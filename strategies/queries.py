"""Queries: questions to parties that are sent with the rounds of a strategy, which does not know their content.

Messages that are sent together form one exchange. The exchange of round i is number i; after the last round k come as
many more as the queries need, without contributions. In exchange i a strategy can ask about the releases up to i - 1,
while the clients work on round i. `AccountantStateCollector` asks nothing: it reads the notes in contributions.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.app.typing import ConfigRecordValues
from torch import Tensor

from fl_audit.federation.observed_rounds import EarlierRound, ServerRound
from fl_audit.federation.result_columns import ResultColumns
from fl_audit.learning.optimizers import OptimizerState
from fl_audit.learning.private_training import PrivateSteps
from fl_audit.protocol import Key, MessageRecord
from fl_audit.strategies.errors import FederationError
from fl_audit.strategies.replies import Answer
from fl_audit.trials import TrialBatch

_ROUNDING = 1e-9
TRAIN = "train"  # kind of the messages that ask for contributions
More = Mapping[str, ConfigRecordValues]
WriteMessage = Callable[[int, str, TrialBatch, int, ArrayRecord, More], Message]
"""A function that writes a message: to a client, of a kind, about a batch and a release, with arrays and settings."""


@dataclass
class BatchProgress:
    """The state of one batch of trials: its latest models and rounds, and the state of the server's optimizer."""

    models: list[Tensor]  # successive models, newest last, as many as an observer may need: up to three
    made: ServerRound | None = None  # the newest round; None before the first
    optimizer: OptimizerState = field(default_factory=OptimizerState)  # state of the server optimizer
    norms: Tensor | None = None  # the clipping norms of the next round where they are adaptive, float64 (trials,)
    steps: tuple[EarlierRound, ...] = ()  # the newest rounds, as many as an observer may need to weigh the next one
    # Sum of the centred bits of an adaptive norm in the newest round, before noise, float64 (trials,): a secret of the
    # challenger's.
    bits: Tensor | None = None


class RunQueries:
    """Questions of one kind over a whole run; a kind without questions reads parts of contributions."""

    @property
    def last_exchange(self) -> int:
        """Number of the last exchange in which something is asked."""
        return 0

    def messages(
        self, exchange: int, transcripts: Mapping[str, BatchProgress], to_observer: WriteMessage, to_owner: WriteMessage
    ) -> list[Message]:
        """Return the queries of an exchange as messages.

        Parameters
        ----------
        exchange
            Number of the exchange, from 1.
        transcripts
            Progress of the rounds of each batch.
        to_observer
            Function that writes a message to a client as an observer of releases.
        to_owner
            Function that writes a message to a client as an owner of data, with the membership of the client's own
            targets.
        """
        return []

    def answers(self, exchange: int) -> list[Answer]:
        """Return the answers that an exchange must bring."""
        return []

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Record the answers of an exchange; a `FederationError` refuses unusable ones.

        Parameters
        ----------
        exchange
            Number of the exchange, from 1.
        found
            Replies of the clients, keyed by the query that each answers: answers and contributions.
        """


class _AccountantHistoryEntry(NamedTuple):
    """The one entry of an accountant's history: equal steps."""

    noise_multiplier: float
    sampling_rate: float
    steps: int

    def __str__(self) -> str:
        return f"{self.steps} steps (noise multiplier {self.noise_multiplier:g}, sampling rate {self.sampling_rate:g})"


_NOTHING = _AccountantHistoryEntry(np.nan, np.nan, 0)
"""The count of an accountant before the first round, with unknown noise and rate."""


@dataclass
class AccountantStateCollector(RunQueries):
    """Collects the state of each client's accountant. Clients send it with their contributions, so no query is sent."""

    evaluated: Sequence[int]  # releases that the tables have, 0 being the initial models
    shards: Sequence[int]  # number of records of each client
    steps: PrivateSteps  # the count of each client's accountant by the schedule
    _counted: dict[tuple[str, int, int], _AccountantHistoryEntry] = field(init=False, default_factory=dict)

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Record the accountants' states: each must be readable, and match the client's schedule."""
        for answer, reply in found.items():
            if answer.kind == TRAIN:
                config = reply.content.config_records.get(MessageRecord.CONFIG)
                client = answer.client
                counted = _read(str(config and config.get(Key.ACCOUNTANT)), client, exchange)
                # A client's schedule is public, and so is the size of its shard.
                due = _read(self.steps.accountant_after(exchange, self.shards[client]), client, exchange)
                if not np.allclose(counted, due, rtol=_ROUNDING, atol=0.0):
                    raise FederationError(
                        f"round {exchange}: the accountant of client {client} has counted {counted}, and its schedule "
                        f"makes it {due}: what it says of its privacy cannot be true"
                    )
                self._counted[answer.batch, exchange, client] = counted

    def columns(self, batch: TrialBatch) -> ResultColumns:
        """Return each client's accountant's count at every evaluated release, the same in all trials."""
        clients = range(len(self.shards))
        counted = np.array(
            [[self._counted.get((batch.name, one, client), _NOTHING) for client in clients] for one in self.evaluated]
        )
        columns = {
            f"accounted_{name}": counted[..., place] for place, name in enumerate(_AccountantHistoryEntry._fields)
        }
        columns["records"] = np.tile(np.array(self.shards, dtype=np.float64), (len(self.evaluated), 1))
        return ResultColumns(clients={name: np.tile(values, (batch.count, 1, 1)) for name, values in columns.items()})


def _read(text: str, client: int, server_round: int) -> _AccountantHistoryEntry:
    """Return the steps, all equal, that a client's accountant has counted, from its state as JSON."""
    try:
        state = json.loads(text)
        ((noise_multiplier, sampling_rate, steps),) = state["history"]
        if int(steps) != steps:
            raise ValueError("steps are counted in whole numbers")
        return _AccountantHistoryEntry(float(noise_multiplier), float(sampling_rate), int(steps))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FederationError(
            f"round {server_round}: client {client} sent no '{Key.ACCOUNTANT}' that names its equal steps"
        ) from error
