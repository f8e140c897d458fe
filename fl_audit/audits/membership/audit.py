"""The audit of membership: many targets are in or out by coins, and insiders and attackers ask which."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fl_audit.adjacency import Adjacency
from fl_audit.audits.audit import ReleaseQuery
from fl_audit.audits.common.of_targets import TargetsAudit
from fl_audit.audits.membership.names import OF_ANY_UNIT, USUAL

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class MembershipAudit(TargetsAudit):
    """Every target is in by a coin of its own."""

    judged_by = "fl_audit.audits.membership.judging:MembershipJudging"
    own_settings = ("targets", "attacks", "queries")
    counted = "targets"

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return who can attack, beside what all audits of targets have."""
        of_unit = Adjacency.ADD_REMOVE_RECORD if strategy == "dp-fedsgd" else Adjacency.ADD_REMOVE_CLIENT
        audit, relation = super().defaults(strategy, privacy)
        of_records = str(privacy.get("adjacency", of_unit)).endswith("record")
        return audit | {"attacks": [str(one) for one in (USUAL if of_records else OF_ANY_UNIT)]}, relation

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the targets, if insiders are asked."""
        return ReleaseQuery.TARGETS if public.with_insider else ReleaseQuery.NOTHING

    def keeps_outputs(self, public: "Federation") -> bool:
        """Return true: attacks look at the models after the run."""
        return True
