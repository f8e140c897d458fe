"""Epsilon* of releases from what data owners tell of their losses: extremes, then moments, never a loss.

Release i is asked about while the clients work on later rounds, as the insider is. Exchange i + 1 (see `inquiries`)
asks for the range of the losses on release i, exchange i + 2 for the moments of their scores, by when the server has
evaluated the population. With a public range the first question is left out.

What everybody learns: the server, moments of each shard (of a shard of one record, its loss) and, without a public
range, extremes of each; every client, the insider included, the moments of the population and the range in use. A range
that was found holds extreme losses of members without noise, which no promise covers: a deployment names a public one.
The insider of this simulation makes no use of it. Epsilon* of a shard follows from its moments, so the server could
work it out unasked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.app.typing import ConfigRecordValues
from torch import Tensor

from fl_audit.arrays import Floats
from fl_audit.evidence.star.epsilon_star import StarSettings
from fl_audit.evidence.star.loss_moments import (
    LossRange,
    ScoreMoments,
    epsilon_star_of_moments,
    joint_moments,
    joint_range,
    moments_of,
    range_of,
)
from fl_audit.game.columns import Columns
from fl_audit.packing import pack
from fl_audit.protocol import Key, Query, models_key
from fl_audit.worlds import WorldBatch
from strategies.errors import FederationError
from strategies.inquiries import Inquiry, Transcript, WriteMessage
from strategies.replies import Answer, read_array

_RANGE, _MOMENTS = f"query.{Query.LOSS_RANGE}", f"query.{Query.LOSS_MOMENTS}"


@dataclass(frozen=True)
class FederatedLosses:
    """How Epsilon* is found without pooling losses."""

    star: StarSettings  # delta and cut of Epsilon*
    # Public range by which losses are normalised, those beyond it clipped to it; None asks for the extremes.
    loss_range: tuple[float, float] | None = None
    client_epsilon_star: bool = False  # whether clients tell the server Epsilon* of their own shards


class PopulationEvaluator(Protocol):
    """Who evaluates releases on the population sample."""

    def __call__(self, batch: WorldBatch, release: int) -> Floats:
        """Return the losses (worlds, p) of a release, waiting for them if need be; they are asked for once."""


@dataclass
class LossQueries(Inquiry):
    """The questions of a run of some batches, and Epsilon* from the answers."""

    settings: FederatedLosses  # what is asked
    releases: Sequence[int]  # numbers of the releases that are asked about, ascending
    batches: Sequence[WorldBatch]  # the batches that travel together
    clients: int  # number of clients
    population: PopulationEvaluator  # losses of the population sample
    epsilon_star: dict[str, list[Floats]] = field(init=False)  # by batch, Epsilon* (worlds,) of each release, in order
    # By batch, Epsilon* (worlds, clients) of each shard at each release, where clients tell it.
    client_epsilon_star: dict[str, list[Floats]] = field(init=False)
    _ranges: dict[str, LossRange] = field(init=False, default_factory=dict)
    _population: dict[str, ScoreMoments] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.epsilon_star = {batch.name: [] for batch in self.batches}
        self.client_epsilon_star = {batch.name: [] for batch in self.batches}

    @property
    def last_exchange(self) -> int:
        """The moments of the last release are asked for in the second exchange after its round."""
        return max(self.releases) + 2

    def messages(
        self, exchange: int, transcripts: Mapping[str, Transcript], to_observer: WriteMessage, to_owner: WriteMessage
    ) -> list[Message]:
        """Return the questions of an exchange."""
        newest = min(exchange - 1, max(self.releases))

        def models(batch: WorldBatch, release: int) -> Tensor:
            return transcripts[batch.name].models[release - newest - 1]

        written = []
        for batch in self.batches:
            # Moments first: their answers are still about the range of the release before.
            if (release := self._moments_about(exchange)) is not None:
                arrays = self._moments_arrays(batch, release, models(batch, release))
                more: dict[str, ConfigRecordValues] = {
                    Key.DELTA: self.settings.star.delta,
                    Key.CUT: self.settings.star.cut,
                    Key.REPORT: self.settings.client_epsilon_star,
                }
                written += [to_owner(client, _MOMENTS, batch, release, arrays, more) for client in range(self.clients)]
            if (release := self._range_about(exchange)) is not None:
                arrays = ArrayRecord({models_key(0): Array(*pack(models(batch, release).numpy()))})
                written += [to_owner(client, _RANGE, batch, release, arrays, {}) for client in range(self.clients)]
        return written

    def answers(self, exchange: int) -> list[Answer]:
        """Return the answers that an exchange must bring."""
        kinds = [
            kind
            for kind, release in ((_MOMENTS, self._moments_about(exchange)), (_RANGE, self._range_about(exchange)))
            if release is not None
        ]
        return [
            Answer(client, kind, batch.name)
            for kind in kinds
            for batch in self.batches
            for client in range(self.clients)
        ]

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Take note of the answers of an exchange.

        Raises
        ------
        FederationError
            If an answer cannot be a summary of losses.
        """
        for batch in self.batches:
            if (release := self._moments_about(exchange)) is not None:
                self._note_moments(batch, release, found)
            if (release := self._range_about(exchange)) is not None:
                told = [LossRange(*part) for part in self._told(_RANGE, _RANGE_KEYS, batch, release, found)]
                self._refuse_unsound(
                    {client: part.is_sound for client, part in enumerate(told)}, "a range of losses", release
                )
                self._ranges[batch.name] = joint_range(told)

    def columns(self, batch: WorldBatch) -> Columns:
        """Return what was found of a batch, as columns of the run's tables."""
        found = {"epsilon_star": np.stack(self.epsilon_star[batch.name], axis=1)}
        own = self.client_epsilon_star[batch.name]
        last = {"epsilon_star": found["epsilon_star"][:, -1]}
        return Columns(worlds=last, releases=found, clients={"epsilon_star": np.stack(own, axis=1)} if own else {})

    def _range_about(self, exchange: int) -> int | None:
        """Return the release whose range an exchange asks for."""
        return exchange - 1 if self.settings.loss_range is None and exchange - 1 in self.releases else None

    def _moments_about(self, exchange: int) -> int | None:
        """Return the release whose moments an exchange asks for."""
        return exchange - 2 if exchange - 2 in self.releases else None

    def _moments_arrays(self, batch: WorldBatch, release: int, models: Tensor) -> ArrayRecord:
        """Return what a question for moments carries: models, range, and the moments of the population."""
        losses = self.population(batch, release)
        if self.settings.loss_range is None:
            extremes = joint_range([self._ranges[batch.name], range_of(losses)])
            low, high = extremes.low, extremes.high
        else:
            low, high = (np.full(batch.count, end) for end in self.settings.loss_range)
        population = self._population[batch.name] = moments_of(losses, low, high)
        said: dict[str, Floats] = {
            Key.LOW: low,
            Key.HIGH: high,
            Key.POPULATION_COUNT: population.count,
            Key.POPULATION_MEAN: population.mean,
            Key.POPULATION_SQUARES: population.squares,
        }
        return ArrayRecord(
            {models_key(0): Array(*pack(models.numpy())), **{key: Array(*pack(value)) for key, value in said.items()}}
        )

    def _note_moments(self, batch: WorldBatch, release: int, found: Mapping[Answer, Message]) -> None:
        told = [ScoreMoments(*part) for part in self._told(_MOMENTS, _MOMENTS_KEYS, batch, release, found)]
        self._refuse_unsound({client: part.is_sound for client, part in enumerate(told)}, "moments of scores", release)
        population, star = self._population[batch.name], self.settings.star
        found_star = epsilon_star_of_moments(joint_moments(told), population, star.delta, star.cut)
        self.epsilon_star[batch.name].append(found_star)
        if self.settings.client_epsilon_star:
            own = [self._read_own(client, part, batch, release, found) for client, part in enumerate(told)]
            self.client_epsilon_star[batch.name].append(np.stack(own, axis=1))

    def _told(
        self, kind: str, keys: Sequence[Key], batch: WorldBatch, release: int, found: Mapping[Answer, Message]
    ) -> list[list[Floats]]:
        """Return what each client answered, by client and key."""
        return [
            [_floats(found[Answer(client, kind, batch.name)], key, batch, client, release) for key in keys]
            for client in range(self.clients)
        ]

    def _read_own(
        self, client: int, told: ScoreMoments, batch: WorldBatch, release: int, found: Mapping[Answer, Message]
    ) -> Floats:
        """Return the Epsilon* that a client told of its shard, refused if it cannot be one."""
        reply = found[Answer(client, _MOMENTS, batch.name)]
        star = _floats(reply, Key.EPSILON_STAR, batch, client, release, finite=False)
        possible = np.where(told.count >= 2, star >= 0, np.isnan(star))
        self._refuse_unsound({client: bool(possible.all())}, "Epsilon* of its shard", release)
        return star

    @staticmethod
    def _refuse_unsound(sound: Mapping[int, bool], what: str, release: int) -> None:
        for client, is_sound in sound.items():
            if not is_sound:
                raise FederationError(f"round {release}: client {client} sent what cannot be {what}")


_RANGE_KEYS = (Key.COUNT, Key.LOW, Key.HIGH)
_MOMENTS_KEYS = (Key.COUNT, Key.MEAN, Key.SQUARES)


def _floats(reply: Message, key: Key, batch: WorldBatch, client: int, release: int, finite: bool = True) -> Floats:
    """Return one array (worlds,) of a reply, checked."""
    array = read_array(reply, key, (batch.count,), np.float64, client, release, finite)
    return array.astype(np.float64)
