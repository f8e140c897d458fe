"""Small federations for every combination of a release law's parts, made so that exact theory applies to them.

Logistic regression of two classes on records that are there twice, with either label. The gradients of a record with
one label and with the other are exactly opposite, whatever the model, and the clipping norm is so small that every
contribution is clipped. So a unit that comes or goes always changes a sum by the clipping norm, and one that is
replaced by its twin by twice that, and always in the same direction: the sensitivities are the largest that the promise
allows, in every round and every world, while the models move.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs.config import RunConfig, parse_config
from experiments.runs.plan import AuditPlan, data_spec, resolve
from fl_audit.adjacency import Adjacency, NeighbourPair, Relation, Unit
from fl_audit.data.catalogue import load_source
from fl_audit.data.client_neighbours import stand_in_shard
from fl_audit.data.split import Split, select_records
from fl_audit.errors import InputError
from fl_audit.game.game import load_game

Sections = dict[str, dict[str, Any]]

CLIENTS, ROUNDS = 6, 8
_FEATURES, _TWINS = 8, 30
_CLIPPING = 1e-4
_STEP = 0.03
"""Step of the server over the clipping norm: with more, models are so sure of some record that it moves them less."""

PARTICIPATION: dict[str, Sections] = {
    "everybody": {},
    "sampled in secret": {"training": {"rate": 0.3}, "audit": {"participation": "secret"}},
    "sampled, seen": {"training": {"rate": 0.3}, "audit": {"participation": "seen"}},
    "cohort": {"training": {"cohort": CLIENTS // 2}},
}
NOISE: dict[str, Sections] = {
    "central": {"privacy": {"noise": "central"}},
    "distributed": {"privacy": {"noise": "distributed"}},
    "distributed, 2 collude": {"privacy": {"noise": "distributed"}, "audit": {"colluders": 2}},
    "local": {"privacy": {"noise": "local"}},
    "local, at the server": {"privacy": {"noise": "local"}, "audit": {"place": "server"}},
    "tree": {"privacy": {"noise": "tree"}},
    "banded": {"privacy": {"noise": "banded", "bands": 2}},
}
# The norm moves slowly: it must stay far under the length of every update.
CLIPPING: dict[str, Sections] = {
    "fixed": {},
    "adaptive": {"privacy": {"clipping": "adaptive", "clipping-learning-rate": 0.05}},
}


@dataclass(frozen=True)
class Combination:
    """One combination of the parts of a release law, by their names in the tables above.

    Parameters
    ----------
    adjacency, participation, noise, clipping
        The parts; those of the standpoint stand with participation and noise.
    """

    adjacency: Adjacency
    participation: str = "everybody"
    noise: str = "central"
    clipping: str = "fixed"

    def __str__(self) -> str:
        return f"{self.adjacency}, {self.participation}, {self.noise}, {self.clipping}"


def combinations() -> Iterator[Combination]:
    """Return all combinations, those that are refused among them."""
    for adjacency in Adjacency:
        for clipping in CLIPPING:
            for participation in PARTICIPATION:
                for noise in NOISE:
                    yield Combination(adjacency, participation, noise, clipping)


def write_records(path: Path) -> None:
    """Write the records, each of them with both labels."""
    draw = np.random.default_rng(11)
    features = np.repeat(draw.normal(0.0, 1.0, (_TWINS, _FEATURES)), 2, axis=0)
    test = draw.normal(0.0, 1.0, (10, _FEATURES))
    np.savez(path, x=features, y=np.tile([0, 1], _TWINS), x_test=test, y_test=np.tile([0, 1], 5))


def plan_of(combination: Combination, records: Path, worlds: int, seed: int, target: dict[str, float]) -> AuditPlan:
    """Return the plan of a combination.

    Parameters
    ----------
    combination
        Which.
    records
        File that `write_records` wrote.
    worlds
        Number of worlds.
    seed
        The challenger's.
    target
        What is promised, such as `{"epsilon": 2.0}`.

    Raises
    ------
    InputError
        If the combination is refused, with the reason.
    """
    config = parse_config(_settings(combination, records, worlds, seed, target))
    return resolve(config, _opposite_pair(config))


def _settings(
    combination: Combination, records: Path, worlds: int, seed: int, target: dict[str, float]
) -> dict[str, Any]:
    unit, relation = combination.adjacency.unit, combination.adjacency.relation
    # A client of one record has a twin, and updates of the same direction in all rounds, as correlated noise needs.
    is_single = relation is Relation.REPLACE or combination.noise in ("tree", "banded")
    count = CLIENTS if unit is Unit.CLIENT and is_single else 4 * CLIENTS
    training: dict[str, Any] = {"rounds": ROUNDS, "learning-rate": _STEP / _CLIPPING}
    if unit is Unit.CLIENT:
        training |= {"strategy": "dp-fedavg", "local-steps": 2, "local-batch": 4, "local-learning-rate": 0.5}
    sections: Sections = {
        "data": {"name": "npz", "path": str(records), "records": count, "clients": CLIENTS, "test-records": 10},
        "model": {"name": "logistic"},
        "training": training,
        "privacy": {
            "delta": 0.01,
            "clipping-norm": _CLIPPING,
            "accountant": "pld",
            "adjacency": str(combination.adjacency),
        }
        | target,
        "audit": {"worlds": worlds, "epsilon-star": False, "membership": False, "evaluate-every": ROUNDS},
        "run": {
            "seed": seed,
            "worlds-per-batch": min(worlds, 1000),
            "keep-releases": 0,
            "keep-final-models": False,
        },
    }
    for part in (
        PARTICIPATION[combination.participation],
        NOISE[combination.noise],
        CLIPPING[combination.clipping],
    ):
        for name, values in part.items():
            sections[name] |= values
    rate = training.pop("rate", None)
    if rate is not None:
        training["client-sampling-rate" if unit is Unit.CLIENT else "sampling-rate"] = rate
    return sections


def _opposite_pair(config: RunConfig) -> NeighbourPair | None:
    """Return a unit and its twin outside D; None where a unit comes or goes, any of which will do."""
    adjacency = config.privacy.adjacency
    if adjacency.relation is Relation.ADD_REMOVE:
        return None
    split = select_records(
        load_source(data_spec(config.data)), config.data.records, config.data.test_records, config.data.seed
    )
    match adjacency.unit:
        case Unit.RECORD:
            return next(
                NeighbourPair(index, twin)
                for index in range(len(split.inside))
                if (twin := _twin(split, index)) is not None
            )
        case Unit.CLIENT:
            return _replaced_client(config, split)


def _twin(split: Split, index: int) -> int | None:
    """Return the position outside D of the record that has the same features; None where it is in D."""
    assert split.outside is not None
    same = (split.outside.features == split.inside.features[index]).all(axis=1)
    found = np.flatnonzero(same)
    return int(found[0]) if len(found) else None


def _replaced_client(config: RunConfig, split: Split) -> NeighbourPair:
    """Return a client of one record, and the number of the stand-in that is its twin."""
    shards = load_game(resolve(config, NeighbourPair(0, 0)).public).shards
    for number in range(100 * _TWINS):
        drawn = int(stand_in_shard(split.outside, 1, config.data.seed, number)[0])
        for client, shard in enumerate(shards):
            if _twin(split, int(shard[0])) == drawn:
                return NeighbourPair(client, number)
    raise InputError("no stand-in is the twin of a client: accepted are records that are there twice")
