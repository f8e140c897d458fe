"""Parts of a release before its noise: the contribution of a unit, and its clipping."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.errors import require, require_number
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.mechanisms.participations.everybody import Everybody as Everybody
from fl_audit.mechanisms.participations.participation import Participation as Participation
from fl_audit.mechanisms.participations.poisson import PoissonSampling as PoissonSampling
from fl_audit.mechanisms.participations.rotating_cohorts import FixedCohort as FixedCohort
from fl_audit.privacy.events import batches_per_epoch
from fl_audit.privacy.gaussian import require_positive


@dataclass(frozen=True)
class RecordGradients:
    """DP-FedSGD on records: a client sends the sum of the clipped gradients of its records."""

    kind: Literal["record-gradients"] = "record-gradients"
    unit: ClassVar[Unit] = Unit.RECORD


@dataclass(frozen=True)
class UserGradients:
    """DP-FedSGD on users: a client sends the sum over its users of their clipped summed gradients.

    All records of a user are held by one client.
    """

    kind: Literal["user-gradients"] = "user-gradients"
    unit: ClassVar[Unit] = Unit.USER


@dataclass(frozen=True)
class LocalTraining:
    """DP-FedAvg: a client trains on its own records and sends its clipped model update.

    The order of records is public, keyed by client and round, so whoever knows a shard can recompute its update.

    Source: McMahan, Ramage, Talwar & Zhang 2018, "Learning differentially private recurrent language models", algorithm
    1 (flat clipping, uniform weights, fixed denominator).
    """

    schedule: LocalSchedule  # training of a client in a round
    kind: Literal["local-training"] = "local-training"
    unit: ClassVar[Unit] = Unit.CLIENT


@dataclass(frozen=True)
class PrivateTraining:
    """Local DP-SGD: a client trains on its own records by DP-SGD and sends its model update.

    Every step takes a Poisson sample of the records, clips the gradient of each, and adds noise. The update itself is
    not clipped, because it is private already. After one step the update is a noised clipped sum multiplied by public
    numbers; after several steps its distribution has no closed form.

    Source: Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1, run by each client.

    Raises `InputError` if there is no shard, or a shard without records.
    """

    # Training of a client in a round. A record is in a step with probability 1 / (steps per epoch).
    schedule: LocalSchedule
    # Sizes of the shards, each at least 1; repeated sizes may be left out. The guarantee depends on the size: records
    # of smaller shards are in a step with a larger probability, and larger shards take more steps. Which size has the
    # largest epsilon depends on the noise.
    shards: tuple[int, ...]
    # Noise of all clients that an attacking client does not know, relative to the noise of the target's client, both on
    # the scale of that client's clipped sum: at least 1, and 1 if the server attacks. It is the factor by which the
    # effective noise grows.
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
        """Distinct sampling rates of the clients' records, ascending, if a round has one step; otherwise (1.0,).

        In a round of several steps almost every record is in one of them.
        """
        if not self.is_one_step:
            return (1.0,)
        return tuple(sorted({self.rate_of(records) for records in self.shards}))

    def rate_of(self, records: int) -> float:
        """Return the sampling rate of a client's records per step.

        Parameters
        ----------
        records
            Number of records of the client, from 1.
        """
        return 1 / self._batches(records)

    def hiding_of(self, target: int, others: Iterable[int]) -> float:
        """Return the joint noise of the target's client and others, relative to the noise of the target's client.

        A client divides its noised sum by its expected batch size, so clients with small batches add more noise.

        Parameters
        ----------
        target
            Number of records of the target's client, from 1.
        others
            Number of records, from 1, of each other client whose noise the adversary does not know.
        """
        own = target * self.rate_of(target)
        return math.sqrt(1 + sum((own / (records * self.rate_of(records))) ** 2 for records in others))

    def _batches(self, records: int) -> int:
        return batches_per_epoch(records, self.schedule.batch)


Contribution = RecordGradients | UserGradients | LocalTraining | PrivateTraining
"""A contribution of any kind."""


@dataclass(frozen=True)
class FixedClipping:
    """Clipping of each contribution g to a fixed norm C over all parameters together: g min(1, C / ||g||)."""

    norm: float  # C, largest L2 norm of one contribution; positive and finite
    kind: Literal["fixed"] = "fixed"

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm)


@dataclass(frozen=True)
class AdaptiveClipping:
    """Clipping to a norm that follows a noisy estimate of a quantile of the contributions' norms.

    Each unit also contributes a bit: whether its contribution has at most the norm C. The sum of the bits, each minus
    1/2, is released with noise, and the next round's norm is C exp(-eta (share - gamma)). The noise on the
    contributions is scaled to the clipping norm of the same round.

    Source: Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially private learning with adaptive clipping",
    algorithm 1.
    """

    norm: float  # C of the first round, positive and finite
    quantile: float = 0.5  # gamma, target share of unclipped contributions; above 0 and below 1
    learning_rate: float = 0.2  # eta, learning rate of the norm; positive and finite
    bit_noise: float = 5.0  # noise multiplier of the bits' sum over that of the contributions' sum, positive and finite
    kind: Literal["adaptive"] = "adaptive"

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm, clipping_learning_rate=self.learning_rate)
        require_positive(quantile_noise=self.bit_noise)
        require_number("quantile is", self.quantile, "numbers above 0 and below 1")

    def moved(self, norms: Tensor, share: Tensor) -> Tensor:
        """Return the clipping norms of the next round, float64 (trials,).

        Parameters
        ----------
        norms
            Clipping norms C of this round, float64 (trials,).
        share
            Noised share of contributions with at most the norm C, float64 (trials,).
        """
        return norms * (-self.learning_rate * (share - self.quantile)).exp()


@dataclass(frozen=True)
class NoClipping:
    """No clipping: the sensitivity is unbounded, so there is no guarantee."""

    norm: ClassVar[float] = math.inf
    kind: Literal["none"] = "none"


Clipping = FixedClipping | AdaptiveClipping | NoClipping
"""A clipping of any kind; `norm` is the largest L2 norm that one contribution can have in the first round."""
