"""Queries for Epsilon* of releases without pooled losses: clients send only extremes and moments of their losses.

The queries about release i are sent while the clients work on later rounds. Exchange i + 1 (see `queries`) asks for the
range of the losses on release i. Exchange i + 2 asks for the moments of the scores, since the server has evaluated the
population by then. With a public range of losses the first query is not sent.

The server learns the moments of each shard, which for a shard of one record are its loss. Without a public range it
also learns the extremes of each shard. Every client, including the insider, learns the moments of the population and
the range in use. A range from the owners contains extreme losses of members without noise, which no guarantee covers,
so a deployment should set a public range. The insider of this simulation does not use the range. The server could
compute Epsilon* of a shard by itself, because it follows from the shard's moments.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, Message

from fl_audit.array_packing import pack
from fl_audit.array_types import Floats
from fl_audit.federation.result_columns import ResultColumns
from fl_audit.protocol import Key, NonTrainingQuery, models_key
from fl_audit.released_model import loss_moments as moments
from fl_audit.released_model.epsilon_star import StarSettings
from fl_audit.released_model.loss_moments import LossRange, ScoreMoments
from fl_audit.strategies.errors import FederationError
from fl_audit.strategies.queries import BatchProgress, More, RunQueries, WriteMessage
from fl_audit.strategies.replies import Answer, read_array
from fl_audit.trials import TrialBatch

_RANGE, _MOMENTS = f"query.{NonTrainingQuery.LOSS_RANGE}", f"query.{NonTrainingQuery.LOSS_MOMENTS}"
_TOLD = {_RANGE: (Key.COUNT, Key.LOW, Key.HIGH), _MOMENTS: (Key.COUNT, Key.MEAN, Key.SQUARES)}


@dataclass(frozen=True)
class FederatedLosses:
    """Settings of Epsilon* without pooled losses."""

    star: StarSettings  # delta and cut of Epsilon*
    # Public range to which losses are clipped and by which they are normalised; None if clients report their extremes.
    loss_range: tuple[float, float] | None = None
    client_epsilon_star: bool = False  # whether clients tell the server Epsilon* of their own shards


@dataclass
class EpsilonStarQueries(RunQueries):
    """Queries for ranges and moments of losses in some batches of trials, and Epsilon* computed from the answers."""

    settings: FederatedLosses  # settings of the queries
    releases: Sequence[int]  # numbers of the releases that are asked about, ascending
    batches: Sequence[TrialBatch]  # the batches of trials that are trained together
    clients: int  # number of clients
    # Returns the losses (trials, p) of the population sample on a release, and waits for them if necessary; called once
    # for each batch of trials and release.
    population: Callable[[TrialBatch, int], Floats]
    # For each batch of trials, one array per release: Epsilon* (trials,), and Epsilon* of each shard (trials, clients)
    # if clients report it.
    _star: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))
    _client_star: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))
    _ranges: dict[str, LossRange] = field(init=False, default_factory=dict)
    _population: dict[str, ScoreMoments] = field(init=False, default_factory=dict)

    @property
    def last_exchange(self) -> int:
        """Number of the exchange with the query for moments on the last release: two after its round."""
        return max(self.releases) + 2

    def _asked(self, exchange: int) -> list[tuple[str, int]]:
        """Return the query kinds of an exchange, each with the number of its release.

        Moments come first, because they use the range of the previous release, which the other query replaces.
        """
        ranges = [(_RANGE, exchange - 1)] if self.settings.loss_range is None else []
        return [one for one in [(_MOMENTS, exchange - 2), *ranges] if one[1] in self.releases]

    def messages(
        self, exchange: int, transcripts: Mapping[str, BatchProgress], to_observer: WriteMessage, to_owner: WriteMessage
    ) -> list[Message]:
        """Return the queries of an exchange, one message per batch of trials, kind of query and client."""
        newest, star = min(exchange - 1, max(self.releases)), self.settings.star
        about: More = {Key.DELTA: star.delta, Key.CUT: star.cut, Key.REPORT: self.settings.client_epsilon_star}
        written = []
        for batch in self.batches:
            for kind, release in self._asked(exchange):
                models = transcripts[batch.name].models[release - newest - 1].numpy()
                said = self._said(batch, release) if kind == _MOMENTS else {}
                arrays = ArrayRecord({key: Array(*pack(one)) for key, one in {models_key(0): models, **said}.items()})
                more = about if kind == _MOMENTS else {}
                written += [to_owner(client, kind, batch, release, arrays, more) for client in range(self.clients)]
        return written

    def answers(self, exchange: int) -> list[Answer]:
        """Return the keys of the answers that an exchange must bring, one per query, batch of trials and client."""
        asked, clients = self._asked(exchange), range(self.clients)
        return [Answer(client, kind, batch.name) for kind, _ in asked for batch in self.batches for client in clients]

    def note(self, exchange: int, found: Mapping[Answer, Message]) -> None:
        """Record the answers of an exchange; raises `FederationError` for impossible ranges or moments."""
        for batch in self.batches:
            for kind, release in self._asked(exchange):
                replies = [found[Answer(client, kind, batch.name)] for client in range(self.clients)]
                told = [[_floats(one, key, batch, n, release) for key in _TOLD[kind]] for n, one in enumerate(replies)]
                if kind == _MOMENTS:
                    self._keep(batch, release, [ScoreMoments(*part) for part in told], replies)
                else:
                    ranges = [LossRange(*part) for part in told]
                    _refuse_unsound([part.is_sound for part in ranges], "a range of losses", release)
                    self._ranges[batch.name] = moments.joint_range(ranges)

    def columns(self, batch: TrialBatch) -> ResultColumns:
        """Return Epsilon* of the last and of every evaluated release, and of shards if clients report it."""
        found, own = {"epsilon_star": np.stack(self._star[batch.name], axis=1)}, self._client_star[batch.name]
        last = {"epsilon_star": found["epsilon_star"][:, -1]}
        return ResultColumns(
            trials=last, releases=found, clients={"epsilon_star": np.stack(own, axis=1)} if own else {}
        )

    def _said(self, batch: TrialBatch, release: int) -> dict[str, Floats]:
        """Return the arrays that a query for moments contains besides models: loss range and population moments."""
        losses = self.population(batch, release)
        if self.settings.loss_range is None:
            extremes = moments.joint_range([self._ranges[batch.name], moments.range_of(losses)])
            low, high = extremes.low, extremes.high
        else:
            low, high = (np.full(batch.count, end) for end in self.settings.loss_range)
        population = self._population[batch.name] = moments.moments_of(losses, low, high)
        beside: dict[str, Floats] = {Key.POPULATION_MEAN: population.mean, Key.POPULATION_SQUARES: population.squares}
        return {Key.LOW: low, Key.HIGH: high, Key.POPULATION_COUNT: population.count, **beside}

    def _keep(self, batch: TrialBatch, release: int, told: Sequence[ScoreMoments], replies: Sequence[Message]) -> None:
        _refuse_unsound([part.is_sound for part in told], "moments of scores", release)
        population, star = self._population[batch.name], self.settings.star
        joint = moments.joint_moments(told)
        self._star[batch.name].append(moments.epsilon_star_of_moments(joint, population, star.delta, star.cut))
        if self.settings.client_epsilon_star:
            own = [_floats(one, Key.EPSILON_STAR, batch, n, release, finite=False) for n, one in enumerate(replies)]
            possible = [np.where(part.count >= 2, one >= 0, np.isnan(one)) for part, one in zip(told, own, strict=True)]
            _refuse_unsound([bool(one.all()) for one in possible], "Epsilon* of its shard", release)
            self._client_star[batch.name].append(np.stack(own, axis=1))


def _refuse_unsound(sound: Sequence[bool], what: str, release: int) -> None:
    for client, is_sound in enumerate(sound):
        if not is_sound:
            raise FederationError(f"round {release}: client {client} sent what cannot be {what}")


def _floats(reply: Message, key: Key, batch: TrialBatch, client: int, release: int, finite: bool = True) -> Floats:
    """Return one float64 array (trials,) of a reply, after checks."""
    return read_array(reply, key, (batch.count,), np.float64, client, release, finite).copy()
