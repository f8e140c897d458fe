"""The description of a membership attack, so that other code does not depend on which attack it is.

The module of each attack has its name, its line for pages, the facts that a configuration and a run have to know, and
its scores. These modules do not import torch or scikit-learn before an attack is played, because a configuration is
checked with them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fl_audit.paper_reference import PaperReference

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats
    from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
    from fl_audit.federation.target_membership import TargetMembership


ComputeScores = Callable[["ModelOutputs", "TargetMembership", "Flags | None"], "Floats"]
"""A function from what an attack sees to its scores, higher for likelier members, shape (trials, targets).

Its arguments are:

* the outputs of the models of all trials on the targets
* the membership of the targets in all trials. The attack on a trial never uses the trial's own membership, except for
  the targets that `ModelOutputs.known` marks.
* a mask of the trials that serve only as shadow models, (trials,), whose scores are NaN. With None, each trial is
  attacked with all other trials as shadow models. An attack that does not learn from shadows ignores the mask.

It raises `InputError` if there are too few trials, or if it needs one record per target and targets have several.
"""


@dataclass(frozen=True)
class MembershipAttack:
    """A membership attack, which scores targets by how likely they are members of a trial's training set."""

    name: str  # name in a configuration, and key in the registry
    label: str  # name in reports
    sees: str  # description of what the attack sees and does, one line for pages
    scores: ComputeScores  # function that attacks all trials
    source: str = ""  # authors and year of its paper, such as `Carlini et al. 2022`
    # Paper that a report on the attack names; None if there is none, or if the report names it for another reason.
    paper: PaperReference | None = None
    is_default: bool = False  # whether the attack is played if the configuration names no attacks
    needs_single_records: bool = False  # whether targets have to be single records, and not users or clients
    needs_classes: bool = False  # whether labels have to be classes, and not quantities
    # Whether models of other trials serve as shadow models (models with known membership).
    learns_from_shadows: bool = False
    # Whether every target has to be a member in some shadow models, and a nonmember in others.
    needs_shadows_of_each_target: bool = False
    # Whether the attack sees gradients, and knows the membership of half of the targets of the attacked trial.
    sees_gradients: bool = False
    # Whether the insider raises the targets' losses in every round, which changes the models for all attacks.
    needs_ascent: bool = False
    # Whether the attack guesses values of an attribute, so that it has no scores of membership.
    guesses_values: bool = False
