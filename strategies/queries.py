"""Queries of an audit to clients, which a strategy sends with the messages of its rounds without reading them.

Messages that are sent together form an exchange. Exchange i is sent with round i, and clients answer it while they work
on this round. It can ask about the releases of all earlier rounds. After the last round, further exchanges with queries
alone follow as needed. `AccountantStateCollector` sends no query, because clients send the state of their accountants
with their contributions.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord, Message
from flwr.app.typing import ConfigRecordValues
from torch import Tensor

from fl_audit.errors import FederationError
from fl_audit.federation.observed_rounds import EarlierRound, ServerRound
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.learning.optimizers import OptimizerState
from fl_audit.learning.private_training import LocalDPSGDSettings
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.strategies.reply_checks import ReplyIdentity
from fl_audit.trial_batches import TrialBatch

_ROUNDING = 1e-9
TRAIN = "train"  # kind of the messages that ask for contributions
More = Mapping[str, ConfigRecordValues]
WriteMessage = Callable[[int, str, TrialBatch, int, ArrayRecord, More], Message]
"""Function of a client, message type, batch of trials, number of a release, arrays and settings: makes a message."""


@dataclass
class BatchTrainingState:
    """Values from which the server continues to train a batch of trials: models, optimizer, clipping norms, rounds."""

    models: list[Tensor]  # the up to three latest models, each (trials, parameters), the latest one last
    latest_round: ServerRound | None = None  # the latest round as the server made it; None before the first round
    optimizer: OptimizerState = field(default_factory=OptimizerState)  # state of the server's optimizer
    norms: Tensor | None = None  # clipping norms of the next round, float64 (trials,); None if the norm is fixed
    # The latest rounds, as many as an observer needs for the log-likelihood ratio of the next round.
    steps: tuple[EarlierRound, ...] = ()
    # Sum over clients of (quantile bit - 1/2) in the latest round before noise, float64 (trials,). Secret.
    bits: Tensor | None = None

    @classmethod
    def of_start(cls, models: Tensor, mechanism: Mechanism) -> "BatchTrainingState":
        """Return the state before the first round, from the initial models (trials, parameters)."""
        first_norms = torch.full((len(models),), mechanism.clipping_norm, dtype=torch.float64)
        return cls([models], norms=first_norms if mechanism.is_adaptive else None)


class RunQueries:
    """Base class of one kind of query to clients over a whole run; by default no query is sent."""

    @property
    def last_exchange(self) -> int:
        """Number of the last exchange of messages with a query of this kind; 0 if there is none."""
        return 0

    def messages(
        self,
        exchange: int,
        transcripts: Mapping[str, BatchTrainingState],
        to_observer: WriteMessage,
        to_owner: WriteMessage,
    ) -> list[Message]:
        """Return the messages of an exchange, each a query to a client about one batch."""
        return []

    def answers(self, exchange: int) -> list[ReplyIdentity]:
        """Return the keys of the answers expected in an exchange: client, kind of query and batch."""
        return []

    def read_answers(self, exchange: int, messages: Mapping[ReplyIdentity, Message]) -> None:
        """Read and store the answers of an exchange; raises `FederationError` if an answer is unusable."""

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return what the answers of the whole run come to, as columns of its tables; by default none."""
        return TrialBatchColumns()


class _AccountantHistoryEntry(NamedTuple):
    """The only entry in an Opacus accountant's history: steps with equal noise and sampling rate."""

    noise_multiplier: float
    sampling_rate: float
    steps: int

    def __str__(self) -> str:
        return f"{self.steps} steps (noise multiplier {self.noise_multiplier:g}, sampling rate {self.sampling_rate:g})"


_NOTHING = _AccountantHistoryEntry(np.nan, np.nan, 0)
"""History entry of an accountant before the first round: no steps."""


@dataclass
class AccountantStateCollector(RunQueries):
    """Query that collects the state of each client's privacy accountant; contributions contain this state."""

    evaluated: Sequence[int]  # numbers of the releases to report; 0 is the initial model
    shards: Sequence[int]  # number of records of each client
    steps: LocalDPSGDSettings  # public schedule of DP-SGD steps, from which the expected state of an accountant follows
    # Collected entries, keyed by name of the batch of trials, round and client.
    _histories: dict[tuple[str, int, int], _AccountantHistoryEntry] = field(init=False, default_factory=dict)

    def read_answers(self, exchange: int, messages: Mapping[ReplyIdentity, Message]) -> None:
        """Compare the accountant's state in each client's reply with the public schedule of steps, and store it."""
        for answer, reply in messages.items():
            if answer.kind == TRAIN:
                config = reply.content.config_records.get(MessageRecordName.CONFIG)
                client = answer.client
                entry = _read(str(config and config.get(Key.ACCOUNTANT)), client, exchange)
                # The schedule of a client's steps and the size of its shard are public.
                due = _read(self.steps.accountant_after(exchange, self.shards[client]), client, exchange)
                if not np.allclose(entry, due, rtol=_ROUNDING, atol=0.0):
                    raise FederationError(
                        f"round {exchange}: the accountant of client {client} has counted {entry}, and its schedule "
                        f"makes it {due}: what it says of its privacy cannot be true"
                    )
                self._histories[answer.batch, exchange, client] = entry

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the steps, noise multiplier and sampling rate that each client's accountant has recorded.

        Each column has the shape (trials, releases, clients), equal for all trials. Column `records` has the clients'
        numbers of records.
        """
        clients = range(len(self.shards))
        counts = np.array(
            [
                [self._histories.get((batch.name, round_number, client), _NOTHING) for client in clients]
                for round_number in self.evaluated
            ]
        )
        columns = {
            f"accounted_{name}": counts[..., index] for index, name in enumerate(_AccountantHistoryEntry._fields)
        }
        columns["records"] = np.tile(np.array(self.shards, dtype=np.float64), (len(self.evaluated), 1))
        return TrialBatchColumns(
            clients={name: np.tile(values, (batch.count, 1, 1)) for name, values in columns.items()}
        )


def _read(text: str, client: int, server_round: int) -> _AccountantHistoryEntry:
    """Return the only history entry in a client's accountant state (JSON); `FederationError` unless there is one."""
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
