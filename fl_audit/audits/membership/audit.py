"""The audit of membership: many targets are in or out by coins, and insiders and attackers ask which."""

from typing import TYPE_CHECKING

from fl_audit.audits.audit import AuditJudging, ReleaseQuery
from fl_audit.audits.common.of_targets import TargetsAudit

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class MembershipAudit(TargetsAudit):
    """Every target is in by a coin of its own."""

    @property
    def judging(self) -> AuditJudging:
        """Planning and judging of this audit."""
        # Clients, which import this module, have none of what judges a run.
        from fl_audit.audits.membership.judging import MembershipJudging

        return MembershipJudging()

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the targets, if insiders are asked."""
        return ReleaseQuery.TARGETS if public.with_insider else ReleaseQuery.NOTHING

    def keeps_outputs(self, public: "Federation") -> bool:
        """Return true: attacks look at the models after the run."""
        return True
