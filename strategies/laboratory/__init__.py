"""Games against a strategy of anybody's, in process and through its own public interface."""

from strategies.laboratory.kinds import KINDS, Kind
from strategies.laboratory.subject import Local, LocalReply, Observer, Subject

__all__ = ["KINDS", "Kind", "Local", "LocalReply", "Observer", "Subject"]
