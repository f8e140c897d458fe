"""The audit of reconstruction: one of several candidates is in, and an attacker who knows all else names it."""

from typing import TYPE_CHECKING

from fl_audit.audits.audit import AuditJudging, ReleaseQuery
from fl_audit.audits.common.of_targets import TargetsAudit

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class ReconstructionAudit(TargetsAudit):
    """Exactly one of the targets is in."""

    @property
    def judging(self) -> AuditJudging:
        """Planning and judging of this audit."""
        # Clients, which import this module, have none of what judges a run.
        from fl_audit.audits.reconstruction.judging import ReconstructionJudging

        return ReconstructionJudging()

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the candidates, if the insider is asked: it has to find out which one is in."""
        return ReleaseQuery.CANDIDATES if public.with_insider else ReleaseQuery.NOTHING
