"""The kinds of audit, keyed by their names in a configuration; a new kind needs its own package and an entry here."""

from typing import TYPE_CHECKING

from fl_audit.audits.audit import BaseAudit
from fl_audit.audits.canaries.audit import CanaryAudit
from fl_audit.audits.identifiability.audit import IdentifiabilityAudit
from fl_audit.audits.membership.audit import MembershipAudit
from fl_audit.audits.reconstruction.audit import ReconstructionAudit
from fl_audit.errors import require
from fl_audit.words import name_list

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation

AUDITS: dict[str, BaseAudit] = {
    "identifiability": IdentifiabilityAudit(),
    "membership": MembershipAudit(),
    "reconstruction": ReconstructionAudit(),
    "canaries": CanaryAudit(),
}
"""The kinds of audit, keyed by name."""


def audit_named(name: str) -> BaseAudit:
    """Return the kind of audit with the given name, such as "membership"."""
    require(name in AUDITS, f"kind of audit is {name!r}: accepted are {name_list(AUDITS)}")
    return AUDITS[name]


def audit_of(federation: "Federation") -> BaseAudit:
    """Return the kind of audit that a federation is configured for."""
    return audit_named(federation.audit)
