"""What one unit adds to a release, before the noise; `unit` is what is clipped, and so can be promised something."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fl_audit.adjacency import Unit
from fl_audit.errors import require
from fl_audit.learning.local_training import LocalSchedule


@dataclass(frozen=True)
class RecordGradients:
    """Clipped gradients of records: each record adds its own, and a client sends the sum over its records."""

    kind: Literal["record-gradients"] = "record-gradients"
    unit: ClassVar[Unit] = Unit.RECORD


@dataclass(frozen=True)
class LocalTraining:
    """A client trains on its own records, and adds the way its model went, clipped as a whole.

    The order of its records is public, keyed by client and round, so whoever knows a shard can recompute its update.

    Source: McMahan, Ramage, Talwar & Zhang 2018, "Learning differentially private recurrent language models",
    algorithm 1 (flat clipping, uniform weights, fixed denominator).
    """

    schedule: LocalSchedule  # what a client does in a round
    kind: Literal["local-training"] = "local-training"
    unit: ClassVar[Unit] = Unit.CLIENT


@dataclass(frozen=True)
class PrivateTraining:
    """A client trains on its own records by DP-SGD, and adds the way its model went.

    Every step takes a Poisson sample of the records, clips the gradient of each, and adds noise. What is clipped are
    contributions of records to a step; the update itself is not clipped, for it is private already.

    Source: Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1, run by each client.

    Raises `InputError` if there is no shard, or one without records.
    """

    # What a client does in a round. A record is in a step with probability one over the steps of an epoch.
    schedule: LocalSchedule
    # Sizes of the shards, each at least 1; every size once is enough. Each client promises its own records something
    # else: those of a smaller shard are in a step more often, those of a larger one in more steps, and which of them
    # has the largest epsilon depends on the noise.
    shards: tuple[int, ...]
    kind: Literal["private-training"] = "private-training"
    unit: ClassVar[Unit] = Unit.RECORD

    def __post_init__(self) -> None:
        accepted = len(self.shards) > 0 and min(self.shards) >= 1
        require(
            accepted, f"shards have {list(self.shards)} records: accepted are one shard or more, of 1 record or more"
        )


Contribution = RecordGradients | LocalTraining | PrivateTraining
"""The kinds of contribution."""
