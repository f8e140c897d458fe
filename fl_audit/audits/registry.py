"""The kinds of audit, and the one place that says which of them a federation plays."""

from enum import StrEnum

from fl_audit.audits.audit import AuditKind
from fl_audit.audits.canaries.audit import CanaryAudit
from fl_audit.audits.identifiability.audit import IdentifiabilityAudit
from fl_audit.audits.membership.audit import MembershipAudit
from fl_audit.audits.reconstruction.audit import ReconstructionAudit
from fl_audit.federation.federation import Federation


class AuditName(StrEnum):
    """The kinds of audit, as a configuration names them."""

    IDENTIFIABILITY = "identifiability"
    MEMBERSHIP = "membership"
    RECONSTRUCTION = "reconstruction"
    ONE_RUN = "one-run"


AUDITS: dict[AuditName, AuditKind] = {
    AuditName.IDENTIFIABILITY: IdentifiabilityAudit(),
    AuditName.MEMBERSHIP: MembershipAudit(),
    AuditName.RECONSTRUCTION: ReconstructionAudit(),
    AuditName.ONE_RUN: CanaryAudit(),
}
"""What each kind answers."""


def name_of(public: Federation) -> AuditName:
    """Return which kind of audit a federation plays."""
    if public.canaries > 0:
        return AuditName.ONE_RUN
    if public.exactly_one:
        return AuditName.RECONSTRUCTION
    return AuditName.MEMBERSHIP if public.plays_membership else AuditName.IDENTIFIABILITY


def audit_of(public: Federation) -> AuditKind:
    """Return the audit that a federation plays."""
    return AUDITS[name_of(public)]
