"""Parts of a release before its noise: participation, the contribution of one unit, and its clipping."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.arrays import Integers
from fl_audit.errors import require, require_number
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.privacy.events import batches_per_epoch
from fl_audit.privacy.gaussian import require_positive
from fl_audit.randomness import Purpose, generator


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
    kind: Literal["private-training"] = "private-training"
    unit: ClassVar[Unit] = Unit.RECORD

    def __post_init__(self) -> None:
        accepted = "accepted are one shard or more, of 1 record or more"
        require(min(self.shards, default=0) >= 1, f"shards have {list(self.shards)} records: {accepted}")

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


@dataclass(frozen=True)
class Everybody:
    """Every unit takes part in every round."""

    rate: ClassVar[float] = 1.0
    separation: ClassVar[int] = 1  # as of `FixedCohort`
    kind: Literal["everybody"] = "everybody"

    def participations(self, rounds: int) -> int:
        """Return the largest number of rounds, of a given number, in which one unit takes part: all of them."""
        return rounds


@dataclass(frozen=True)
class PoissonSampling:
    """Each unit takes part in each round on its own with probability q."""

    rate: float  # q, above 0 and below 1; at 1 it would be `Everybody`
    separation: ClassVar[int] = 1  # as of `FixedCohort`
    kind: Literal["poisson"] = "poisson"

    def __post_init__(self) -> None:
        require_number("sampling rate is", self.rate, "numbers above 0 and below 1")

    def participations(self, rounds: int) -> int:
        """Return the largest number of rounds, of a given number, in which one unit takes part: all of them."""
        return rounds


@dataclass(frozen=True)
class FixedCohort:
    """In each round a cohort of a fixed number of clients takes part, in a public order.

    All clients stand in one public random order, and the cohorts follow each other through it, over and over. So
    everybody knows who takes part in which round, which amplifies nothing; a client takes part in every (m / size)-th
    round, and two rounds of a client lie at least floor(m / size) apart.
    """

    size: int  # clients of one round, from 1 to m - 1; with all m it would be `Everybody`
    clients: int  # m, number of all clients
    # The client that stands first in the order, so that it takes part as often as any can: the differing one of an
    # audit, which would find nothing of a client that never takes part. None leaves that to chance.
    first: int | None = None
    rate: ClassVar[float] = 1.0
    kind: Literal["cohort"] = "cohort"

    def __post_init__(self) -> None:
        accepted = 1 <= self.size < self.clients
        require(accepted, f"cohort is {self.size} of {self.clients} clients: accepted are 1 to {self.clients - 1}")
        known = self.first is None or 0 <= self.first < self.clients
        require(known, f"first client of the cohorts is {self.first}: accepted are 0 to {self.clients - 1}")

    @property
    def separation(self) -> int:
        """Fewest rounds from one in which a client takes part to the next one in which it does."""
        return self.clients // self.size

    def participations(self, rounds: int) -> int:
        """Return the largest number of rounds, of a given number, in which one client takes part."""
        return math.ceil(rounds * self.size / self.clients)

    def members(self, seed: int, server_round: int) -> Integers:
        """Return the clients of a round, in ascending order.

        Parameters
        ----------
        seed
            Public seed of the order.
        server_round
            Number of the round, from 1.
        """
        order = generator(seed, Purpose.COHORT_ORDER).permutation(self.clients)
        if self.first is not None:
            place = int(np.flatnonzero(order == self.first)[0])
            order[[0, place]] = order[[place, 0]]
        begin = (server_round - 1) * self.size
        return np.sort(order[np.arange(begin, begin + self.size) % self.clients]).astype(np.int64)


Participation = Everybody | PoissonSampling | FixedCohort
"""The ways to take part; `rate` is the probability of that in a round as far as others know, 1 if they see who does."""


def participation_of(rate: float) -> Participation:
    """Return the participation at a sampling rate, above 0 and up to 1, where everybody takes part."""
    return Everybody() if rate == 1 else PoissonSampling(rate)
