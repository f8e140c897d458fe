"""The audit of the first target: many targets are in or out by coins, and one of them alone is judged."""

from typing import Any

from fl_audit.audits.audit import ReleaseQueryKind
from fl_audit.audits.common.targets_audit import TargetsAudit


class FirstTargetAudit(TargetsAudit):
    """Every target is in by a coin of its own, and the insider of the first one is believed."""

    guarantee_tests_at = "toy_audit.guarantee_tests:FirstTargetGuaranteeTests"
    sections_at = ("toy_audit.sections:FIRST_TARGET",)
    own_settings = ("targets",)
    counted = "targets"

    def query(self, public: Any) -> ReleaseQueryKind:
        """Return the targets."""
        return ReleaseQueryKind.TARGETS if public.with_insider else ReleaseQueryKind.NOTHING
