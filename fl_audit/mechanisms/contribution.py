"""Parts of a release before its noise: the contribution of one unit, and its clipping."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.errors import require, require_number
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.mechanisms.participations.cohort import FixedCohort as FixedCohort
from fl_audit.mechanisms.participations.everybody import Everybody as Everybody
from fl_audit.mechanisms.participations.participation import Participation as Participation
from fl_audit.mechanisms.participations.poisson import PoissonSampling as PoissonSampling
from fl_audit.privacy.events import batches_per_epoch
from fl_audit.privacy.gaussian import require_positive


@dataclass(frozen=True)
class RecordGradients:
    """Clipped gradients of records: each record adds its own, and a client sends the sum over its records."""

    kind: Literal["record-gradients"] = "record-gradients"
    unit: ClassVar[Unit] = Unit.RECORD


@dataclass(frozen=True)
class UserGradients:
    """Clipped gradients of users: each user adds the sum of the gradients of its records, clipped together.

    A client sends the sum over its users. All records of a user lie at one client.
    """

    kind: Literal["user-gradients"] = "user-gradients"
    unit: ClassVar[Unit] = Unit.USER


@dataclass(frozen=True)
class LocalTraining:
    """A client trains on its own records, and adds the way its model went, clipped as a whole.

    The order of its records is public, keyed by client and round, so whoever knows a shard can recompute its update.

    Source: McMahan, Ramage, Talwar & Zhang 2018, "Learning differentially private recurrent language models",
    algorithm 1 (flat clipping, uniform weights, fixed denominator).
    """

    schedule: LocalSchedule  # training of a client in a round
    kind: Literal["local-training"] = "local-training"
    unit: ClassVar[Unit] = Unit.CLIENT


@dataclass(frozen=True)
class PrivateTraining:
    """A client trains on its own records by DP-SGD, and adds the way its model went.

    Every step takes a Poisson sample of the records, clips the gradient of each, and adds noise. What is clipped are
    contributions of records to a step; the update itself is not clipped, for it is private already. After one step the
    update is a noised clipped sum, times public numbers; after several nobody can write down its distribution.

    Source: Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1, run by each client.

    Raises `InputError` if there is no shard, or one without records.
    """

    # Training of a client in a round. A record is in a step with probability one over the steps of an epoch.
    schedule: LocalSchedule
    # Sizes of the shards, each at least 1; every size once is enough. Each client guarantees its own records something
    # else: those of a smaller shard are in a step more often, those of a larger one in more steps, and which of them
    # has the largest epsilon depends on the noise.
    shards: tuple[int, ...]
    # The noise that a client that attacks does not know, over that of the target's client alone, both on the scale of
    # that client's clipped sum: at least 1, and 1 where the server attacks. A record is so much harder to see.
    hiding: float = 1.0
    kind: Literal["private-training"] = "private-training"
    unit: ClassVar[Unit] = Unit.RECORD

    def __post_init__(self) -> None:
        accepted = "accepted are one shard or more, of 1 record or more"
        require(min(self.shards, default=0) >= 1, f"shards have {list(self.shards)} records: {accepted}")
        require(self.hiding >= 1, f"hiding is {self.hiding}: accepted are numbers from 1")

    @property
    def is_one_step(self) -> bool:
        """Whether every client takes one step in a round."""
        epochs = self.schedule.epochs or 0
        return all((self.schedule.steps or epochs * self._batches(records)) == 1 for records in self.shards)

    @property
    def rates(self) -> tuple[float, ...]:
        """Probabilities with which records take part in a round of one step, rising, each once; 1 where rounds have
        several, in one of which nearly every record is.
        """
        if not self.is_one_step:
            return (1.0,)
        return tuple(sorted({self.rate_of(records) for records in self.shards}))

    def rate_of(self, records: int) -> float:
        """Return the probability with which a record is in a step of its client.

        Parameters
        ----------
        records
            Number of records of the client, from 1.
        """
        return 1 / self._batches(records)

    def hiding_of(self, target: int, others: Iterable[int]) -> float:
        """Return how many times the noise of the target's client the noise of several clients is, on its scale.

        A client divides its noised sum by its mean batch, so that the noise of small batches hides more.

        Parameters
        ----------
        target
            Number of records of the target's client, from 1.
        others
            Number of records of each other client whose noise is not known, from 1.
        """
        own = target * self.rate_of(target)
        return math.sqrt(1 + sum((own / (records * self.rate_of(records))) ** 2 for records in others))

    def _batches(self, records: int) -> int:
        return batches_per_epoch(records, self.schedule.batch)


Contribution = RecordGradients | UserGradients | LocalTraining | PrivateTraining
"""The kinds of contribution."""


@dataclass(frozen=True)
class FixedClipping:
    """A contribution longer than C is shortened to it: g min(1, C / ||g||), over all parameters together."""

    norm: float  # C, largest L2 norm of one contribution; positive and finite
    kind: Literal["fixed"] = "fixed"

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm)


@dataclass(frozen=True)
class AdaptiveClipping:
    """The norm follows a quantile of the lengths of contributions, which is estimated with noise.

    Beside its contribution a unit tells whether it is at most C long. The sum of these bits, each less one half, is
    released with noise, and the next round's norm is C exp(-eta (share - gamma)). The noise of a round is scaled to the
    norm at which that round clipped.

    Source: Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially private learning with adaptive clipping",
    algorithm 1.
    """

    norm: float  # C of the first round, positive and finite
    quantile: float = 0.5  # gamma, the share of contributions that are to stay unclipped; above 0 and below 1
    learning_rate: float = 0.2  # eta, how fast the norm follows; positive and finite
    bit_noise: float = 5.0  # noise multiplier of the bits' sum over that of the contributions' sum, positive and finite
    kind: Literal["adaptive"] = "adaptive"

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm, clipping_learning_rate=self.learning_rate)
        require_positive(quantile_noise=self.bit_noise)
        require_number("quantile is", self.quantile, "numbers above 0 and below 1")

    def moved(self, norms: Tensor, share: Tensor) -> Tensor:
        """Return the norms of the next round.

        Parameters
        ----------
        norms
            Clipping norms C of this round, float64 (trials,).
        share
            Noised share of contributions that were at most C long, float64 (trials,).
        """
        return norms * (-self.learning_rate * (share - self.quantile)).exp()


@dataclass(frozen=True)
class NoClipping:
    """Contributions of any length, which leave noise no scale and guarantee nothing."""

    norm: ClassVar[float] = math.inf
    kind: Literal["none"] = "none"


Clipping = FixedClipping | AdaptiveClipping | NoClipping
"""The ways to clip; `norm` is the largest L2 norm that one contribution can have, in the first round."""
