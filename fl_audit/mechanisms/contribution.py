"""Parts of a release before noise is added: the contribution of each unit, and its clipping."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.errors import require
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.mechanisms.participations.everybody import Everybody as Everybody
from fl_audit.mechanisms.participations.participation import Participation as Participation
from fl_audit.mechanisms.participations.poisson import PoissonSampling as PoissonSampling
from fl_audit.mechanisms.participations.rotating_cohorts import RotatingCohorts as RotatingCohorts
from fl_audit.privacy.accounting_enums import VectorNorm
from fl_audit.privacy.events import batches_per_epoch
from fl_audit.privacy.gaussian import require_positive
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class RecordGradients:
    """Contribution of DP-FedSGD with records as units: a client sends the sum of its records' clipped gradients."""

    kind: Literal["record-gradients"] = "record-gradients"
    unit: ClassVar[Unit] = Unit.RECORD


@dataclass(frozen=True)
class UserGradients:
    """Contribution of DP-FedSGD with users as units: a client sends the sum of its users' contributions.

    A user's contribution is the clipped sum of the gradients of the user's records, which are all held by one client.
    """

    kind: Literal["user-gradients"] = "user-gradients"
    unit: ClassVar[Unit] = Unit.USER


@dataclass(frozen=True)
class LocalTraining:
    """Contribution of DP-FedAvg: a client trains on its own records and sends its clipped model update.

    The order of records is public, so anybody who knows a client's records can recompute its update.

    Source: McMahan, Ramage, Talwar & Zhang 2018, "Learning differentially private recurrent language models", algorithm
    1 (flat clipping, uniform weights, fixed denominator).
    """

    schedule: LocalSchedule  # training of a client in a round
    kind: Literal["local-training"] = "local-training"
    unit: ClassVar[Unit] = Unit.CLIENT


@dataclass(frozen=True)
class PrivateTraining:
    """Contribution of local DP-SGD: a client trains on its own records by DP-SGD and sends its model update.

    The update is not clipped, because it is private already. After one step, the update is a noised sum of clipped
    gradients, times public constants. After several steps, its distribution has no closed form.

    Source: Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1, run by each client.

    Raises `InputError` if there is no shard (a client's records), if a shard has no records, or if `hiding`, the factor
    by which other clients' noise increases the noise multiplier, is below 1.
    """

    # Training of a client in a round. Each step samples a record with probability 1 / (steps per epoch).
    schedule: LocalSchedule
    # Sizes of the clients' shards, each at least 1; repeated sizes may be left out. The guarantee depends on the size:
    # steps sample records of smaller shards with a larger probability, and larger shards take more steps. It depends on
    # the noise which size has the largest epsilon.
    shards: tuple[int, ...]
    # Joint noise of all clients whose noise an attacking client does not know, over the noise of the target's client
    # alone: at least 1, and 1 if the server attacks. It is the factor by which the noise multiplier against the
    # adversary grows.
    hiding: float = 1.0
    kind: Literal["private-training"] = "private-training"
    unit: ClassVar[Unit] = Unit.RECORD

    def __post_init__(self) -> None:
        accepted = "accepted are one shard or more, of 1 record or more"
        require(min(self.shards, default=0) >= 1, f"shards have {list(self.shards)} records: {accepted}")
        require(self.hiding >= 1, f"hiding is {self.hiding}: accepted are numbers from 1")

    @property
    def is_one_step(self) -> bool:
        """Whether every client takes exactly one DP-SGD step in a round."""
        epochs = self.schedule.epochs or 0
        return all((self.schedule.steps or epochs * self._batches(records)) == 1 for records in self.shards)

    @property
    def rates(self) -> tuple[float, ...]:
        """The different rates with which clients sample their records in a round, ascending.

        The result is (1.0,) if a client takes several steps in a round, because these steps together use almost every
        record.
        """
        if not self.is_one_step:
            return (1.0,)
        return tuple(sorted({self.rate_of(records) for records in self.shards}))

    def rate_of(self, records: int) -> float:
        """Return the probability with which a DP-SGD step of a client samples each of its records.

        Parameters
        ----------
        records
            Number of records of the client, from 1.
        """
        return 1 / self._batches(records)

    def noise_gain_from_others(self, target: int, other_records: Iterable[int]) -> float:
        """Return the factor, at least 1, by which other clients' noise increases the noise of the target's client.

        A client divides its noised sum by its expected batch size, so clients with small batches add more noise.

        Parameters
        ----------
        target
            Number of records, from 1, of the client that holds the record in question.
        other_records
            Number of records, from 1, of each other client whose noise the adversary does not know.
        """
        target_gain = target * self.rate_of(target)
        return math.sqrt(1 + sum((target_gain / (records * self.rate_of(records))) ** 2 for records in other_records))

    def _batches(self, records: int) -> int:
        return batches_per_epoch(records, self.schedule.batch)


Contribution = RecordGradients | UserGradients | LocalTraining | PrivateTraining
"""A contribution of any kind."""


@dataclass(frozen=True)
class FixedClipping:
    """Clipping of each contribution g to a fixed norm C over all parameters together: g min(1, C / ||g||).

    ||g|| is the L2 norm, or for noise that is not Gaussian the L1 norm.
    """

    norm: float  # C, largest norm of one contribution; positive and finite
    kind: Literal["fixed"] = "fixed"
    measured_in: VectorNorm = VectorNorm.L2  # norm ||g||

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm)


@dataclass(frozen=True)
class AdaptiveClipping:
    """Clipping to a norm C that follows a noisy estimate of a quantile of the contributions' norms.

    Each unit also contributes a bit, which is 1 if its contribution has at most the norm C. The sum of the bits, each
    minus 1/2, is released with noise. The released sum gives the noised share of contributions with at most the norm C.
    The next round's norm is C exp(-eta (share - gamma)), where eta is the learning rate and gamma the target share. The
    noise on the sum of contributions is scaled to the clipping norm of its round.

    Source: Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially private learning with adaptive clipping",
    algorithm 1.
    """

    measured_in: ClassVar[VectorNorm] = VectorNorm.L2
    norm: float  # C of the first round, positive and finite
    quantile: float = 0.5  # gamma, target share of unclipped contributions; above 0 and below 1
    learning_rate: float = 0.2  # eta, learning rate of the norm; positive and finite
    bit_noise: float = 5.0  # noise multiplier of the bits' sum over that of the contributions' sum, positive and finite
    kind: Literal["adaptive"] = "adaptive"

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm, clipping_learning_rate=self.learning_rate)
        require_positive(quantile_noise=self.bit_noise)
        require_number("quantile is", self.quantile, "numbers above 0 and below 1")

    def next_norms(self, norms: Tensor, share: Tensor) -> Tensor:
        """Return the clipping norms of the next round, C exp(-eta (share - gamma)), float64 (trials,).

        eta is `learning_rate` and gamma is `quantile`.

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
    """No clipping: contributions are unbounded, so there is no guarantee."""

    norm: ClassVar[float] = math.inf
    measured_in: ClassVar[VectorNorm] = VectorNorm.L2
    kind: Literal["none"] = "none"


Clipping = FixedClipping | AdaptiveClipping | NoClipping
"""A clipping of any kind; `norm` is the largest norm that one contribution can have in the first round.

The norm is that which `measured_in` names."""
