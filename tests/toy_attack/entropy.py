"""An attack by the entropy of confidences: a model is surer of records that it was trained on."""

import numpy as np
from scipy.special import entr, softmax

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.membership_attack import MembershipAttack
from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.paper_reference import PaperReference


def _scores(outputs: ModelOutputs, membership: TargetMembership, shadows: Flags | None) -> Floats:
    """Return minus the entropy of the confidences in each target, shape (trials, targets)."""
    assert outputs.logits is not None, "targets are single records"
    confidences = softmax(outputs.logits.astype(np.float64), axis=-1)
    return np.asarray(-entr(confidences).sum(axis=-1), dtype=np.float64)


ENTROPY = MembershipAttack(
    name="toy-entropy",  # no name that an attack of fl_audit may ever have
    label="Entropy of confidences",
    sees="the entropy of the confidences",
    scores=_scores,
    source="Song & Mittal 2021",
    paper=PaperReference("L. Song, P. Mittal (2021). Evaluation of privacy risks", "For entropies", "10.1/entropy"),
    needs_single_records=True,
    needs_classes=True,
)
"""The attack by the entropy of a model's confidences (Song & Mittal 2021)."""
