"""The report section on the guarantees for a record, a user and a client, which follow by group privacy."""

import math

from fl_audit.adjacency import Adjacency, Relation, Unit
from fl_audit.audits.common.findings_privacy_units import PrivacyUnitsFinding, UnitLevel, measure_levels
from fl_audit.report.report_elements import ReportContents, Section, Table
from fl_audit.verdict.claim_standing import standing_of_claim, with_standing_in_brackets
from fl_audit.words import number_text

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
