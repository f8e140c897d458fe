"""Findings on the guarantees of one training for each privacy unit: a record, a user, and a whole client."""

from dataclasses import dataclass
from typing import Any

from fl_audit.adjacency import Relation, Unit
from fl_audit.audits.identifiability.findings_empirical_epsilon import EmpiricalEpsilonFinding
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun, GroupSizes
from fl_audit.privacy.accounting import group_epsilon


@dataclass(frozen=True)
class UnitLevel:
    """Guarantee of a training for one kind of unit (record, user or client), and the epsilon that the run proves."""

    unit: Unit
    is_claimed: bool  # whether the guarantee is about this unit
    size: int | None  # largest number of claimed units that change if one of these units changes; None if unknown
    epsilon: float | None  # epsilon for this unit at the delta of the guarantee, may be infinite; None if unknown
    shown: float | None  # lower bound on epsilon from the run; None if the run did not test this unit


@dataclass(frozen=True)
class PrivacyUnitsFinding:
    """The guarantees of a training for a record, a user and a client, in this order."""

    levels: tuple[UnitLevel, ...]
    delta: float  # the delta of all epsilons

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `levels`, for `summary.json`."""
        return {"levels": json_of({"delta": self.delta, "levels": self.levels})}


def measure_levels(run: FinishedRun, findings: Findings) -> PrivacyUnitsFinding | None:
    """Return the guarantee of a run for a record, a user and a client.

    The result is None if there is no guarantee, if the noise scale depends on the data, or if the sizes of users and
    clients are unknown.
    """
    plan = run.plan
    sizes = run.group_sizes
    guarantee = plan.guarantee
    if guarantee is None or sizes is None or not plan.federation.mechanism.is_private_release:
        return None
    finding = findings.find(EmpiricalEpsilonFinding)
    levels = []
    for unit in Unit:
        size = _size(plan.adjacency.unit, unit, plan.adjacency.relation, sizes)
        is_claimed = unit is plan.adjacency.unit
        bound_shown = None if finding is None or not is_claimed else finding.decisive.epsilon_lower_bound
        if is_claimed:
            epsilon: float | None = guarantee.epsilon
        else:
            epsilon = None if size is None else _epsilon(run, size)
        levels.append(UnitLevel(unit, is_claimed, size, epsilon, bound_shown))
    return PrivacyUnitsFinding(tuple(levels), guarantee.delta)


def _epsilon(run: FinishedRun, size: int) -> float:
    guarantee = run.plan.guarantee
    assert guarantee is not None, "levels are those of a guarantee"
    if size == 1:
        return guarantee.epsilon
    return group_epsilon(guarantee.claim.profile, size, guarantee.delta)


def _size(unit: Unit, asked: Unit, relation: Relation, sizes: GroupSizes) -> int | None:
    """Return how many units of the claim change if one unit of the kind `asked` changes; None if this is unknown.

    If the claim protects larger units, only a part of one of them changes, which counts as its replacement. Under
    add-remove adjacency a replacement is two changes.
    """
    changed = 1 if relation is Relation.REPLACE else 2
    of_user = None if sizes.clients_of_user is None else changed * sizes.clients_of_user
    other_units = {
        (Unit.RECORD, Unit.USER): sizes.records_of_user,
        (Unit.RECORD, Unit.CLIENT): sizes.records_of_client,
        (Unit.USER, Unit.RECORD): changed,
        (Unit.USER, Unit.CLIENT): sizes.users_of_client,
        (Unit.CLIENT, Unit.RECORD): changed,
        (Unit.CLIENT, Unit.USER): of_user,
    }
    return 1 if asked is unit else other_units[unit, asked]
