"""Finding and report section on the guarantees for a record, a user and a client, which follow by group privacy."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.adjacency import Adjacency, Relation, Unit
from fl_audit.audits.identifiability.sections_empirical_epsilon import EmpiricalEpsilonFinding
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun, GroupSizes
from fl_audit.privacy.accounting import group_epsilon
from fl_audit.report.report_elements import ReportContents, Section, Table
from fl_audit.verdict.claim_standing import standing_of_claim, with_standing_in_brackets
from fl_audit.words import number_text


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
            epsilon = None if size is None else _epsilon_of_group(run, size)
        levels.append(UnitLevel(unit, is_claimed, size, epsilon, bound_shown))
    return PrivacyUnitsFinding(tuple(levels), guarantee.delta)


def _epsilon_of_group(run: FinishedRun, size: int) -> float:
    guarantee = run.plan.guarantee
    assert guarantee is not None, "levels are those of a guarantee"
    if size == 1:
        return guarantee.epsilon
    return group_epsilon(guarantee.claim.profile, size, guarantee.delta)


def _size(claimed_unit: Unit, unit: Unit, relation: Relation, sizes: GroupSizes) -> int | None:
    """Return how many units of the claim change if one `unit` changes; None if this is unknown.

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
    return 1 if unit is claimed_unit else other_units[claimed_unit, unit]


_WHOSE = {
    Unit.RECORD: "one record",
    Unit.USER: "one user, with all records",
    Unit.CLIENT: "one client, with all records",
}
_TITLE = "What the same training guarantees at three levels"
_LARGE = 100.0  # epsilon, in nats, from which a guarantee is called meaningless


def _follows(level: UnitLevel, adjacency: Adjacency) -> str:
    claimed = adjacency.unit
    if level.is_claimed:
        return "claimed"
    if level.size is None:
        return "not known: no column names the users"
    if level.size == 1:
        return f"by the guarantee to one {claimed}"
    order = list(Unit)
    if order.index(level.unit) < order.index(claimed) and adjacency.relation is Relation.ADD_REMOVE:
        return (
            f"by group privacy, of up to {level.size:,} {claimed}s: a {claimed} whose {level.unit} changes counts as "
            f"one that is removed and another that is added, so this bound is weaker than that for a whole {claimed}"
        )
    return f"by group privacy, of up to {level.size:,} {claimed}s"


def _epsilon(level: UnitLevel) -> float | str | None:
    if level.epsilon is not None and math.isinf(level.epsilon):
        return "none"
    return level.epsilon


def _tables(finding: PrivacyUnitsFinding, contents: ReportContents) -> list[Table]:
    columns = (
        "Who is protected",
        "How it follows",
        f"Epsilon at delta {finding.delta:g} (nats)",
        "Epsilon shown at least (nats)",
    )
    relation = contents.plan.adjacency
    rows = tuple(
        (
            _WHOSE[level.unit],
            _follows(level, relation),
            _epsilon(level),
            "not asked" if level.shown is None else level.shown,
        )
        for level in finding.levels
    )
    return [Table(with_standing_in_brackets(_TITLE, standing_of_claim(contents)), columns, rows)]


def larger_unit_sentence(finding: PrivacyUnitsFinding, unit: Unit) -> str:
    """Return a sentence on the guarantee for the next unit larger than the claimed one; empty if none is known.

    The order of units is record, user, client.
    """
    order = list(Unit)
    larger = [
        level for level in finding.levels if order.index(level.unit) > order.index(unit) and level.epsilon is not None
    ]
    if not larger or larger[0].size in (None, 1):
        return ""
    level = larger[0]
    epsilon = larger[0].epsilon
    assert epsilon is not None, "others were passed over"
    worth = "nothing that is known" if math.isinf(epsilon) else f"epsilon {number_text(epsilon, 3)}"
    says = ", which says nothing" * (_LARGE <= epsilon < math.inf)
    return f"For a {level.unit} with up to {level.size:,} {unit}s it is worth {worth} by group privacy{says}."


def _sentence(finding: PrivacyUnitsFinding, contents: ReportContents) -> str:
    claimed = contents.plan.adjacency.unit
    text = f"The guarantee is about one {claimed}. {larger_unit_sentence(finding, claimed)}".strip()
    return f"{text} What was shown is about one {claimed} too: nobody was asked about other units."


LEVELS = Section(
    "levels",
    _TITLE,
    PrivacyUnitsFinding,
    measure_levels,
    keys=("levels",),
    trusts=True,
    sentence=_sentence,
    tables=_tables,
)
