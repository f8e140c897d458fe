"""Who takes part in a round; numbers out of their range raise `InputError`."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fl_audit.arrays import Integers
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class Everybody:
    """Every unit takes part in every round."""

    rate: ClassVar[float] = 1.0
    kind: Literal["everybody"] = "everybody"


@dataclass(frozen=True)
class PoissonSampling:
    """Each unit takes part in each round on its own with probability q."""

    rate: float  # q, above 0 and below 1; at 1 it would be `Everybody`
    kind: Literal["poisson"] = "poisson"

    def __post_init__(self) -> None:
        require(0 < self.rate < 1, f"sampling rate is {self.rate}: accepted are numbers above 0 and below 1")


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
        """Return the most rounds of so many in which one client takes part."""
        return math.ceil(rounds * self.size / self.clients)

    def members(self, seed: int, server_round: int) -> Integers:
        """Return the clients of a round, in ascending order.

        Parameters
        ----------
        seed, server_round
            Public seed of the order, and the round, from 1.
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
