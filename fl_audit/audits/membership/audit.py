"""The membership audit: independent coins decide which of many targets are in; insiders and attackers guess them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fl_audit.adjacency import Adjacency
from fl_audit.audits.audit import ReleaseQuery
from fl_audit.audits.common.targets_audit import TargetsAudit
from fl_audit.audits.membership.names import OF_ANY_UNIT, USUAL

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class MembershipAudit(TargetsAudit):
    """The audit in which an independent coin decides for every target whether it is a member."""

    judged_by = "fl_audit.audits.membership.judging:MembershipJudging"
    own_settings = ("targets", "attacks", "queries")
    counted = "targets"

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the default attacks together with the defaults of all audits of targets."""
        of_unit = Adjacency.ADD_REMOVE_RECORD if strategy == "dp-fedsgd" else Adjacency.ADD_REMOVE_CLIENT
        audit, relation = super().defaults(strategy, privacy)
        of_records = str(privacy.get("adjacency", of_unit)).endswith("record")
        return audit | {"attacks": [str(one) for one in (USUAL if of_records else OF_ANY_UNIT)]}, relation

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the query for targets, if there are insiders."""
        return ReleaseQuery.TARGETS if public.with_insider else ReleaseQuery.NOTHING

    def keeps_outputs(self, public: "Federation") -> bool:
        """Return true, because the attacks use the models' outputs after the run."""
        return True
