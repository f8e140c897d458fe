"""The attack on an attribute (Yeom et al. 2018), which guesses a value instead of scoring membership.

Its guesses are made by `fl_audit.audits.membership.attribute_inference`.
"""

from typing import NoReturn

from fl_audit.array_types import Flags
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.errors import InputError
from fl_audit.federation.target_membership import TargetMembership


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> NoReturn:
    """Raise `InputError`, because the attack has no scores."""
    raise InputError("attack 'attribute' guesses values: accepted are attacks that score membership")


ATTRIBUTE = MembershipAttack(
    name="attribute",
    label="Attribute",
    sees="the loss with each possible value of one attribute in the record's place; guesses which value is true",
    scores=_scores,
    source="Yeom et al. 2018",
    needs_single_records=True,
    needs_classes=True,
    learns_from_shadows=True,
    guesses_values=True,
)
"""The attack that guesses one attribute of a target from the loss with each possible value."""
