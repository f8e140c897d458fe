"""The active attack of Nasr et al. 2019: an insider raises the targets' losses, and owners lower those of members."""

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.audits.membership.attacks.white_box import NASR_2019
from fl_audit.audits.membership.yeom_attack import active_scores
from fl_audit.federation.target_membership import TargetMembership


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return minus the mean loss of each target during the ascent, shape (trials, targets)."""
    assert outputs.under_ascent is not None, "a run that names the attack keeps what it sees"
    return active_scores(outputs.under_ascent[np.newaxis])


ACTIVE = MembershipAttack(
    name="active",
    label="Active insider",
    sees="losses, while a malicious participant raises those of the targets in every round (it changes the models, for "
    "all attacks)",
    scores=_scores,
    source="Nasr et al. 2019",
    paper=NASR_2019,
    needs_single_records=True,
    needs_ascent=True,
)
"""The attack of an insider that raises the targets' losses in every round (Nasr et al. 2019)."""
