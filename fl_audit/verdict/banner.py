"""Make the banner at the top of a report, which shows the verdict, one sentence and the colours of the verdict."""

from fl_audit.report.banner import Banner, VerdictLook
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import capital

LOOKS = {
    Verdict.VIOLATED: VerdictLook.BAD,
    Verdict.CONSISTENT: VerdictLook.GOOD,
    Verdict.INCONCLUSIVE: VerdictLook.OPEN,
    Verdict.NOT_AUDITED: VerdictLook.NONE,
    Verdict.NO_GUARANTEE: VerdictLook.NONE,
}
"""Look of the banner for each verdict. The look decides the colours."""


def verdict_banner(verdict: Verdict, line: str) -> Banner:
    """Return the report banner of a verdict, in the verdict's colours."""
    return Banner(capital(str(verdict)), line, LOOKS[verdict])
