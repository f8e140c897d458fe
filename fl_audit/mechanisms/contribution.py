"""What one unit adds to a release, before the noise."""

from dataclasses import dataclass
from typing import Literal

from fl_audit.adjacency import Unit
from fl_audit.learning.local_training import LocalSchedule


@dataclass(frozen=True)
class RecordGradients:
    """Clipped gradients of records: each record adds its own, and a client sends the sum over its records."""

    kind: Literal["record-gradients"] = "record-gradients"

    @property
    def unit(self) -> Unit:
        """The unit whose contribution is clipped, and so can be promised something."""
        return Unit.RECORD


@dataclass(frozen=True)
class LocalTraining:
    """A client trains on its own records, and adds the way its model went, clipped as a whole.

    The order of its records is public, keyed by client and round, so whoever knows a shard can recompute its update.

    Parameters
    ----------
    schedule
        What a client does in a round.

    Notes
    -----
    Source: McMahan, Ramage, Talwar & Zhang 2018, "Learning differentially private recurrent language models",
    algorithm 1 (flat clipping, uniform weights, fixed denominator).
    """

    schedule: LocalSchedule
    kind: Literal["local-training"] = "local-training"

    @property
    def unit(self) -> Unit:
        """The unit whose contribution is clipped, and so can be promised something."""
        return Unit.CLIENT


Contribution = RecordGradients | LocalTraining
"""The kinds of contribution."""
