"""The audit kind `identifiability`, which tests whether an insider can distinguish D from D'."""

from typing import TYPE_CHECKING

from fl_audit.audits.audit import GuaranteeTests, ReleaseQueryKind
from fl_audit.audits.common.pair_audit import PairAudit

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class IdentifiabilityAudit(PairAudit):
    """The audit kind `identifiability`: trials train on D or D', and an insider tries to infer which one.

    The insider computes the likelihood ratio of each release, or a score if the ratio is unknown.
    """

    chooses_pair = True

    @property
    def guarantee_tests(self) -> GuaranteeTests:
        """The tests of the guarantee of this kind."""
        from fl_audit.audits.identifiability.guarantee_tests import IDENTIFIABILITY_TESTS  # noqa: PLC0415

        return IDENTIFIABILITY_TESTS

    def query(self, federation: "Federation") -> ReleaseQueryKind:
        """Return LOG_ODDS if the likelihood ratio of a release is known, else SCORES; NOTHING without an insider."""
        if not federation.with_insider:
            return ReleaseQueryKind.NOTHING
        return ReleaseQueryKind.LOG_ODDS if federation.mechanism.knows_llr else ReleaseQueryKind.SCORES
