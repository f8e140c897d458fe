"""The audit of one run: canaries take part in every round by coins, and an observer reads them off the releases."""

from typing import TYPE_CHECKING

from fl_audit.audits.audit import AuditJudging, ClientRole, ReleaseQuery
from fl_audit.audits.common.of_pair import PairAudit

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation


class CanaryAudit(PairAudit):
    """Every canary is in by a coin of its own in every round."""

    @property
    def judging(self) -> AuditJudging:
        """Planning and judging of this audit."""
        # Clients, which import this module, have none of what judges a run.
        from fl_audit.audits.canaries.judging import CanaryJudging

        return CanaryJudging()

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the canaries."""
        return ReleaseQuery.CANARIES

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return that clients beside the owners send canaries."""
        return ClientRole.CANARY if federation.public.is_canary(client) else super().role(federation, client)

    def opens_secrets(self, public: "Federation") -> bool:
        """Return false: the coins of the canaries are all that is judged by."""
        return False
