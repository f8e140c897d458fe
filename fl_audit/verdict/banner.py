"""What is said first of a verdict, and how it looks."""

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
"""The one table of how verdicts look."""


def verdict_banner(verdict: Verdict, line: str) -> Banner:
    """Return what is said first of a verdict.

    Parameters
    ----------
    verdict, line
        What became of the guarantee, and what is said beside it, plain text.
    """
    return Banner(capital(str(verdict)), line, LOOKS[verdict])
