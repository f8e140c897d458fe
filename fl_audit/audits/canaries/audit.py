"""The one-run audit: secret coins decide which canaries take part in a round, and an observer scores every release.

A canary is a test contribution in a random direction.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fl_audit.audits.audit import ClientRole, GuaranteeTests, ReleaseQueryKind
from fl_audit.audits.common.pair_audit import PairAudit
from fl_audit.federation.target_membership import MembershipScheme

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.loaded_federation import LoadedFederation


class CanaryAudit(PairAudit):
    """The audit kind `canaries`: in each round, a secret coin decides for each canary whether it is inserted."""

    own_settings = ("canaries",)
    scheme = MembershipScheme.ALL

    @property
    def guarantee_tests(self) -> GuaranteeTests:
        """The tests of the guarantee of this kind."""
        from fl_audit.audits.canaries.guarantee_tests import CANARY_TESTS  # noqa: PLC0415

        return CANARY_TESTS

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the default values for [audit] and for [privacy], as two dicts keyed by setting.

        For [audit] they are one training, 10 canaries and no insider; with `strategy` "dp-sgd-clients" the adversary is
        the server by default. There are no defaults for [privacy].
        """
        # If clients add noise in their training, the guarantee also holds against the server, which sees each update.
        at = {"adversary": "server"} if strategy == "dp-sgd-clients" else {}
        return {"insider": False, "trials": 1, "canaries": 10} | at, {}

    def query(self, federation: "Federation") -> ReleaseQueryKind:
        """Return `CANARIES`: the observer computes the score of each canary."""
        return ReleaseQueryKind.CANARIES

    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return a client's role: CANARY for a canary, VICTIM for the client with the target, OWNER for any other."""
        return ClientRole.CANARY if federation.public.is_canary(client) else super().role(federation, client)

    def opens_secrets(self, federation: "Federation") -> bool:
        """Return False: the verdict needs no disclosed secret of the challenger, only the coins of the canaries."""
        return False
