"""The outputs of the trained models of a run that membership attacks see."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats, Integers

if TYPE_CHECKING:
    from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures


@dataclass(frozen=True)
class ModelOutputs:
    """The outputs of the models of all trials on the records of the targets and on population records.

    No model was trained on population records.
    """

    # log p_y (log-probability of the true label y) of each target, (trials, targets); mean over the records of a target
    # with several records.
    log_probability: Floats
    confidence: Floats  # logit of the probability p_y of each target, (trials, targets); mean as above
    # Logits of the targets' records, (trials, records, classes); None if targets are not single records.
    logits: NDArray[np.floating] | None
    labels: Integers | None  # true labels of these records, (records,); None if `logits` is None
    population: Floats  # log p_y of p records that no trial was trained on, (trials, p)
    # Features of the targets' gradients in three releases, the final one last; None if not requested.
    white_box: "WhiteBoxFeatures | None" = None
    # Whether the attacker of a trial knows the target's membership, bool (trials, targets); None with `white_box`.
    known: Flags | None = None
    # Mean loss of each target while the insider raised it by gradient ascent, (trials, targets); None without ascent.
    under_ascent: Floats | None = None

    def of(self, trials: Integers) -> "ModelOutputs":
        """Return the outputs of the models of the given trials only; fields that have a default are None."""
        logits = None if self.logits is None else self.logits[trials]
        values = self.log_probability[trials], self.confidence[trials]
        return ModelOutputs(*values, logits, self.labels, self.population[trials])
