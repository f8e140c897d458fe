"""Games against code of anybody's: a strategy alone, in a laboratory, or a whole app, in place and as it is.

A name is loaded when it is first used: a client, a process for every message, needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Light, and of the same name as its module, which would stand here otherwise.
from strategies.games.insider import held, insider

if TYPE_CHECKING:
    from fl_audit.laboratory.claim import StatedClaim
    from strategies.games.agreement import Contribution
    from strategies.games.audit import Audit
    from strategies.games.kinds import KINDS, Kind
    from strategies.games.notes import Numbers, Observer, Replies
    from strategies.games.subject import Local, LocalReply, Subject

__all__ = ["KINDS", "Audit", "Contribution", "Kind", "Local", "LocalReply", "Numbers"]
__all__ += ["Observer", "Replies", "StatedClaim", "Subject", "held", "insider"]
_NAMES = {
    "fl_audit.laboratory.claim": ("StatedClaim",),
    "strategies.games.agreement": ("Contribution",),
    "strategies.games.audit": ("Audit",),
    "strategies.games.kinds": ("KINDS", "Kind"),
    "strategies.games.notes": ("Numbers", "Observer", "Replies"),
    "strategies.games.subject": ("Local", "LocalReply", "Subject"),
}


def __getattr__(name: str) -> object:
    home = next((home for home, names in _NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'strategies.games' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found
