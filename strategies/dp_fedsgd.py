"""DP-FedSGD with central Gaussian noise, for all worlds of some batches at once, as a Flower strategy.

A round releases r_i = sum over clients of clipped gradient sums + N(0, sigma_i^2 I) and moves the model by r_i / n.
Where the law samples records, each client is told which of its own take part, and the sum is divided by q n. The
insider looks at release i while the clients work on round i + 1; after the last round it is asked once more. So are
data owners about their losses, where Epsilon* is found without pooling them (`loss_queries`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.game import PublicGame, View
from fl_audit.learning.optimizers import OptimizerState, step
from fl_audit.packing import copy_to_tensor, pack, view
from fl_audit.privacy.release import NoiseScaling
from fl_audit.protocol import Key, Query, Record, models_key, pack_participation
from fl_audit.worlds import WorldBatch
from strategies.errors import FederationError
from strategies.loss_queries import LossQueries
from strategies.replies import Answer, batch_shape, read_array, read_replies, sum_arrays

_TRAIN = "train"
_OBSERVE = f"query.{Query.OBSERVE}"

T = TypeVar("T")


class Challenger(Protocol):
    """Who holds what is secret: the bits, and the seed of samples and noise."""

    def bits(self, worlds: Sequence[int]) -> NDArray[np.bool_]:
        """Return the secret bit of each world."""

    def participation(
        self, worlds: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> NDArray[np.bool_]:
        """Return which of a client's records take part in a round, (worlds, records)."""

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return float32 standard normal draws (worlds, size) of a round."""


class ReleaseObserver(Protocol):
    """Who is told of every release as it is made."""

    def __call__(self, batch: WorldBatch, server_round: int, release: Tensor, models: Tensor) -> None:
        """Take note of r_i and of theta_i, both (worlds, parameters)."""


@dataclass(frozen=True)
class Roster:
    """Who is who in a federation.

    Parameters
    ----------
    nodes
        Node id of each partition, by partition.
    victim, insider
        Partitions of the two.
    records
        Number of records that each partition holds.
    """

    nodes: Mapping[int, int]
    victim: int
    insider: int
    records: tuple[int, ...]

    @property
    def partitions(self) -> dict[int, int]:
        """Partition of each node id."""
        return {node: partition for partition, node in self.nodes.items()}


@dataclass
class BatchState:
    """What the server carries from round to round for one batch.

    Parameters
    ----------
    models
        Successive models, newest last, as many as the insider may need.
    release
        The newest release.
    optimizer
        State of the server optimizer.
    log_odds, local_sensitivity
        The insider's answers, one array (worlds,) a round.
    """

    models: list[Tensor]
    release: Tensor | None = None
    optimizer: OptimizerState = field(default_factory=OptimizerState)
    log_odds: list[NDArray[np.float64]] = field(default_factory=list)
    local_sensitivity: list[NDArray[np.float64]] = field(default_factory=list)


class DPFedSGD(Strategy):
    """Federated SGD under a release law.

    Parameters
    ----------
    public
        The public game, with its release law.
    roster
        Which node holds which partition.
    challenger
        The source of bits and noise.
    batches
        The batches of worlds that travel together.
    parameters
        Number of scalars of one model.
    time_limit
        Seconds that one client call may take.
    on_release
        Told of every release.
    loss_queries
        What data owners are asked about their losses on releases; None asks nothing.
    """

    def __init__(
        self,
        public: PublicGame,
        roster: Roster,
        challenger: Challenger,
        batches: Sequence[WorldBatch],
        parameters: int,
        time_limit: float,
        on_release: ReleaseObserver,
        loss_queries: LossQueries | None = None,
    ) -> None:
        self.public = public
        self.roster = roster
        self.challenger = challenger
        self.batches = tuple(batches)
        self.parameters = parameters
        self.time_limit = time_limit
        self.on_release = on_release
        self.loss_queries = loss_queries
        self.states: dict[str, BatchState] = {}
        self._game_json = public.to_json()
        self._weighed = self.batches if public.with_insider else ()

    def summary(self) -> None:
        """Say nothing: the run prints its own summary."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client for its sums, and the insider about the release of the round before."""
        if server_round == 1:
            self.states = {b.name: BatchState([copy_to_tensor(view(arrays[b.name]))]) for b in self.batches}
        questions = self._observe_messages(server_round - 1) if server_round > 1 else []
        work = [message for batch in self.batches for message in self._train_messages(batch, server_round, arrays)]
        return questions + work + self._loss_messages(server_round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Make the release of this round; note what the insider said of the one before."""
        clients = range(self.public.clients)
        asked = [Answer(client, _TRAIN, batch.name) for client in clients for batch in self.batches]
        if server_round > 1:
            asked += self._observe_answers()
        found = read_replies(replies, asked + self._loss_answers(server_round), self.roster.partitions, server_round)
        # Everything is read and checked before anything is released.
        read = self._for_each_batch(lambda batch: self._read_contributions(batch, found, server_round))
        if server_round > 1:
            self._note_observations(found, server_round)
        self._note_losses(found, server_round)
        packed = self._for_each_batch(lambda batch: self._release(batch, server_round, *read[batch.name]))
        for batch in self.batches:
            state = self.states[batch.name]
            assert state.release is not None
            self.on_release(batch, server_round, state.release, state.models[-1])
        return ArrayRecord(packed), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask about the last release, which no further round follows."""
        if server_round != self.public.rounds:
            return []
        return self._observe_messages(server_round) + self._loss_messages(server_round + 1)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Note what was said of the last release."""
        if server_round == self.public.rounds:
            asked = self._observe_answers() + self._loss_answers(server_round + 1)
            found = read_replies(replies, asked, self.roster.partitions, server_round)
            self._note_observations(found, server_round)
            self._note_losses(found, server_round + 1)
        return None

    def ask_last(self, grid: Grid) -> None:
        """Ask what is left to ask about losses on the last release; to be called after `start`."""
        exchange = self.public.rounds + 2
        if asked := self._loss_answers(exchange):
            replies = grid.send_and_receive(self._loss_messages(exchange))
            self._note_losses(read_replies(replies, asked, self.roster.partitions, self.public.rounds), exchange)

    def noise_scale(self, local_sensitivity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sigma_i per world, as the law says."""
        return self.public.law.noise_scale(local_sensitivity)

    def _for_each_batch(self, work: Callable[[WorldBatch], T]) -> dict[str, T]:
        """Do something for all batches at the same time: clients wait for it, and have left the cores free."""
        with ThreadPoolExecutor(len(self.batches)) as threads:
            return dict(zip((batch.name for batch in self.batches), threads.map(work, self.batches), strict=True))

    def _release(
        self, batch: WorldBatch, server_round: int, total: Tensor, local_sensitivity: NDArray[np.float64]
    ) -> Array:
        """Make the release of a batch, and return the models that it leads to."""
        law, state = self.public.law, self.states[batch.name]
        if law.has_noise:
            sigma = torch.from_numpy(self.noise_scale(local_sensitivity)).float()
            noise = self.challenger.standard_normals(batch.worlds, server_round, self.parameters)
            total = total.addcmul_(noise, sigma.unsqueeze(1))
        state.release = total
        moved, state.optimizer = step(law.optimizer, state.models[-1], total, state.optimizer, law.denominator)
        if not np.isfinite(moved.numpy()).all():
            raise FederationError(
                f"round {server_round}: a model of {batch.name} is not finite: lower the learning rate"
            )
        state.models = [*state.models[-2:], moved]
        return Array(*pack(moved.numpy()))

    def _read_contributions(
        self, batch: WorldBatch, found: Mapping[Answer, Message], server_round: int
    ) -> tuple[Tensor, NDArray[np.float64]]:
        """Return the sum of contributions, in partition order, and the local sensitivities where the law needs them."""
        shape = batch_shape(batch, self.parameters)
        replies = [found[Answer(client, _TRAIN, batch.name)] for client in range(self.public.clients)]
        total = sum_arrays(replies, Key.SUM, shape, server_round)
        if self.public.law.scaling is NoiseScaling.GLOBAL:
            return total, np.zeros(batch.count)
        victim = self.roster.victim
        reply = found[Answer(victim, _TRAIN, batch.name)]
        sensitivity = read_array(reply, Key.LOCAL_SENSITIVITY, (batch.count,), np.float64, victim, server_round)
        return total, sensitivity.astype(np.float64)

    def _train_messages(self, batch: WorldBatch, server_round: int, models: ArrayRecord) -> list[Message]:
        arrays = ArrayRecord({models_key(0): models[batch.name]})
        return [
            self._owner_message(client, _TRAIN, batch, server_round, arrays, self._sample(batch, server_round, client))
            for client in range(self.public.clients)
        ]

    def _sample(self, batch: WorldBatch, server_round: int, client: int) -> dict[str, ConfigRecordValues]:
        """Return what a client is told about which of its records take part."""
        law = self.public.law
        if not law.is_sampled:
            return {}
        records = self.roster.records[client]
        drawn = self.challenger.participation(batch.worlds, server_round, client, records, law.sampling_rate)
        return {Key.PARTICIPATION: pack_participation(drawn)}

    def _owner_message(
        self,
        client: int,
        kind: str,
        batch: WorldBatch,
        server_round: int,
        arrays: ArrayRecord,
        more: Mapping[str, ConfigRecordValues],
    ) -> Message:
        """Return a message to a client as a data owner: the victim, and nobody else, is told the bits."""
        config = self._config(batch, server_round)
        config.update(more)
        if client == self.roster.victim:
            config[Key.BITS] = self.challenger.bits(batch.worlds).tobytes()
        return self._message(client, kind, arrays, config)

    def _loss_messages(self, exchange: int) -> list[Message]:
        """Return the questions about losses of an exchange; see `strategies.loss_queries`."""
        if self.loss_queries is None:
            return []
        newest = min(exchange - 1, self.public.rounds)

        def models(batch: WorldBatch, release: int) -> Tensor:
            return self.states[batch.name].models[release - newest - 1]

        return self.loss_queries.messages(exchange, models, self._owner_message)

    def _loss_answers(self, exchange: int) -> list[Answer]:
        return [] if self.loss_queries is None else self.loss_queries.answers(exchange)

    def _note_losses(self, found: Mapping[Answer, Message], exchange: int) -> None:
        if self.loss_queries is not None:
            self.loss_queries.note(exchange, found)

    def _observe_messages(self, server_round: int) -> list[Message]:
        return [
            self._message(self.roster.insider, _OBSERVE, self._view(batch), self._config(batch, server_round))
            for batch in self._weighed
        ]

    def _view(self, batch: WorldBatch) -> ArrayRecord:
        """Return what clients see of the newest release: the noised sum, or successive models."""
        state = self.states[batch.name]
        match self.public.view:
            case View.UPDATE:
                assert state.release is not None
                seen = {models_key(0): state.models[-2], Key.RELEASE: state.release}
            case View.MODEL:
                needed = state.models[-self.public.law.optimizer.models_to_invert :]
                seen = {models_key(back): model for back, model in enumerate(reversed(needed))}
        return ArrayRecord({key: Array(*pack(value.numpy())) for key, value in seen.items()})

    def _config(self, batch: WorldBatch, server_round: int) -> ConfigRecord:
        return ConfigRecord(
            {
                Key.GAME: self._game_json,
                Key.ROUND: server_round,
                Key.BATCH: batch.name,
                Key.TIME_LIMIT: float(self.time_limit),
            }
        )

    def _message(self, client: int, kind: str, arrays: ArrayRecord, config: ConfigRecord) -> Message:
        content = RecordDict({Record.ARRAYS: arrays, Record.CONFIG: config})
        return Message(content, self.roster.nodes[client], kind)

    def _observe_answers(self) -> list[Answer]:
        return [Answer(self.roster.insider, _OBSERVE, batch.name) for batch in self._weighed]

    def _note_observations(self, found: Mapping[Answer, Message], server_round: int) -> None:
        insider = self.roster.insider
        for batch in self._weighed:
            reply, state = found[Answer(insider, _OBSERVE, batch.name)], self.states[batch.name]
            for key, kept in ((Key.LOG_ODDS, state.log_odds), (Key.LOCAL_SENSITIVITY, state.local_sensitivity)):
                array = read_array(reply, key, (batch.count,), np.float64, insider, server_round)
                kept.append(array.astype(np.float64))
