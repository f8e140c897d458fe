"""Who is asked to contribute to a round, and in which worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

import numpy as np
import torch
from flwr.app.typing import ConfigRecordValues
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.arrays import Flags, Integers
from fl_audit.game.membership import Membership
from fl_audit.game.public import PublicGame
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.participation import Everybody, FixedCohort, PoissonSampling
from fl_audit.protocol import Key, pack_participation
from fl_audit.worlds import WorldBatch


class Challenger(Protocol):
    """Who holds what is secret: who is in, and the seeds of samples and noise."""

    def membership(self, worlds: Sequence[int]) -> Membership:
        """Return which targets are in, world by world."""

    def participation(
        self, worlds: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> Flags:
        """Return which of a client's records take part in a round, (worlds, records).

        Parameters
        ----------
        worlds
            Numbers of the worlds.
        server_round
            The round, from 1.
        client
            Number of the client.
        records
            How many records it has.
        sampling_rate
            Probability that a record takes part, in (0, 1].
        """

    def client_participation(
        self, worlds: Sequence[int], server_round: int, clients: int, sampling_rate: float
    ) -> Flags:
        """Return which clients take part in a round, (worlds, clients).

        Parameters
        ----------
        worlds
            Numbers of the worlds.
        server_round
            The round, from 1.
        clients
            How many clients there are.
        sampling_rate
            Probability that a client takes part, in (0, 1].
        """

    def coins(self, worlds: Sequence[int], server_round: int, canaries: int) -> Flags:
        """Return which canaries are in, in a round, (worlds, canaries).

        Parameters
        ----------
        worlds
            Numbers of the worlds.
        server_round
            The round, from 1.
        canaries
            How many canaries there are.
        """

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return float32 standard normal draws (worlds, size) of a round.

        Parameters
        ----------
        worlds
            Numbers of the worlds.
        server_round
            The round, from 1.
        size
            How many draws each world needs.
        """

    def quantile_normals(self, worlds: Sequence[int], server_round: int) -> Tensor:
        """Return standard normal draws, float64 (worlds,), for the bits of an adaptive norm.

        Parameters
        ----------
        worlds
            Numbers of the worlds.
        server_round
            The round, from 1.
        """

    def noise_seed(self, client: int) -> int:
        """Return the seed of a client's own noise, 0 to 2**63 - 1."""


@dataclass(frozen=True)
class Roster:
    """Who is who in a federation."""

    nodes: Sequence[int]  # node id of each partition
    targets: Mapping[int, tuple[int, ...]]  # the targets of the game that a partition holds, of those that hold any
    insiders: dict[int, tuple[int, ...]]  # partitions of the insiders, with those of the colluders of each
    shards: tuple[Integers, ...]  # which units each partition holds: indices of records of D, or the client itself
    units: int  # number of all units

    @property
    def victim(self) -> int:
        """Partition that holds the first target."""
        return next(client for client, held in self.targets.items() if 0 in held)


@dataclass(frozen=True)
class AskedClient:
    """A client that is asked to contribute."""

    client: int  # its partition
    rows: Integers | None = None  # in which worlds of the batch, ascending; None is in all of them
    more: dict[str, ConfigRecordValues] = field(default_factory=dict)  # what it is told beside the models


@dataclass(frozen=True)
class Call:
    """Everybody who is asked to contribute to a round of a batch."""

    asked: tuple[AskedClient, ...]  # the clients, ascending
    # Which units take part, bool (worlds, units), where a secret sample does; None elsewhere.
    taking_part: Tensor | None = None


def call_of(public: PublicGame, roster: Roster, challenger: Challenger, batch: WorldBatch, server_round: int) -> Call:
    """Return who is asked to contribute to a round.

    Parameters
    ----------
    public
        The public game, with its release law.
    roster
        Which client holds which partition.
    challenger
        Draws who takes part.
    batch
        The worlds.
    server_round
        The round, from 1.

    Raises
    ------
    AssertionError
        Never: a participation without units is refused when the law is made.
    """
    call = _without_canaries(public, roster, challenger, batch, server_round)
    if public.canaries == 0:
        return call
    coins = challenger.coins(batch.worlds, server_round, public.canaries)
    if isinstance(public.law.contribution, PrivateTraining):
        told: dict[str, ConfigRecordValues] = {Key.COINS: coins.tobytes()}
        asked = (replace(one, more=one.more | told) if one.client == roster.victim else one for one in call.asked)
        return replace(call, asked=tuple(asked))
    worlds = list(batch.worlds)
    added = (
        AskedClient(public.clients + one, None, {Key.COINS: coins[:, one].tobytes(), Key.WORLDS: worlds})
        for one in range(public.canaries)
    )
    return replace(call, asked=(*call.asked, *added))


def _without_canaries(
    public: PublicGame, roster: Roster, challenger: Challenger, batch: WorldBatch, server_round: int
) -> Call:
    clients = range(public.clients)
    match public.law.participation, public.law.unit:
        case Everybody(), _:
            return Call(tuple(AskedClient(client) for client in clients))
        case FixedCohort() as cohorts, _:
            return Call(tuple(AskedClient(int(client)) for client in cohorts.members(public.data_seed, server_round)))
        case PoissonSampling(rate), Unit.RECORD:
            return _sampled_records(roster, challenger, batch, server_round, rate)
        case PoissonSampling(rate), Unit.CLIENT:
            drawn = challenger.client_participation(batch.worlds, server_round, public.clients, rate)
            asked = [
                AskedClient(client, np.flatnonzero(drawn[:, client])) for client in clients if drawn[:, client].any()
            ]
            return Call(tuple(asked), torch.from_numpy(drawn))
        case _:
            assert_never((public.law.participation, public.law.unit))
    raise AssertionError("every participation has its units")


def _sampled_records(roster: Roster, challenger: Challenger, batch: WorldBatch, server_round: int, rate: float) -> Call:
    taking_part = np.zeros((batch.count, roster.units), dtype=np.bool_)
    asked = []
    for client, shard in enumerate(roster.shards):
        drawn = challenger.participation(batch.worlds, server_round, client, len(shard), rate)
        taking_part[:, shard] = drawn
        asked.append(AskedClient(client, None, {Key.PARTICIPATION: pack_participation(drawn)}))
    return Call(tuple(asked), torch.from_numpy(taking_part))
