"""The loss attack of Yeom et al. 2018, with all thresholds: the smaller the loss, the likelier a member."""

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.audits.membership.yeom_attack import loss_scores
from fl_audit.federation.target_membership import TargetMembership


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the negated losses, shape (trials, targets)."""
    return loss_scores(-outputs.log_probability)


LOSS = MembershipAttack(
    name="loss", label="Loss threshold", sees="the loss", scores=_scores, source="Yeom et al. 2018", is_default=True
)
"""The attack by the loss of the final model (Yeom et al. 2018)."""
