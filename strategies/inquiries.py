"""Inquiries: questions to parties that travel with the rounds of a strategy, which does not know what they are about.

What travels together is one exchange. The exchange of round i is number i; after the last round k come as many more as
the inquiries need, which bring no contributions. In exchange i a strategy can be asked about the releases up to i - 1,
while the clients work on round i.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from flwr.app import ArrayRecord, Message
from flwr.app.typing import ConfigRecordValues
from torch import Tensor

from fl_audit.game.seen import Made, Step
from fl_audit.learning.optimizers import OptimizerState
from fl_audit.worlds import WorldBatch
from strategies.replies import Answer

More = Mapping[str, ConfigRecordValues]
WriteMessage = Callable[[int, str, WorldBatch, int, ArrayRecord, More], Message]
"""Writes a message: to a client, of a kind, about a batch and a release, with arrays and more settings."""


@dataclass
class Transcript:
    """What the rounds of one batch have come to."""

    models: list[Tensor]  # successive models, newest last, as many as an observer may need: up to three
    made: Made | None = None  # the newest round; None before the first
    optimizer: OptimizerState = field(default_factory=OptimizerState)  # state of the server optimizer
    norms: Tensor | None = None  # the clipping norms of the next round where they are adaptive, float64 (worlds,)
    steps: tuple[Step, ...] = ()  # the newest rounds, as many as an observer may need to weigh the next one


class Inquiry(Protocol):
    """Questions of one kind over a whole run."""

    @property
    def last_exchange(self) -> int:
        """Number of the last exchange in which something is asked."""

    def messages(
        self, exchange: int, transcripts: Mapping[str, Transcript], to_observer: WriteMessage, to_owner: WriteMessage
    ) -> list[Message]:
        """Return the questions of an exchange.

        Parameters
        ----------
        exchange
            Its number.
        transcripts
            What the rounds have come to, by batch.
        to_observer
            Writes a message to a client as an observer of releases.
        to_owner
            Writes a message to a client as an owner of data, who is told which of its own targets are in.
        """

    def answers(self, exchange: int) -> list[Answer]:
        """Return the answers that an exchange must bring."""

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of the answers of an exchange.

        Parameters
        ----------
        exchange
            Number of the exchange, from 1.
        found
            The answers.
        """
