"""The white-box attacks of Nasr et al. 2019, with gradients of the final model or of three releases.

Their networks are in `fl_audit.audits.membership.white_box`.
"""

from dataclasses import replace

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.paper_reference import PaperReference

NASR_2019 = PaperReference(
    "M. Nasr, R. Shokri, A. Houmansadr (2019). Comprehensive privacy analysis of deep learning. IEEE Symposium on "
    "Security and Privacy",
    "For white-box attacks",
    "10.1109/SP.2019.00065",
)


def _scores_of_rounds(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the scores of networks that learn from one half of a trial's targets and judge the other."""
    # Imported here, because only playing the attack needs torch.
    from fl_audit.audits.membership.white_box import white_box_scores  # noqa: PLC0415

    assert outputs.white_box is not None, "a run that names the attack keeps what it sees"
    assert outputs.known is not None
    return white_box_scores(outputs.white_box, membership, outputs.known)


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return the scores of such networks that see the last release alone."""
    assert outputs.white_box is not None, "a run that names the attack keeps what it sees"
    return _scores_of_rounds(replace(outputs, white_box=outputs.white_box.of_last_release()), membership, shadows)


WHITE_BOX = MembershipAttack(
    name="white-box",
    label="White box",
    sees="gradient of the last layer, output, loss and label; knows of half of the targets whether they are in",
    scores=_scores,
    source="Nasr et al. 2019",
    paper=NASR_2019,
    needs_single_records=True,
    needs_classes=True,
    sees_gradients=True,
)
"""The attack of a network that sees gradients in the final model, and learns from half of the targets."""

WHITE_BOX_ROUNDS = replace(
    WHITE_BOX,
    name="white-box-rounds",
    label="White box, 3 releases",
    sees="the same of three releases, as a participant sees them",
    scores=_scores_of_rounds,
)
"""The white-box attack with gradients in three releases, as a participant sees them."""
