"""The public description of a federation, which every party knows, as one immutable value.

It is sent in messages and stored in every run directory. A party that has it and the data files derives the same
records, neighbours, shards and model. It holds no secret: secret bits and noise come from the challenger's seed.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

import numpy as np
from pydantic import TypeAdapter

from fl_audit.adjacency import NeighbourPair, Relation, Unit
from fl_audit.array_types import Floats, Integers
from fl_audit.data.catalogue import DataSpec
from fl_audit.data.partition import PartitionScheme, UsersAcrossClients
from fl_audit.data.randomizers import LocalRandomizer
from fl_audit.device import Device
from fl_audit.errors import require
from fl_audit.federation.observed_rounds import InsiderView, _require_view
from fl_audit.federation.target_membership import MembershipScheme
from fl_audit.learning.frozen_backbones import BackboneWeights
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, ThreatModel


@dataclass(frozen=True)
class Federation:
    """Public description of a federation, which every party knows."""

    data: DataSpec  # the source of records
    data_seed: int  # public seed that selects records, neighbours and shards, apart from the seed of the run
    records: int  # n, size of the training set D
    test_records: int  # number of held-out records on which accuracy is measured
    # Number of records outside D and D' that serve Epsilon* as the population sample; where fewer than 2 are left, the
    # test records do.
    population_records: int
    clients: int  # number of data owners, at least 2 (a victim and an insider)
    partition: PartitionScheme  # scheme that divides D among the clients
    partition_parameters: tuple[tuple[str, bool | int | float | str], ...]  # of that scheme, by name
    pair: NeighbourPair  # difference of D and D': chosen once, so that no party has to search again
    model: str  # name of the model
    mechanism: Mechanism  # parts of a release
    rounds: int  # k, number of rounds
    view: InsiderView  # view that clients have of a round
    threads: int = 1  # threads each party computes with; sums differ in their last bits between thread counts
    device: Device = Device.CPU  # device of clients and evaluator; last bits of sums differ between devices
    tf32: bool = False  # whether a graphics card rounds factors to ten bits
    audit: str = "identifiability"  # kind of audit, by its name in `fl_audit.audits.registry`
    with_insider: bool = (
        True  # whether the insider is asked about the releases. Without it a distribution may make no guarantee.
    )
    threat_model: ThreatModel = CLIENT_ALONE  # from where the insider looks
    insiders: int = 1  # number of clients that attack, each by itself; 1 and more, and fewer than there are clients
    # Number of units that are in with probability 1/2 in each trial, independently: 1 in the identifiability audit,
    # whose target is that of the pair; from 2 in the membership audit, whose pair names the first of them.
    targets: int = 1
    # Number of records' worth of gradient that a malicious insider adds to its contribution for each target, to push
    # the targets' losses up; 0 is an honest one.
    ascent: float = 0.0
    # Scheme that draws the targets of a trial: each by a coin of its own, or exactly one if they are candidates.
    membership_scheme: MembershipScheme = MembershipScheme.BY_COINS
    # Probability of each of these candidates before anything is seen: positive or 0, with a sum of 1, as many as there
    # are targets. Empty where all are equally likely.
    candidate_prior: tuple[float, ...] = ()
    # The column whose values are the candidates: the differing record has one of them in each trial. None where the
    # candidates are units of D.
    candidate_column: str | None = None
    weights: BackboneWeights | None = None  # file of the model's frozen core, which every party reads; None without one
    # Mechanism by which every owner randomises its own records, once, before anything is trained on them; None without
    # one. Its draws are secret, so nobody else can recompute what an owner contributes, and there is no insider.
    local_randomizer: LocalRandomizer | None = None
    # Number of canaries that take part in every round, each by the toss of a coin: clients of their own beside the
    # others, or, where clients train privately, records of the client that holds the first target. 0 without canaries.
    canaries: int = 0
    # Number of users that the records of D have, if users are units, and the treatment of those whose records lie at
    # several clients; 0 if users are no units.
    users: int = 0
    user_across_clients: UsersAcrossClients = UsersAcrossClients.REFUSE

    def __post_init__(self) -> None:
        require(self.clients >= 1, f"clients is {self.clients}: accepted are 1 and more")
        require(self.rounds >= 1, f"rounds is {self.rounds}: accepted are 1 and more")
        require(self.targets >= 1, f"targets is {self.targets}: accepted are 1 and more")
        most, are_some = self.clients - 1, 1 <= self.insiders < max(2, self.clients)
        require(are_some, f"insiders is {self.insiders}: accepted are 1 to {most}, all clients but the victim")
        if self.pair.crafted is not None:
            self._require_craftable()
        if self.mechanism.unit is Unit.USER:
            self._require_users()
        if self.local_randomizer is not None:
            self._require_randomisable(self.local_randomizer.kind)
        _require_view(self.view, self.mechanism)
        self.mechanism.noise.require_rounds(self.rounds)

    @property
    def units(self) -> int:
        """Number of units in D: records (including all candidates for the differing record), users, or clients."""
        match self.mechanism.unit:
            case Unit.RECORD:
                return self.records_held
            case Unit.USER:
                return self.users
            case Unit.CLIENT:
                return self.clients
            case _:
                assert_never(self.mechanism.unit)

    @property
    def records_held(self) -> int:
        """Number of records that the owners hold, including candidates that are never in the same trial."""
        return self.records + (0 if self.candidate_column is None else self.targets - 1)

    @property
    def prior_of_candidates(self) -> Floats:
        """Prior probability of each target if exactly one of them is in a trial; float64 (targets,)."""
        return np.array(self.candidate_prior or (1 / self.targets,) * self.targets, dtype=np.float64)

    @property
    def nodes(self) -> int:
        """Number of Flower nodes: the clients and the canary clients."""
        return self.clients + (0 if isinstance(self.mechanism.contribution, PrivateTraining) else self.canaries)

    def is_canary(self, client: int) -> bool:
        """Return whether a client is a canary client, which holds no data and sends only its canary."""
        return client >= self.clients

    @property
    def is_secretly_sampled(self) -> bool:
        """Whether units are sampled and the insider does not see in which rounds the differing unit participates."""
        return self.mechanism.is_sampled and not self.threat_model.sees_participation

    @property
    def clients_draw(self) -> bool:
        """Whether clients draw secret random numbers from seeds of their own, for noise or for randomizing records."""
        return self.mechanism.clients_add_noise or self.local_randomizer is not None

    def _require_users(self) -> None:
        """Raise `InputError` if users are the units and D has fewer than two, or records are randomised locally."""
        require(self.users >= 2, f"D has {self.users} users: at least 2 are needed where users are units")
        adjacency = f"adjacency '{self.mechanism.adjacency}'"
        require(self.local_randomizer is None, f"randomizer with {adjacency}, whose units are users: leave it out")

    def _require_craftable(self) -> None:
        """Raise `InputError` if a crafted record is used with users or clients as units, or with several targets."""
        adjacency = self.mechanism.adjacency
        of_one = adjacency.unit is Unit.RECORD and self.targets == 1
        require(of_one, "the neighbour is crafted: accepted is the identifiability audit about a record")
        is_replaced = adjacency.relation is Relation.REPLACE or self.pair.opposite is None
        require(is_replaced, f"the neighbour has an opposite with adjacency '{adjacency}': accepted is replace-record")

    def _require_randomisable(self, name: str) -> None:
        """Raise `InputError` if owners randomise their records and clients train by DP-SGD as well."""
        is_private, found = isinstance(self.mechanism.contribution, PrivateTraining), "strategy is 'dp-sgd-clients'"
        require(not is_private, f"{found} with local-randomizer = '{name}': accepted are 'dp-fedsgd' and 'dp-fedavg'")

    def cohort(self, server_round: int) -> Integers | None:
        """Return the clients that may participate in a round, ascending; None if all may."""
        return self.turn(server_round) if self.mechanism.contribution.unit is Unit.CLIENT else None

    def turn(self, server_round: int) -> Integers | None:
        """Return the units that may participate in a round, ascending, e.g. with cyclic cohorts; None if all may."""
        return self.mechanism.participation.members(self.data_seed, server_round)

    def to_json(self) -> str:
        """Return the federation as JSON."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    @lru_cache(maxsize=4)
    def from_json(text: str) -> "Federation":
        """Return the federation that `to_json` wrote.

        The result is cached, because every message of a run contains the same federation.
        """
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Federation)
