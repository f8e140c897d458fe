"""Public description of a federation as one immutable value, which every party knows.

Messages and run directories contain this value. From the value and the data files, every party derives the same
records, neighbouring data sets, shards (the clients' parts of the data) and model. The value contains no secret. Secret
bits and noise come from the seed of the challenger, the party that draws the secrets of an audit.
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
from fl_audit.federation.observed_rounds import _require_view
from fl_audit.federation.target_membership import MembershipScheme
from fl_audit.learning.frozen_backbones import BackboneWeights
from fl_audit.mechanisms.contribution import LocalTraining, PrivateTraining
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, InsiderView, ThreatModel


@dataclass(frozen=True)
class Federation:
    """Public description of a federation: data, clients, model, mechanism, kind of audit."""

    data: DataSpec  # the source of records
    data_seed: int  # public seed that selects records, neighbours and shards; independent of the seed of the run
    records: int  # n, size of the training set D
    test_records: int  # number of held-out records on which accuracy is measured
    # Number of records outside D and D' in the population sample for Epsilon*; if fewer than 2 are left, the test
    # records are the sample.
    population_records: int
    clients: int  # number of data owners, at least 1, and 2 with an insider (a victim and the insider)
    partition: PartitionScheme  # scheme that divides D among the clients
    partition_parameters: tuple[tuple[str, bool | int | float | str], ...]  # parameters of the scheme, by name
    pair: NeighbourPair  # difference of D and D', chosen once for all parties
    model: str  # name of the model
    mechanism: Mechanism  # parts of a release
    rounds: int  # k, number of rounds
    view: InsiderView  # view that clients have of a round
    threads: int = 1  # threads of each party; sums differ in their last bits between thread counts
    device: Device = Device.CPU  # device of clients and evaluator; last bits of sums differ between devices
    audit: str = "identifiability"  # kind of audit, by its name in `fl_audit.audits.registry`
    # Whether the insider is asked about the releases; only without it may the mechanism have no guarantee.
    with_insider: bool = True
    threat_model: ThreatModel = CLIENT_ALONE  # position and knowledge of the adversary
    # Number of targets: units that are in each trial's training set independently with probability 1/2. It is 1 in the
    # identifiability audit, whose target is the differing unit of the pair, and at least 2 in the membership audit.
    targets: int = 1
    # Factor of the targets' negative gradients that a malicious insider adds to its contribution, to raise the targets'
    # losses (gradient ascent); 0 for an honest insider.
    ascent: float = 0.0
    # Scheme that draws which targets are members in a trial: each by its own coin, or exactly one if they are
    # candidates.
    membership_scheme: MembershipScheme = MembershipScheme.BY_COINS
    # Prior probability of each candidate (one per target, at least 0, with sum 1); empty if all are equally likely.
    candidate_prior: tuple[float, ...] = ()
    # Column whose values are the candidates: the differing record has one of these values in each trial. None if the
    # candidates are units of D.
    candidate_column: str | None = None
    weights: BackboneWeights | None = None  # file of the model's frozen core, which every party reads; None without one
    # Mechanism by which every owner randomises its own records once, before training on them; None without
    # randomization. Its draws are secret, so nobody else can recompute a contribution, and there is no insider.
    local_randomizer: LocalRandomizer | None = None
    # Number of canaries, each of which participates in a round with probability 1/2; 0 without canaries. They are
    # additional clients or, if clients train by DP-SGD, records of the client that holds the first target.
    canaries: int = 0
    # Number of users in D if users are the units, otherwise 0; the next field decides what happens to users whose
    # records lie at several clients.
    users: int = 0
    user_across_clients: UsersAcrossClients = UsersAcrossClients.REFUSE
    # Flower strategy that makes the next model in the place of the mechanism's optimizer: a name in
    # `fl_audit.strategies.aggregation_registry`, or `package.module:factory`; None for the optimizer.
    aggregation: str | None = None

    def __post_init__(self) -> None:
        require(self.clients >= 1, f"clients is {self.clients}: accepted are 1 and more")
        require(self.rounds >= 1, f"rounds is {self.rounds}: accepted are 1 and more")
        require(self.targets >= 1, f"targets is {self.targets}: accepted are 1 and more")
        if self.pair.crafted is not None:
            self._require_craftable()
        if self.mechanism.unit is Unit.USER:
            self._require_users()
        if self.local_randomizer is not None:
            self._require_randomisable(self.local_randomizer)
        _require_view(self.view, self.mechanism)
        if self.aggregation is not None:
            problem = f"view is '{self.view}' with an aggregation, whose steps cannot be inverted"
            require(self.view is InsiderView.UPDATE, f"{problem}: accepted is 'update'")
        self.mechanism.noise.require_rounds(self.rounds)

    @property
    def units(self) -> int:
        """Number of units in D: records, users or clients, depending on the adjacency.

        If there are several candidates for the differing record, all of them are counted, although a trial contains
        only one.
        """
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
        """Number of records that the clients hold, including all candidates for the differing record."""
        return self.records + (0 if self.candidate_column is None else self.targets - 1)

    @property
    def prior_of_candidates(self) -> Floats:
        """Prior probability that each target is the member, float64 (targets,), if a trial has exactly one."""
        return np.array(self.candidate_prior or (1 / self.targets,) * self.targets, dtype=np.float64)

    @property
    def nodes(self) -> int:
        """Number of Flower nodes: the clients and the canary clients."""
        return self.clients + (0 if isinstance(self.mechanism.contribution, PrivateTraining) else self.canaries)

    def is_canary(self, client: int) -> bool:
        """Return True if the client with this number is a canary client, which holds no data and sends only a canary.

        A canary is a test contribution whose participation is random.
        """
        return client >= self.clients

    @property
    def aggregates_clients(self) -> bool:
        """Whether a Flower strategy sees the models of single clients, because nothing is guaranteed.

        Otherwise an aggregation acts on the released mean.
        """
        is_trained = isinstance(self.mechanism.contribution, LocalTraining)
        return self.aggregation is not None and is_trained and not self.mechanism.adds_noise

    @property
    def is_secretly_sampled(self) -> bool:
        """Whether units are sampled and the adversary does not see in which rounds the differing unit participates."""
        return self.mechanism.is_sampled and not self.threat_model.sees_participation

    @property
    def clients_draw(self) -> bool:
        """Whether clients draw secret random numbers from their own seeds, for noise or to randomise their records."""
        return self.mechanism.clients_add_noise or self.local_randomizer is not None

    def _require_users(self) -> None:
        require(self.users >= 2, f"D has {self.users} users: at least 2 are needed where users are units")
        adjacency = f"adjacency '{self.mechanism.adjacency}'"
        require(self.local_randomizer is None, f"randomizer with {adjacency}, whose units are users: leave it out")

    def _require_craftable(self) -> None:
        """Raise `InputError` if a crafted record does not suit the federation's units, targets or adjacency.

        The federation must have a single target, and its unit must be a record. A crafted replacement in D', the
        opposite of the target record, is possible only if the adjacency replaces a record.
        """
        adjacency = self.mechanism.adjacency
        of_one = adjacency.unit is Unit.RECORD and self.targets == 1
        require(of_one, "the neighbour is crafted: accepted is the identifiability audit about a record")
        is_replaced = adjacency.relation is Relation.REPLACE or self.pair.opposite is None
        require(is_replaced, f"the neighbour has an opposite with adjacency '{adjacency}': accepted is replace-record")

    def _require_randomisable(self, randomizer: LocalRandomizer) -> None:
        """Raise `InputError` if records are randomised by their owners although clients train with DP-SGD."""
        is_private = isinstance(self.mechanism.contribution, PrivateTraining)
        problem = "strategy is 'dp-sgd-clients'"
        require(
            not is_private,
            f"{problem} with local-randomizer = '{randomizer.kind}': accepted are 'dp-fedsgd' and 'dp-fedavg'",
        )

    def cohort(self, server_round: int) -> Integers | None:
        """Return the numbers of the clients that may participate in a round, ascending.

        None if every client may participate, or if units are records or users.
        """
        return self.eligible_units(server_round) if self.mechanism.contribution.unit is Unit.CLIENT else None

    def eligible_units(self, server_round: int) -> Integers | None:
        """Return the numbers of the units that may participate in a round, ascending.

        None if every unit may participate.
        """
        return self.mechanism.participation.eligible_units(self.data_seed, server_round)

    def to_json(self) -> str:
        """Return the federation as JSON."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    @lru_cache(maxsize=4)
    def from_json(text: str) -> "Federation":
        """Return the federation whose JSON `to_json` returned; the last four results are cached."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Federation)
