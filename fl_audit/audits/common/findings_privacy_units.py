"""Findings on the privacy levels of one training: the guarantees of a record, a user and a whole client."""

from dataclasses import dataclass
from typing import Any

from fl_audit.adjacency import Relation, Unit
from fl_audit.audits.identifiability.findings_empirical_epsilon import EmpiricalFinding
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.group_sizes import GroupSizes
from fl_audit.privacy.group_privacy import group_epsilon


@dataclass(frozen=True)
class UnitLevel:
    """The guarantee for one of the units record, user and client, and the epsilon that the run shows for it."""

    unit: Unit
    is_claimed: bool  # whether the guarantee is about this unit
    size: int | None  # largest number of the guarantee's units that it changes; None where it is not known
    epsilon: float | None  # its epsilon at the delta of the guarantee; infinite if none, None if not known
    shown: float | None  # epsilon that the run shows at least; None where nobody was asked about this unit


@dataclass(frozen=True)
class PrivacyUnitsFinding:
    """The three levels, the smallest unit first."""

    levels: tuple[UnitLevel, ...]
    delta: float  # of the guarantee

    def to_json(self) -> dict[str, Any]:
        """Return the entry `levels`."""
        return {"levels": json_of({"delta": self.delta, "levels": self.levels})}


def measure_levels(run: FinishedRun, findings: Findings) -> PrivacyUnitsFinding | None:
    """Return the guarantee at each level; None where there is no claim, or one about a single pair.

    Parameters
    ----------
    run
        A finished run.
    findings
        Earlier findings of the run, of which those on epsilon are used.
    """
    facts, sizes = run.facts, run.facts.group_sizes
    guarantee = facts.guarantee
    if guarantee is None or sizes is None or not facts.federation.mechanism.is_private_release:
        return None
    found = findings.find(EmpiricalFinding)
    levels = []
    for unit in Unit:
        size, is_claimed = _size(facts.relation.unit, unit, facts.relation.relation, sizes), unit is facts.relation.unit
        shown = None if found is None or not is_claimed else found.decisive.epsilon_lower_bound
        if is_claimed:
            epsilon: float | None = guarantee.epsilon
        else:
            epsilon = None if size is None else _epsilon(run, size)
        levels.append(UnitLevel(unit, is_claimed, size, epsilon, shown))
    return PrivacyUnitsFinding(tuple(levels), guarantee.delta)


def _epsilon(run: FinishedRun, size: int) -> float:
    guarantee = run.facts.guarantee
    assert guarantee is not None, "levels are those of a guarantee"
    if size == 1:
        return guarantee.epsilon
    return group_epsilon(guarantee.claim.profile, size, guarantee.delta)


def _size(claimed: Unit, asked: Unit, relation: Relation, sizes: GroupSizes) -> int | None:
    """Return the most units of the claim that change when a unit of another level changes; None if not known.

    A change of a smaller unit leaves the larger unit in place but changed: it counts as a replacement or, where units
    come or go, as one removal and one addition.
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
