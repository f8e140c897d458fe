"""DP-FedSGD with central Gaussian noise, for all worlds of some batches at once, as a Flower strategy.

A round releases r_i = sum over clients of clipped gradient sums + N(0, sigma_i^2 I) and moves the model by r_i / n.
Where the law samples records, each client is told which of its own take part, and the sum is divided by q n. Questions
to parties (`inquiries`) travel with the rounds; what they are about is no concern of the strategy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.game.membership import Membership
from fl_audit.game.public import PublicGame
from fl_audit.learning.optimizers import step
from fl_audit.mechanisms.noise import NoiseScaling, add_noise
from fl_audit.packing import copy_to_tensor, pack, unpack
from fl_audit.protocol import Key, Record, models_key, pack_participation
from fl_audit.worlds import WorldBatch
from strategies.errors import FederationError
from strategies.inquiries import Inquiry, More, Transcript
from strategies.replies import Answer, batch_shape, read_array, read_replies, sum_arrays

_TRAIN = "train"

T = TypeVar("T")


class Challenger(Protocol):
    """Who holds what is secret: who is in, and the seed of samples and noise."""

    def membership(self, worlds: Sequence[int]) -> Membership:
        """Return which targets are in, world by world."""

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
    targets
        By partition, the targets of the game that it holds.
    insider
        Partition of the insider.
    records
        Number of records that each partition holds.
    """

    nodes: Mapping[int, int]
    targets: tuple[tuple[int, ...], ...]
    insider: int
    records: tuple[int, ...]

    @property
    def partitions(self) -> dict[int, int]:
        """Partition of each node id."""
        return {node: partition for partition, node in self.nodes.items()}

    @property
    def victim(self) -> int:
        """Partition that holds the first target."""
        return next(client for client, held in enumerate(self.targets) if 0 in held)


class DPFedSGD(Strategy):
    """Federated SGD under a release law.

    Parameters
    ----------
    public
        The public game, with its release law.
    roster
        Which node holds which partition.
    challenger
        The source of who is in, samples and noise.
    batches
        The batches of worlds that travel together.
    parameters
        Number of scalars of one model.
    time_limit
        Seconds that one client call may take.
    on_release
        Told of every release.
    inquiries
        What parties are asked beside their contributions.
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
        inquiries: Sequence[Inquiry] = (),
    ) -> None:
        self.public = public
        self.roster = roster
        self.challenger = challenger
        self.batches = tuple(batches)
        self.parameters = parameters
        self.time_limit = time_limit
        self.on_release = on_release
        self.inquiries = tuple(inquiries)
        self.transcripts: dict[str, Transcript] = {}
        self._game_json = public.to_json()

    @property
    def exchanges(self) -> int:
        """Rounds that `start` is to be given: those with a release, then those in which only questions travel."""
        return max([self.public.rounds, *(inquiry.last_exchange for inquiry in self.inquiries)])

    def summary(self) -> None:
        """Say nothing: the run prints its own summary."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client for its sums, and parties what the inquiries want to know."""
        if server_round == 1:
            self.transcripts = {b.name: Transcript([copy_to_tensor(unpack(arrays[b.name]))]) for b in self.batches}
        asked = [
            message
            for inquiry in self.inquiries
            for message in inquiry.messages(server_round, self.transcripts, self._message, self._owner_message)
        ]
        if server_round > self.public.rounds:
            return asked
        return [*asked, *(one for batch in self.batches for one in self._train_messages(batch, server_round, arrays))]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Make the release of this round; note what parties answered."""
        is_round, clients = server_round <= self.public.rounds, range(self.public.clients)
        expected = [answer for inquiry in self.inquiries for answer in inquiry.answers(server_round)]
        if is_round:
            expected += [Answer(client, _TRAIN, batch.name) for client in clients for batch in self.batches]
        named_round = min(server_round, self.public.rounds)
        found = read_replies(replies, expected, self.roster.partitions, named_round)
        # Everything is read and checked before anything is released.
        work = self.batches if is_round else ()
        read = {batch.name: one for batch, one in self._at_once(work, lambda b: self._read(b, found, server_round))}
        for inquiry in self.inquiries:
            inquiry.note(server_round, found)
        if not is_round:
            return None, None
        released = self._at_once(work, lambda batch: self._release(batch, server_round, *read[batch.name]))
        for batch in self.batches:
            transcript = self.transcripts[batch.name]
            assert transcript.release is not None
            self.on_release(batch, server_round, transcript.release, transcript.models[-1])
        return ArrayRecord({batch.name: models for batch, models in released}), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: releases are evaluated by the server, and by what inquiries bring."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing."""
        return None

    def noise(self, batch: WorldBatch, server_round: int, total: Tensor, sigma: NDArray[np.float64]) -> Tensor:
        """Return the noised sums of a batch (worlds, parameters), made in the memory of the sums.

        Parameters
        ----------
        batch, server_round
            The worlds, and the round.
        total
            The sums (worlds, parameters).
        sigma
            Noise standard deviation of each world, as the law says (worlds,).
        """
        return add_noise(total, self.challenger.standard_normals(batch.worlds, server_round, self.parameters), sigma)

    @staticmethod
    def _at_once(batches: Sequence[WorldBatch], work: Callable[[WorldBatch], T]) -> list[tuple[WorldBatch, T]]:
        """Do something for batches at the same time: clients wait for it, and have left the cores free."""
        if not batches:
            return []
        with ThreadPoolExecutor(len(batches)) as threads:
            return list(zip(batches, threads.map(work, batches), strict=True))

    def _release(
        self, batch: WorldBatch, server_round: int, total: Tensor, local_sensitivity: NDArray[np.float64]
    ) -> Array:
        """Make the release of a batch, and return the models that it leads to."""
        law, transcript = self.public.law, self.transcripts[batch.name]
        if law.adds_noise:
            total = self.noise(batch, server_round, total, law.noise_scale(local_sensitivity))
        transcript.release = total
        moved, transcript.optimizer = step(
            law.optimizer, transcript.models[-1], total, transcript.optimizer, law.denominator
        )
        if not np.isfinite(moved.numpy()).all():
            raise FederationError(
                f"round {server_round}: a model of {batch.name} is no longer finite: learning rate, clipping norm "
                "and noise together move it too far"
            )
        transcript.models = [*transcript.models[-2:], moved]
        return Array(*pack(moved.numpy()))

    def _read(
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
        self, client: int, kind: str, batch: WorldBatch, server_round: int, arrays: ArrayRecord, more: More
    ) -> Message:
        """Return a message to a client as an owner of data, who is told which of its own targets are in."""
        told = dict(more)
        if targets := self.roster.targets[client]:
            told[Key.MEMBERSHIP] = self.challenger.membership(batch.worlds).of_targets(targets).pack()
        return self._message(client, kind, batch, server_round, arrays, told)

    def _message(
        self, client: int, kind: str, batch: WorldBatch, server_round: int, arrays: ArrayRecord, more: More
    ) -> Message:
        config: dict[str, ConfigRecordValues] = {
            Key.GAME: self._game_json,
            Key.ROUND: server_round,
            Key.BATCH: batch.name,
            Key.TIME_LIMIT: float(self.time_limit),
        }
        content = RecordDict({Record.ARRAYS: arrays, Record.CONFIG: ConfigRecord(config | dict(more))})
        return Message(content, self.roster.nodes[client], kind)
