"""Audits of Flower apps in place: watch the strategy, put an insider into the client app, run the app as ever."""

from fl_audit.laboratory.claim import StatedClaim
from strategies.in_place.audit import Audit, Contribution
from strategies.in_place.insider import insider
from strategies.in_place.notes import Numbers, Replies
from strategies.in_place.records import held
from strategies.laboratory.subject import Observer

__all__ = ["Audit", "Contribution", "Numbers", "Observer", "Replies", "StatedClaim", "held", "insider"]
