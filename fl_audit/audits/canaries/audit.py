"""The one-run audit: secret coins decide in which rounds canaries take part, and an observer scores every release."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fl_audit.audits.audit import ClientRole, ReleaseQuery
from fl_audit.audits.common.pair_audit import PairAudit
from fl_audit.federation.target_membership import MembershipScheme

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation


class CanaryAudit(PairAudit):
    """The canary audit, in which an independent coin decides for every canary and round."""

    judged_by = "fl_audit.audits.canaries.judging:CanaryJudging"
    own_settings = ("canaries",)
    scheme = MembershipScheme.ALL

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the defaults: a single training, with canaries as targets instead of a pair of neighbours."""
        # Noise inside training hides a record from the server, which is told what each client sends.
        at = {"adversary": "server"} if strategy == "dp-sgd-clients" else {}
        return {"insider": False, "trials": 1, "canaries": 10} | at, {}

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the query for canary scores."""
        return ReleaseQuery.CANARIES

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return the canary role for clients that own no data."""
        return ClientRole.CANARY if federation.public.is_canary(client) else super().role(federation, client)

    def opens_secrets(self, public: "Federation") -> bool:
        """Return false: the verdict needs no secret of the challenger but the coins of the canaries."""
        return False
