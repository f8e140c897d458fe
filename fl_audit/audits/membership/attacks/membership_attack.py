"""Interface of all membership attacks, so that other code does not depend on which attack it is.

The module of each attack has its name, its line for pages, the facts that a configuration and a run have to know, and
its scores. These modules do not import torch or scikit-learn before an attack is played, because a configuration is
checked with them.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from fl_audit.paper_reference import PaperReference

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats
    from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
    from fl_audit.federation.target_membership import TargetMembership


class MembershipAttack(ABC):
    """A membership attack, which scores targets by how likely they are members of a trial's training set."""

    name: str
    """Name in a configuration, and its key in the registry."""
    label: str
    """Name in reports."""
    sees: str
    """Description of what the attack sees and does, one line for pages."""
    source: str = ""
    """Authors and year of its paper, such as `Carlini et al. 2022`."""
    paper: PaperReference | None = None
    """Paper that a report on the attack names; None if there is none, or if the report names it for another reason."""

    is_default: bool = False
    """Whether the attack is played if the configuration names no attacks."""
    needs_single_records: bool = False
    """Whether targets have to be single records, and not users or clients."""
    needs_classes: bool = False
    """Whether labels have to be classes, and not quantities."""
    learns_from_shadows: bool = False
    """Whether models of other trials serve as shadow models (models with known membership)."""
    needs_shadows_of_each_target: bool = False
    """Whether every target has to be a member in some shadow models, and a nonmember in others."""
    sees_gradients: bool = False
    """Whether the attack sees gradients, and knows the membership of half of the targets of the attacked trial."""
    needs_ascent: bool = False
    """Whether the insider raises the targets' losses in every round, which changes the models for all attacks."""
    guesses_values: bool = False
    """Whether the attack guesses values of an attribute, so that it has no scores of membership."""

    @abstractmethod
    def scores(
        self, outputs: "ModelOutputs", membership: "TargetMembership", shadows: "Flags | None" = None
    ) -> "Floats":
        """Return the scores of the targets, higher for a likelier member, shape (trials, targets).

        Parameters
        ----------
        outputs
            Outputs of the models of all trials on the targets.
        membership
            The membership of the targets in all trials. The attack on a trial never uses the trial's own membership,
            except for the targets that `outputs.known` marks.
        shadows
            Mask of the trials that serve only as shadow models, (trials,), whose scores are NaN; None attacks each
            trial with all other trials as shadow models. An attack that does not learn from shadows ignores it.

        Raises
        ------
        InputError
            If there are too few trials for the attack, or it needs one record per target and targets have several.
        """

    def require_importable(self) -> None:  # noqa: B027  # only attacks of the user have something to check
        """Raise `InputError` if the code of the attack cannot be imported; that of built-in attacks always can."""
