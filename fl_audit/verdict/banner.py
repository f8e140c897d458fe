"""The banner at the top of a report: the verdict, a sentence beside it, and its colours."""

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
"""Look of the banner, which decides its colours, for each verdict."""


def verdict_banner(verdict: Verdict, line: str) -> Banner:
    """Return the banner of a verdict: its name as the title, a sentence, and the look that decides its colours.

    Parameters
    ----------
    verdict
        The verdict.
    line
        Sentence beside the verdict, as plain text.
    """
    return Banner(capital(str(verdict)), line, LOOKS[verdict])
