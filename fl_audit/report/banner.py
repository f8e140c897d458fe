"""The opening of a page and of terminal output: a few words, a line below them, and their colours."""

from dataclasses import dataclass
from enum import Enum

from fl_audit.report.formatting import DASH


class VerdictLook(Enum):
    """The appearance of a verdict: class of the style sheet, a sign, and the style on a terminal."""

    BAD = "violated", "✗", "bold red"
    GOOD = "consistent", "✓", "bold green"
    OPEN = "inconclusive", "?", "bold bright_black"
    NONE = "open", DASH, "bold bright_black"


@dataclass(frozen=True)
class Banner:
    """The opening of a report: a verdict in a few words, a line below it, and its appearance; plain text."""

    word: str
    line: str
    look: VerdictLook
