"""The same training at three levels: what a record, a user and all records of a client are promised."""

from dataclasses import dataclass
from typing import Any

from fl_audit.adjacency import Relation, Unit
from fl_audit.audits.identifiability.findings_empirical_epsilon import EmpiricalNumbers
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.group_sizes import GroupSizes
from fl_audit.privacy.groups import group_epsilon


@dataclass(frozen=True)
class UnitLevel:
    """What one level is promised."""

    unit: Unit
    is_claimed: bool  # whether the promise is about this unit
    size: int | None  # how many units of the promise it changes at most; None where that is not known
    epsilon: float | None  # what holds of it, at the delta of the promise; infinite if none, None if not known
    shown: float | None  # epsilon that the run shows at least; None where nobody was asked about this unit


@dataclass(frozen=True)
class LevelNumbers:
    """The three levels, the smallest unit first."""

    levels: tuple[UnitLevel, ...]
    delta: float  # of the promise

    def to_json(self) -> dict[str, Any]:
        """Return the entry `levels`."""
        return {"levels": json_of({"delta": self.delta, "levels": self.levels})}


def measure_levels(run: FinishedRun, findings: Findings) -> LevelNumbers | None:
    """Return what follows from the promise at each level; None where nothing is promised, or to one pair alone.

    Parameters
    ----------
    run, findings
        A finished run, and what was found before: what it shows of epsilon.
    """
    facts, sizes = run.facts, run.facts.group_sizes
    promise = facts.guarantee
    if promise is None or sizes is None or not facts.game.law.is_private_release:
        return None
    found = findings.find(EmpiricalNumbers)
    levels = []
    for unit in Unit:
        size, is_claimed = _size(facts.relation.unit, unit, facts.relation.relation, sizes), unit is facts.relation.unit
        shown = None if found is None or not is_claimed else found.decisive.epsilon_lower_bound
        if is_claimed:
            epsilon: float | None = promise.epsilon
        else:
            epsilon = None if size is None else _epsilon(run, size)
        levels.append(UnitLevel(unit, is_claimed, size, epsilon, shown))
    return LevelNumbers(tuple(levels), promise.delta)


def _epsilon(run: FinishedRun, size: int) -> float:
    promise = run.facts.guarantee
    assert promise is not None, "levels are those of a promise"
    if size == 1:
        return promise.epsilon
    return group_epsilon(promise.claim.profile, size, promise.delta)


def _size(claimed: Unit, asked: Unit, relation: Relation, sizes: GroupSizes) -> int | None:
    """Return how many units of the claim change at most where one unit that is asked about does.

    A smaller unit leaves a larger one changed and in its place: one that is replaced, or, where units come or go, one
    that goes and one that comes.
    """
    changed = 1 if relation is Relation.REPLACE else 2
    of_user = None if sizes.clients_of_user is None else changed * sizes.clients_of_user
    others = {
        (Unit.RECORD, Unit.USER): sizes.records_of_user,
        (Unit.RECORD, Unit.CLIENT): sizes.records_of_client,
        (Unit.USER, Unit.RECORD): changed,
        (Unit.USER, Unit.CLIENT): sizes.users_of_client,
        (Unit.CLIENT, Unit.RECORD): changed,
        (Unit.CLIENT, Unit.USER): of_user,
    }
    return 1 if asked is claimed else others[claimed, asked]
