"""Findings on the privacy levels of one training: the guarantee for a record, for a user and for a whole client."""

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
    """The guarantee for one unit (record, user or client), and the epsilon that the run proves for it."""

    unit: Unit
    is_claimed: bool  # whether the guarantee is about this unit
    size: int | None  # largest number of the guarantee's units that it changes; None where it is not known
    epsilon: float | None  # its epsilon at the delta of the guarantee; infinite if none, None if not known
    shown: float | None  # epsilon that the run shows at least; None where nobody was asked about this unit


@dataclass(frozen=True)
class PrivacyUnitsFinding:
    """The guarantees for record, user and client, in this order."""

    levels: tuple[UnitLevel, ...]
    delta: float  # of the guarantee

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `levels` of `summary.json`."""
        return {"levels": json_of({"delta": self.delta, "levels": self.levels})}


def measure_levels(run: FinishedRun, findings: Findings) -> PrivacyUnitsFinding | None:
    """Return the guarantee for each unit; None without a claim, or if the claim holds for a single pair only.

    Parameters
    ----------
    run
        A finished run.
    findings
        Earlier findings of the run; the one on empirical epsilon is used.
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
    """Return the group size for group privacy: how many units of the claim change when one unit asked about changes.

    None if it is unknown. A change of a smaller unit counts as a replacement of the larger one, or in an add-remove
    relation as one removal and one addition.
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
