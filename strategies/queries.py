"""Queries to clients besides training, which a strategy sends with the messages of its rounds without reading them.

Messages that are sent together form one exchange. Exchange i has the messages of round i; after the last round, further
exchanges follow without contributions, as many as the queries need. Exchange i can ask about releases up to i - 1,
while the clients work on round i. `AccountantStateCollector` sends no query, because clients send the state of their
accountants with their contributions.
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
"""A function that makes a message from the client, message type, batch of trials, release, arrays and settings."""


@dataclass
class BatchProgress:
    """The state of one batch of trials: its latest models and rounds, and the state of the server's optimizer."""

    models: list[Tensor]  # the latest models (trials, parameters), up to three, the latest one last
    made: ServerRound | None = None  # the latest round; None before the first
    optimizer: OptimizerState = field(default_factory=OptimizerState)  # state of the server optimizer
    norms: Tensor | None = None  # the clipping norms of the next round where they are adaptive, float64 (trials,)
    steps: tuple[EarlierRound, ...] = ()  # the latest rounds that an observer needs for the LLR of the next round
    # Sum of the centred quantile bits of the latest round before noise, float64 (trials,); a secret of the challenger.
    bits: Tensor | None = None


class RunQueries:
    """Base class of the queries of one kind over a whole run; by default no query is sent."""

    @property
    def last_exchange(self) -> int:
        """Number of the last exchange with a query of this kind; 0 if there is none."""
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
        """Return which client must answer which query in an exchange."""
        return []

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Record the answers of an exchange; raises `FederationError` if an answer is unusable.

        Parameters
        ----------
        exchange
            Number of the exchange, from 1.
        found
            Replies of the clients to queries and to requests for contributions, keyed by client, type and batch.
        """


class _AccountantHistoryEntry(NamedTuple):
    """The single entry of an Opacus accountant's history: a number of steps with equal noise and sampling rate."""

    noise_multiplier: float
    sampling_rate: float
    steps: int

    def __str__(self) -> str:
        return f"{self.steps} steps (noise multiplier {self.noise_multiplier:g}, sampling rate {self.sampling_rate:g})"


_NOTHING = _AccountantHistoryEntry(np.nan, np.nan, 0)
"""The history entry of an accountant before the first round."""


@dataclass
class AccountantStateCollector(RunQueries):
    """Collects the state of each client's accountant, which clients send with their contributions without a query."""

    evaluated: Sequence[int]  # releases that the tables have, 0 being the initial models
    shards: Sequence[int]  # number of records of each client
    steps: PrivateSteps  # the public schedule of DP-SGD steps, from which the expected state follows
    _counted: dict[tuple[str, int, int], _AccountantHistoryEntry] = field(init=False, default_factory=dict)

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Record the accountants' states; raises `FederationError` if one is malformed or differs from the schedule."""
        for answer, reply in found.items():
            if answer.kind == TRAIN:
                config = reply.content.config_records.get(MessageRecord.CONFIG)
                client = answer.client
                counted = _read(str(config and config.get(Key.ACCOUNTANT)), client, exchange)
                # The schedule of a client's steps and the size of its shard are public.
                due = _read(self.steps.accountant_after(exchange, self.shards[client]), client, exchange)
                if not np.allclose(counted, due, rtol=_ROUNDING, atol=0.0):
                    raise FederationError(
                        f"round {exchange}: the accountant of client {client} has counted {counted}, and its schedule "
                        f"makes it {due}: what it says of its privacy cannot be true"
                    )
                self._counted[answer.batch, exchange, client] = counted

    def columns(self, batch: TrialBatch) -> ResultColumns:
        """Return steps, noise multiplier and sampling rate by each client's accountant at every evaluated release.

        They are the same in all trials.
        """
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
    """Parse the JSON state of a client's accountant, whose history must be one entry of equal steps."""
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
