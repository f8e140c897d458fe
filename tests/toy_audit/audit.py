"""The audit of the first target: many targets are in or out by coins, and one of them alone is judged."""

from typing import Any

from fl_audit.audits.audit import GuaranteeTests, ReleaseQueryKind
from fl_audit.audits.common.targets_audit import TargetsAudit
from fl_audit.report.report_elements import Section


class FirstTargetAudit(TargetsAudit):
    """Every target is in by a coin of its own, and the insider of the first one is believed."""

    own_settings = ("targets",)
    counted = "targets"

    @property
    def guarantee_tests(self) -> GuaranteeTests:
        """The tests of the guarantee of this kind."""
        from tests.toy_audit.guarantee_tests import FIRST_TARGET_TESTS

        return FIRST_TARGET_TESTS

    def sections(self) -> tuple[Section[Any], ...]:
        """Return the section of the first target."""
        from tests.toy_audit.sections import FIRST_TARGET

        return (FIRST_TARGET,)

    def query(self, public: Any) -> ReleaseQueryKind:
        """Return the targets."""
        return ReleaseQueryKind.TARGETS if public.with_insider else ReleaseQueryKind.NOTHING
