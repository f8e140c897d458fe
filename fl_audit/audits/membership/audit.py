"""The audit kind `membership`: independent coins decide which of many targets are in, and attackers guess the coins."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fl_audit.adjacency import Adjacency
from fl_audit.audits.audit import GuaranteeTests, ReleaseQueryKind
from fl_audit.audits.common.targets_audit import TargetsAudit
from fl_audit.audits.membership.attacks.registry import default_attacks

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class MembershipAudit(TargetsAudit):
    """The audit kind `membership`, in which an independent coin decides for each target whether it is a member."""

    own_settings = ("targets", "attacks")
    counted = "targets"

    @property
    def guarantee_tests(self) -> GuaranteeTests:
        """The tests of the guarantee of this kind."""
        from fl_audit.audits.membership.guarantee_tests import MEMBERSHIP_TESTS  # noqa: PLC0415

        return MEMBERSHIP_TESTS

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the default values for [audit] and for [privacy], as two dicts keyed by setting.

        The first contains the attacks, which depend on whether the unit is a record, and an insider if training is
        private. The second contains an adjacency if training is not private.
        """
        of_unit = Adjacency.ADD_REMOVE_RECORD if strategy == "dp-fedsgd" else Adjacency.ADD_REMOVE_CLIENT
        audit, relation = super().defaults(strategy, privacy)
        of_records = str(privacy.get("adjacency", of_unit)).endswith("record")
        return audit | {"attacks": list(default_attacks(of_records))}, relation

    def query(self, federation: "Federation") -> ReleaseQueryKind:
        """Return TARGETS, which asks the insiders for the log-odds of each target; NOTHING without insiders."""
        return ReleaseQueryKind.TARGETS if federation.with_insider else ReleaseQueryKind.NOTHING

    def keeps_outputs(self, federation: "Federation") -> bool:
        """Return True, because the attacks use the outputs of the models after the run."""
        return True
