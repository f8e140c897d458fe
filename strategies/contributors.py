"""Who is asked to contribute to a round, and in which worlds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, assert_never

import numpy as np
import torch
from flwr.app.typing import ConfigRecordValues
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.game.membership import Membership
from fl_audit.game.public import PublicGame
from fl_audit.mechanisms.participation import Everybody, FixedCohort, PoissonSampling
from fl_audit.protocol import Key, pack_participation
from fl_audit.worlds import WorldBatch


class Challenger(Protocol):
    """Who holds what is secret: who is in, and the seeds of samples and noise."""

    def membership(self, worlds: Sequence[int]) -> Membership:
        """Return which targets are in, world by world."""

    def participation(
        self, worlds: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> NDArray[np.bool_]:
        """Return which of a client's records take part in a round, (worlds, records)."""

    def client_participation(
        self, worlds: Sequence[int], server_round: int, clients: int, sampling_rate: float
    ) -> NDArray[np.bool_]:
        """Return which clients take part in a round, (worlds, clients)."""

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return float32 standard normal draws (worlds, size) of a round."""

    def quantile_normals(self, worlds: Sequence[int], server_round: int) -> Tensor:
        """Return standard normal draws, float64 (worlds,), for the bits of an adaptive norm."""

    def noise_seed(self, client: int) -> int:
        """Return the seed of a client's own noise, 0 to 2**63 - 1."""


@dataclass(frozen=True)
class Roster:
    """Who is who in a federation.

    Parameters
    ----------
    nodes
        Node id of each partition, by partition.
    targets
        By partition, the targets of the game that it holds.
    insiders
        Partitions of the insiders, with those of the colluders of each.
    shards
        Which units each partition holds: indices of records of D, or the client itself.
    units
        Number of all units.
    """

    nodes: dict[int, int]
    targets: tuple[tuple[int, ...], ...]
    insiders: dict[int, tuple[int, ...]]
    shards: tuple[NDArray[np.int64], ...]
    units: int

    @property
    def partitions(self) -> dict[int, int]:
        """Partition of each node id."""
        return {node: partition for partition, node in self.nodes.items()}

    @property
    def victim(self) -> int:
        """Partition that holds the first target."""
        return next(client for client, held in enumerate(self.targets) if 0 in held)


@dataclass(frozen=True)
class Asked:
    """A client that is asked to contribute.

    Parameters
    ----------
    client
        Its partition.
    rows
        In which worlds of the batch, ascending; None is in all of them.
    more
        What it is told beside the models.
    """

    client: int
    rows: NDArray[np.int64] | None = None
    more: dict[str, ConfigRecordValues] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """Everybody who is asked to contribute to a round of a batch.

    Parameters
    ----------
    asked
        The clients, ascending.
    taking_part
        Which units take part, bool (worlds, units), where a secret sample does; None elsewhere.
    """

    asked: tuple[Asked, ...]
    taking_part: Tensor | None = None


def call_of(public: PublicGame, roster: Roster, challenger: Challenger, batch: WorldBatch, server_round: int) -> Call:
    """Return who is asked to contribute to a round.

    Parameters
    ----------
    public
        The public game, with its release law.
    roster
        Who is who.
    challenger
        Draws the samples.
    batch
        The worlds.
    server_round
        The round, from 1.
    """
    clients = range(public.clients)
    match public.law.participation, public.law.unit:
        case Everybody(), _:
            return Call(tuple(Asked(client) for client in clients))
        case FixedCohort() as cohorts, _:
            return Call(tuple(Asked(int(client)) for client in cohorts.members(public.data_seed, server_round)))
        case PoissonSampling(rate), Unit.RECORD:
            return _sampled_records(roster, challenger, batch, server_round, rate)
        case PoissonSampling(rate), Unit.CLIENT:
            drawn = challenger.client_participation(batch.worlds, server_round, public.clients, rate)
            asked = [Asked(client, np.flatnonzero(drawn[:, client])) for client in clients if drawn[:, client].any()]
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
        asked.append(Asked(client, None, {Key.PARTICIPATION: pack_participation(drawn)}))
    return Call(tuple(asked), torch.from_numpy(taking_part))
