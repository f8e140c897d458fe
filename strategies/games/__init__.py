"""Games against code of anybody's: a strategy alone, in a laboratory, or a whole app, in place and as it is."""

from fl_audit.laboratory.claim import StatedClaim
from strategies.games.agreement import Contribution
from strategies.games.audit import Audit
from strategies.games.insider import insider
from strategies.games.kinds import KINDS, Kind
from strategies.games.notes import Numbers, Replies
from strategies.games.records import held
from strategies.games.subject import Local, LocalReply, Observer, Subject

__all__ = [
    "KINDS",
    "Audit",
    "Contribution",
    "Kind",
    "Local",
    "LocalReply",
    "Numbers",
    "Observer",
    "Replies",
    "StatedClaim",
    "Subject",
    "held",
    "insider",
]
