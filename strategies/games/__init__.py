"""Games against code of anybody's: a strategy alone, in a laboratory, or a whole app, in place and as it is.

A name is loaded when it is first used: a client, a process for every message, needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Light, and of the same name as its module, which would stand here otherwise.
from fl_audit.strategies.games.insider import held as held
from fl_audit.strategies.games.insider import insider as insider

if TYPE_CHECKING:
    from fl_audit.audits.black_box.claim import StatedClaim as StatedClaim
    from fl_audit.strategies.games.agreement import Contribution as Contribution
    from fl_audit.strategies.games.audit import Audit as Audit
    from fl_audit.strategies.games.kinds import KINDS as KINDS
    from fl_audit.strategies.games.kinds import Kind as Kind
    from fl_audit.strategies.games.notes import Numbers as Numbers
    from fl_audit.strategies.games.notes import Observer as Observer
    from fl_audit.strategies.games.notes import Replies as Replies
    from fl_audit.strategies.games.subject import Local as Local
    from fl_audit.strategies.games.subject import LocalReply as LocalReply
    from fl_audit.strategies.games.subject import Subject as Subject

_NAMES = {
    "fl_audit.audits.black_box.claim": ("StatedClaim",),
    "fl_audit.strategies.games.agreement": ("Contribution",),
    "fl_audit.strategies.games.audit": ("Audit",),
    "fl_audit.strategies.games.kinds": ("KINDS", "Kind"),
    "fl_audit.strategies.games.notes": ("Numbers", "Observer", "Replies"),
    "fl_audit.strategies.games.subject": ("Local", "LocalReply", "Subject"),
}


def __getattr__(name: str) -> object:
    home = next((home for home, names in _NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'fl_audit.strategies.games' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found
