"""Queries from which the server computes Epsilon* of releases; clients send extremes and moments, and no single loss.

Epsilon* (Negoescu et al. 2023) is the privacy risk of one released model, computed from its losses on members and on a
population sample. The queries about release i are sent while clients work on later rounds. Messages that are sent
together are an exchange (see `queries`). Exchange i + 1 asks for the range of the losses on release i. Exchange i + 2
asks for the moments of the scores, because the server has evaluated the population by then.

The server learns the extremes and the moments of each client's losses. For a client with one record, they reveal the
loss itself. Every client learns the range of all losses, and so does an adversary among the clients. The range consists
of extreme losses of members without noise, which no guarantee covers. The adversary of this simulation does not use it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, Message

from fl_audit.array_packing import pack
from fl_audit.array_types import Floats
from fl_audit.errors import FederationError
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.message_keys import Key, NonTrainingQuery, models_key
from fl_audit.released_model import loss_moments as moments
from fl_audit.released_model.loss_moments import LossRange, ScoreMoments
from fl_audit.released_model.parametric_star import StarSettings
from fl_audit.strategies.queries import BatchTrainingState, RunQueries, WriteMessage
from fl_audit.strategies.reply_checks import ReplyIdentity, read_array
from fl_audit.trial_batches import TrialBatch

_RANGE, _MOMENTS = f"query.{NonTrainingQuery.LOSS_RANGE}", f"query.{NonTrainingQuery.LOSS_MOMENTS}"
_TOLD = {_RANGE: (Key.COUNT, Key.LOW, Key.HIGH), _MOMENTS: (Key.COUNT, Key.MEAN, Key.SQUARES)}


@dataclass
class EpsilonStarQueries(RunQueries):
    """Queries for range and moments of clients' losses, from which the Epsilon* of released models is computed."""

    settings: StarSettings  # delta and cut of Epsilon*
    releases: Sequence[int]  # numbers of the releases that are asked about, ascending
    batches: Sequence[TrialBatch]  # batches of trials; all are trained at once
    clients: int  # number of clients
    # Function that returns the losses (trials, p) of p records of the population on the given release. It waits for
    # them if necessary, and is called once for each batch of trials and release.
    population: Callable[[TrialBatch, int], Floats]
    # The next three are keyed by the name of the batch of trials.
    # Epsilon* of each release, (trials,), in ascending order.
    _star: dict[str, list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))
    _ranges: dict[str, LossRange] = field(init=False, default_factory=dict)  # latest joint range of clients' losses
    _population: dict[str, ScoreMoments] = field(init=False, default_factory=dict)  # latest moments of the population

    @property
    def last_exchange(self) -> int:
        """Number of the last exchange of messages that carries a query.

        The last query about release i is in exchange i + 2, so the result is the number of the last evaluated release
        plus 2.
        """
        return max(self.releases) + 2

    def _queries_in(self, exchange: int) -> list[tuple[str, int]]:
        """Return the queries of an exchange as (kind of query, number of the release).

        The query for moments comes first, because it uses the range of losses that clients reported in the exchange
        before. The answers to the query for ranges replace that range.
        """
        queries = [(_MOMENTS, exchange - 2), (_RANGE, exchange - 1)]
        return [(kind, release) for kind, release in queries if release in self.releases]

    def messages(
        self,
        exchange: int,
        transcripts: Mapping[str, BatchTrainingState],
        to_observer: WriteMessage,
        to_owner: WriteMessage,
    ) -> list[Message]:
        """Return the messages of an exchange: one for each batch of trials, kind of query and client.

        An exchange is all messages that are sent together; `exchange` is its number, from 1. `transcripts` has the
        latest models of each batch. `to_owner` builds each message; `to_observer` is not used.
        """
        newest = min(exchange - 1, max(self.releases))
        written = []
        for batch in self.batches:
            for kind, release in self._queries_in(exchange):
                models = transcripts[batch.name].models[release - newest - 1].numpy()
                arrays_beside = self._sent_beside_models(batch, release) if kind == _MOMENTS else {}
                arrays = ArrayRecord(
                    {key: Array(*pack(array)) for key, array in {models_key(0): models, **arrays_beside}.items()}
                )
                written += [to_owner(client, kind, batch, release, arrays, {}) for client in range(self.clients)]
        return written

    def answers(self, exchange: int) -> list[ReplyIdentity]:
        """Return the keys of the answers expected in an exchange."""
        queries, clients = self._queries_in(exchange), range(self.clients)
        return [
            ReplyIdentity(client, kind, batch.name)
            for kind, _ in queries
            for batch in self.batches
            for client in clients
        ]

    def read_answers(self, exchange: int, messages: Mapping[ReplyIdentity, Message]) -> None:
        """Read the answers of an exchange of messages; raise `FederationError` if an answer is missing or invalid."""
        for batch in self.batches:
            for kind, release in self._queries_in(exchange):
                replies = [messages[ReplyIdentity(client, kind, batch.name)] for client in range(self.clients)]
                values_by_client = [
                    [_floats(reply, key, batch, n, release) for key in _TOLD[kind]] for n, reply in enumerate(replies)
                ]
                if kind == _MOMENTS:
                    self._keep(batch, release, [ScoreMoments(*moments) for moments in values_by_client])
                else:
                    ranges = [LossRange(*moments) for moments in values_by_client]
                    _refuse_unsound([loss_range.is_sound for loss_range in ranges], "a range of losses", release)
                    self._ranges[batch.name] = moments.joint_range(ranges)

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return a column `epsilon_star` for the tables of trials and of releases.

        In the table of trials, the column is Epsilon* of the last release, (trials,). In the table of releases, the
        column is Epsilon* of each evaluated release, (trials, releases).
        """
        star = np.stack(self._star[batch.name], axis=1)
        return TrialBatchColumns(trials={"epsilon_star": star[:, -1]}, releases={"epsilon_star": star})

    def _sent_beside_models(self, batch: TrialBatch, release: int) -> dict[str, Floats]:
        """Return the range of all losses, which the server sends to clients when it asks for moments of their scores.

        The moments of the scores of the population are kept.
        """
        losses = self.population(batch, release)
        extremes = moments.joint_range([self._ranges[batch.name], moments.range_of(losses)])
        self._population[batch.name] = moments.moments_of(losses, extremes.low, extremes.high)
        return {Key.LOW: extremes.low, Key.HIGH: extremes.high}

    def _keep(self, batch: TrialBatch, release: int, client_moments: Sequence[ScoreMoments]) -> None:
        _refuse_unsound([summary.is_sound for summary in client_moments], "moments of scores", release)
        population = self._population[batch.name]
        members = moments.joint_moments(client_moments)
        star = moments.epsilon_star_of_moments(members, population, self.settings.delta, self.settings.cut)
        self._star[batch.name].append(star)


def _refuse_unsound(sound: Sequence[bool], subject: str, release: int) -> None:
    for client, is_sound in enumerate(sound):
        if not is_sound:
            raise FederationError(f"round {release}: client {client} sent what cannot be {subject}")


def _floats(reply: Message, key: Key, batch: TrialBatch, client: int, release: int) -> Floats:
    """Return the array `key` of a reply, float64 (trials,); raises `FederationError` if it is missing or invalid."""
    return read_array(reply, key, (batch.count,), np.float64, client, release).copy()
