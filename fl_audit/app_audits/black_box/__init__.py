"""Black-box trials of code written by others: of one Flower strategy in this process, or of a whole Flower app.

A trial is one short training with or without the target, the client or record in question. The names of this package
are imported when they are first used. This keeps a client's process, which Flower starts anew for every message, fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Imported at once because they are light, and clients need them.
from fl_audit.app_audits.black_box.target_mod import held as held
from fl_audit.app_audits.black_box.target_mod import insider as insider

if TYPE_CHECKING:
    from fl_audit.app_audits.black_box.audit_config import TargetUpdateKind as TargetUpdateKind
    from fl_audit.app_audits.black_box.audited_system import AuditedSystem as AuditedSystem
    from fl_audit.app_audits.black_box.audited_system import Local as Local
    from fl_audit.app_audits.black_box.audited_system import LocalReply as LocalReply
    from fl_audit.app_audits.black_box.in_app_audit import Audit as Audit
    from fl_audit.app_audits.black_box.message_tags import AbsentTargetMetrics as AbsentTargetMetrics
    from fl_audit.app_audits.black_box.message_tags import Observer as Observer
    from fl_audit.app_audits.black_box.message_tags import UpdateFormat as UpdateFormat
    from fl_audit.app_audits.black_box.scenario import Scenario as Scenario
    from fl_audit.app_audits.black_box.scenarios import KINDS as KINDS
    from fl_audit.app_audits.claim_audit.claim import StatedClaim as StatedClaim

_NAMES = {
    "fl_audit.app_audits.claim_audit.claim": ("StatedClaim",),
    "fl_audit.app_audits.black_box.audit_config": ("TargetUpdateKind",),
    "fl_audit.app_audits.black_box.in_app_audit": ("Audit",),
    "fl_audit.app_audits.black_box.scenarios": ("KINDS", "Scenario"),
    "fl_audit.app_audits.black_box.message_tags": ("AbsentTargetMetrics", "Observer", "UpdateFormat"),
    "fl_audit.app_audits.black_box.audited_system": ("Local", "LocalReply", "AuditedSystem"),
}


def __getattr__(name: str) -> object:
    home = next((home for home, names in _NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'fl_audit.app_audits.black_box' has no attribute {name!r}")
    attribute: object = getattr(import_module(home), name)
    globals()[name] = attribute
    return attribute
