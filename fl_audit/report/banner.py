"""What a page or a terminal says first: a verdict in large letters, and a line below it."""

from dataclasses import dataclass
from enum import Enum

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.report.wording import DASH, capital


class VerdictLook(Enum):
    """How a verdict looks: class of the style sheet, a sign, and the style on a terminal."""

    BAD = "violated", "✗", "bold red"
    GOOD = "consistent", "✓", "bold green"
    OPEN = "inconclusive", "?", "bold bright_black"
    NONE = "open", DASH, "bold bright_black"


LOOKS = {
    Verdict.VIOLATED: VerdictLook.BAD,
    Verdict.CONSISTENT: VerdictLook.GOOD,
    Verdict.INCONCLUSIVE: VerdictLook.OPEN,
    Verdict.NOT_AUDITED: VerdictLook.NONE,
    Verdict.NO_PROMISE: VerdictLook.NONE,
}
"""The one table of how verdicts look."""


@dataclass(frozen=True)
class Banner:
    """What is said first: a verdict in a few words, a line below it, and how it looks; plain text."""

    word: str
    line: str
    look: VerdictLook


def verdict_banner(verdict: Verdict, line: str) -> Banner:
    """Return what is said first of a verdict.

    Parameters
    ----------
    verdict, line
        What became of the promise, and what is said beside it, plain text.
    """
    return Banner(capital(str(verdict)), line, LOOKS[verdict])
