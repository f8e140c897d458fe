"""Black-box trials of code written by others: of one Flower strategy in this process, or of a whole Flower app.

A trial is one short training with or without the target, the client or record in question. Nothing here imports torch,
because Flower starts a client's process, which needs these names, anew for every message.
"""

from fl_audit.app_audits.black_box.audited_system import AuditedSystem as AuditedSystem
from fl_audit.app_audits.black_box.in_app_audit import Audit as Audit
from fl_audit.app_audits.black_box.target_mod import held as held
from fl_audit.app_audits.black_box.target_mod import insider as insider
from fl_audit.app_audits.black_box.trial_messages import Observer as Observer
from fl_audit.app_audits.claim_audit.claim import StatedClaim as StatedClaim
