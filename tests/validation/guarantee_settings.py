"""Small federations for every combination of a mechanism's parts, made so that exact theory applies to them.

Logistic regression of two classes on records that are there twice, with either label. The gradients of a record with
one label and with the other are exactly opposite, whatever the model, and the clipping norm is so small that every
contribution is clipped. So a unit that comes or goes always changes a sum by the clipping norm, and one that is
replaced by its twin by twice that, and always in the same direction: the sensitivities are the largest that the
guarantee allows, in every round and every trial, while the models move.

Clients that train by DP-SGD have no exact theory. They train on the same records, in fewer rounds, because Opacus is
slow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from fl_audit.adjacency import Adjacency, NeighbourPair, Relation, Unit
from fl_audit.data.catalogue import load_source
from fl_audit.data.neighbours import replacement_positions
from fl_audit.data.record_selection import Split, select_records
from fl_audit.errors import InputError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.training_enums import ServerOptimizerKind
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.runs.planning import plan_run

Sections = dict[str, dict[str, Any]]

CLIENTS, ROUNDS = 6, 8
_FEATURES, _TWINS = 8, 30
_CLIPPING = 1e-4
_STEP = 0.03
"""Step of the server over the clipping norm: with a larger one, models are too sure of some records."""

_RATE = _STEP / _CLIPPING
STRATEGY: dict[str, Sections] = {
    "dp-fedsgd": {"training": {"learning-rate": _RATE}},
    "dp-fedavg": {"training": {"learning-rate": _RATE, "local-steps": 2, "local-batch": 4, "local-learning-rate": 0.5}},
    # A step takes every record of a client with probability 1/2, so that its accountant has to count on samples.
    "dp-sgd-clients": {"training": {"rounds": 4, "local-steps": 2, "local-batch": 2, "local-learning-rate": _RATE}},
}
PARTICIPATION: dict[str, Sections] = {
    "everybody": {},
    "sampled in secret": {"training": {"rate": 0.3}, "audit": {"participation": "secret"}},
    "sampled, seen": {"training": {"rate": 0.3}, "audit": {"participation": "seen"}},
    "cohort": {"training": {"cohort": CLIENTS // 2}},
}
LOCALLY_SCALED = "central, local sensitivity"
NOISE: dict[str, Sections] = {
    "central": {"privacy": {"noise": "central"}},
    LOCALLY_SCALED: {"privacy": {"noise": "central", "sensitivity": "local"}},
    "distributed": {"privacy": {"noise": "distributed"}},
    "local": {"privacy": {"noise": "local"}},
    "tree": {"privacy": {"noise": "tree"}},
    "banded": {"privacy": {"noise": "banded"}},
    "inside-training": {"privacy": {"noise": "inside-training"}},
}
ADVERSARY: dict[str, Sections] = {
    "client": {},
    "3 clients": {"audit": {"colluders": 2}},
    "server": {"audit": {"adversary": "server"}},
}
# The norm moves slowly: it must stay far under the length of every update.
CLIPPING: dict[str, Sections] = {"fixed": {}, "adaptive": {"privacy": {"clipping": "adaptive"}}}
_SHOWN: dict[str, Sections] = {"sums": {}, "models": {"audit": {"view": "model"}}}
# Adaptive steps are about as long as their learning rate.
_OPTIMIZERS: dict[str, Sections] = {
    str(kind): {"training": {"optimizer": str(kind)} | ({"learning-rate": _STEP} if kind.is_adaptive else {})}
    for kind in ServerOptimizerKind
}
RELEASE = {f"{choice}, {name}": _SHOWN[choice] | _OPTIMIZERS[name] for choice, name in product(_SHOWN, _OPTIMIZERS)}
"""The adversary's view of a release, and the server's optimizer."""


@dataclass(frozen=True)
class Combination:
    """One combination of the parts of a mechanism and of its adversary, by their names in the tables above."""

    strategy: str  # name of the strategy
    adjacency: Adjacency  # relation between neighbours
    participation: str = "everybody"  # name of the participation, which says as well whether the adversary sees it
    noise: str = "central"  # name of the noise
    clipping: str = "fixed"  # name of the clipping
    adversary: str = "client"  # the adversary
    release: str = "sums, sgd"  # the view of a release, and the server's optimizer

    def __str__(self) -> str:
        return ", ".join(self.parts())

    def parts(self) -> tuple[str, ...]:
        """Return the parts, in the order of `COLUMNS`."""
        mechanism = (self.strategy, str(self.adjacency), self.clipping, self.participation, self.noise)
        return (*mechanism, self.adversary, self.release)

    @property
    def usual(self) -> "Combination":
        """The same mechanism and adversary, with the usual view and optimizer."""
        return replace(self, release=next(iter(RELEASE)))

    @property
    def is_usual(self) -> bool:
        """Whether view and optimizer are the usual ones."""
        return self == self.usual

    def sections(self) -> tuple[Sections, ...]:
        """Return the settings of the parts in a configuration."""
        mechanism = (
            STRATEGY[self.strategy],
            PARTICIPATION[self.participation],
            NOISE[self.noise],
            CLIPPING[self.clipping],
        )
        return (*mechanism, ADVERSARY[self.adversary], RELEASE[self.release])


ADJACENCIES = tuple(choice for choice in Adjacency if choice.unit is not Unit.USER)
"""Relations of records and clients; users have the mechanisms of records, and are tested in tests/federation."""

COLUMNS = {
    "strategy": tuple(STRATEGY),
    "adjacency": tuple(map(str, ADJACENCIES)),
    "clipping": tuple(CLIPPING),
    "participation": tuple(PARTICIPATION),
    "noise": tuple(NOISE),
    "adversary": tuple(ADVERSARY),
    "shown, optimizer": tuple(RELEASE),
}
"""The names of the parts of a combination, and the values of each."""


def combinations() -> Iterator[Combination]:
    """Return all combinations, including refused ones.

    View and optimizer do not change the distribution of a release, so they vary separately, for every strategy,
    relation and noise.
    """
    for strategy, adjacency in product(STRATEGY, ADJACENCIES):
        for clipping, participation, noise, adversary in product(CLIPPING, PARTICIPATION, NOISE, ADVERSARY):
            yield Combination(strategy, adjacency, participation, noise, clipping, adversary)
        for noise, release in product(NOISE, list(RELEASE)[1:]):
            yield Combination(strategy, adjacency, noise=noise, release=release)


def is_repetition(plan: RunPlan) -> bool:
    """Return whether an adversary knows the noise of clients where these add none, which repeats `client`."""
    return plan.federation.threat_model.colluders > 0 and not plan.federation.mechanism.clients_add_noise


def write_records(path: Path) -> None:
    """Write the records, each of them with both labels."""
    draw = np.random.default_rng(11)
    features = np.repeat(draw.normal(0.0, 1.0, (_TWINS, _FEATURES)), 2, axis=0)
    test = draw.normal(0.0, 1.0, (10, _FEATURES))
    np.savez(path, x=features, y=np.tile([0, 1], _TWINS), x_test=test, y_test=np.tile([0, 1], 5))


def plan_of(combination: Combination, records: Path, trials: int, seed: int, target: dict[str, float]) -> RunPlan:
    """Return the plan of a combination.

    `records` is the path of the file that `write_records` wrote; `target` is such as `{"epsilon": 2.0}`. `InputError`
    is raised with the reason if the combination is refused.
    """
    unit = combination.adjacency.unit
    relation = combination.adjacency.relation
    # A client of one record has a twin, and updates of the same direction in all rounds, as correlated noise needs.
    is_single = relation is Relation.REPLACE or combination.noise in ("tree", "banded")
    count = CLIENTS if unit is Unit.CLIENT and is_single else 4 * CLIENTS
    training: dict[str, Any] = {"strategy": combination.strategy, "rounds": ROUNDS}
    privacy = {"delta": 0.01, "clipping-norm": _CLIPPING, "accountant": "pld", "adjacency": str(combination.adjacency)}
    sections: Sections = {
        "data": {"name": "npz", "path": str(records), "records": count, "clients": CLIENTS, "test-records": 10},
        "model": {"name": "logistic"},
        "training": training,
        "privacy": privacy | target,
        "audit": {"trials": trials, "epsilon-star": False, "membership": False, "evaluate-every": ROUNDS},
        "run": {"seed": seed, "trials-per-batch": min(trials, 1000), "keep-releases": 0},
    }
    for changes in combination.sections():
        for name, values in changes.items():
            sections[name] |= values
    rate = training.pop("rate", None)
    if rate is not None:
        training["sampling-rate"] = rate
    config = parse_config(sections)
    return plan_run(config, _opposite_pair(config))


def _opposite_pair(config: RunConfig) -> NeighbourPair | None:
    """Return a unit and its twin outside D; None where a unit is added or removed, for which any unit will do."""
    adjacency = config.privacy.adjacency
    if adjacency.relation is Relation.ADD_REMOVE:
        return None
    data = config.data
    split = select_records(load_source(data_spec(data)), data.records, data.test_records, data.seed)
    match adjacency.unit:
        case Unit.RECORD:
            twins = ((index, _twin(split, index)) for index in range(len(split.inside)))
            return next(NeighbourPair(index, twin) for index, twin in twins if twin is not None)
        case Unit.USER:
            raise InputError("the units are users, of whom no one has a twin: accepted are records and clients")
        case Unit.CLIENT:
            return _replaced_client(config, split)
        case _:
            assert_never(adjacency.unit)


def _twin(split: Split, index: int) -> int | None:
    """Return the position outside D of the record that has the same features; None where it is in D."""
    assert split.outside is not None
    positions = np.flatnonzero((split.outside.features == split.inside.features[index]).all(axis=1))
    return int(positions[0]) if len(positions) else None


def _replaced_client(config: RunConfig, split: Split) -> NeighbourPair:
    """Return a client of one record, and the number of its twin, which replaces it."""
    shards = load_federation(plan_run(config, NeighbourPair(0, 0)).federation).shards
    for number in range(100 * _TWINS):
        stand_in = int(replacement_positions(split.outside, 1, config.data.seed, number)[0])
        for client, shard in enumerate(shards):
            if _twin(split, int(shard[0])) == stand_in:
                return NeighbourPair(client, number)
    raise InputError("no stand-in is the twin of a client: accepted are records that are there twice")
