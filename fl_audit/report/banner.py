"""The banner at the top of a report page and of terminal output: the verdict, a line of text, and a colour."""

from dataclasses import dataclass
from enum import Enum

from fl_audit.words import DASH


class VerdictLook(Enum):
    """The look of a verdict: its CSS class, its symbol, and its style on a terminal.

    Pages without a verdict, such as those of sweeps and papers, have a look too, so it is no property of `Verdict`.
    """

    BAD = "violated", "✗", "bold red"
    GOOD = "consistent", "✓", "bold green"
    OPEN = "inconclusive", "?", "bold bright_black"
    NONE = "open", DASH, "bold bright_black"


@dataclass(frozen=True)
class Banner:
    """The banner of a report: the name of the verdict, a line of plain text below it, and the look of the verdict."""

    word: str
    line: str
    look: VerdictLook
