"""The audit of identifiability: whether an insider can tell D from D'."""

from typing import TYPE_CHECKING

from fl_audit.audits.audit import ReleaseQuery
from fl_audit.audits.common.pair_audit import PairAudit

if TYPE_CHECKING:
    from fl_audit.federation.federation import Federation


class IdentifiabilityAudit(PairAudit):
    """The audit in which one unit differs, and an insider computes the likelihood ratio of each release, or a score."""

    judged_by = "fl_audit.audits.identifiability.judging:IdentifiabilityJudging"
    chooses_pair = True

    def query(self, public: "Federation") -> ReleaseQuery:
        """Return log-odds, or scores where no likelihood ratio is known; nothing without an insider."""
        if not public.with_insider:
            return ReleaseQuery.NOTHING
        return ReleaseQuery.LOG_ODDS if public.mechanism.has_exact_llr else ReleaseQuery.SCORES
