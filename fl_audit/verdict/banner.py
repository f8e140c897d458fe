"""The banner of a verdict: its first line in a report, and its colours."""

from fl_audit.report.banner import Banner, VerdictLook
from fl_audit.report.formatting import capital
from fl_audit.verdict.verdict import Verdict

LOOKS = {
    Verdict.VIOLATED: VerdictLook.BAD,
    Verdict.CONSISTENT: VerdictLook.GOOD,
    Verdict.INCONCLUSIVE: VerdictLook.OPEN,
    Verdict.NOT_AUDITED: VerdictLook.NONE,
    Verdict.NO_GUARANTEE: VerdictLook.NONE,
}
"""The look of every verdict."""


def verdict_banner(verdict: Verdict, line: str) -> Banner:
    """Return the banner of a verdict: its first line and its colours.

    Parameters
    ----------
    verdict
        The verdict.
    line
        Sentence beside the verdict, as plain text.
    """
    return Banner(capital(str(verdict)), line, LOOKS[verdict])
