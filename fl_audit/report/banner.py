"""What a page and a terminal say first: a few words, a line below them, and how they look."""

from dataclasses import dataclass
from enum import Enum

from fl_audit.report.formatting import DASH


class VerdictLook(Enum):
    """How a verdict looks: class of the style sheet, a sign, and the style on a terminal."""

    BAD = "violated", "✗", "bold red"
    GOOD = "consistent", "✓", "bold green"
    OPEN = "inconclusive", "?", "bold bright_black"
    NONE = "open", DASH, "bold bright_black"


@dataclass(frozen=True)
class Banner:
    """What is said first: a verdict in a few words, a line below it, and how it looks; plain text."""

    word: str
    line: str
    look: VerdictLook
