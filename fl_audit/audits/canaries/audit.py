"""The one-run audit: canaries take part in every round by secret coins, and an observer scores them on the releases."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fl_audit.audits.audit import ClientRole, ReleaseQuery
from fl_audit.audits.common.pair_audit import PairAudit
from fl_audit.federation.target_membership import MembershipScheme

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation


class CanaryAudit(PairAudit):
    """The canary audit, in which a separate coin decides for every canary and round."""

    judged_by = "fl_audit.audits.canaries.judging:CanaryJudging"
    own_settings = ("canaries",)
    scheme = MembershipScheme.ALL

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return one training, whose targets are canaries instead of a pair."""
        # Noise inside training hides a record from the server, which is told what each client sends.
        at = {"adversary": "server"} if strategy == "dp-sgd-clients" else {}
        return {"insider": False, "trials": 1, "canaries": 10} | at, {}

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the kind of query that the observer of canaries gets on a release."""
        return ReleaseQuery.CANARIES

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return the canary role for clients that own no data."""
        return ClientRole.CANARY if federation.public.is_canary(client) else super().role(federation, client)

    def opens_secrets(self, public: "Federation") -> bool:
        """Return false: the verdict uses only the coins of the canaries."""
        return False
