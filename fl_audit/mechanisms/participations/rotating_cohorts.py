"""Groups of clients (cohorts), all with the same number of clients, which take turns in a public order."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np

from fl_audit.array_types import Integers
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.participations.participation import (
    Participation,
    ParticipationPhraseContext,
    ParticipationSettings,
)
from fl_audit.randomness import Purpose, generator
from fl_audit.words import plural


@dataclass(frozen=True)
class RotatingCohorts(Participation):
    """Participation of one cohort of clients per round; cohorts have a fixed size and take turns in a public order.

    The cohorts are consecutive sections of one random order of all m clients, which is repeated. Everybody knows who
    participates, so sampling does not amplify privacy. A client participates in every (m / size)-th round on average.
    Two rounds in which the same client participates are at least floor(m / size) rounds apart.
    """

    size: int  # number of clients in a round, from 1 to m - 1; for all m, use `Everybody`
    clients: int  # m, number of all clients
    # The client at the beginning of the order, which has the maximum number of participations. Audits put the differing
    # client there, because they would measure nothing for a client that never participates. None for a random client.
    first: int | None = None
    rate = 1.0
    kind: Literal["cohort"] = "cohort"
    counted_rounds: ClassVar = "the rounds in which a client takes part"

    def __post_init__(self) -> None:
        accepted = 1 <= self.size < self.clients
        require(accepted, f"cohort is {self.size} of {self.clients} clients: accepted are 1 to {self.clients - 1}")
        is_known = self.first is None or 0 <= self.first < self.clients
        require(is_known, f"first client of the cohorts is {self.first}: accepted are 0 to {self.clients - 1}")

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Build the participation rule from the configured cohort size; raise `InputError` if no size is configured."""
        if settings.cohort is None:
            raise InputError(
                "sampling is 'cohort' and cohort is left out: accepted is the number of clients of a round"
            )
        return cls(settings.cohort, settings.units)

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return True if a configuration that names no rule means rotating cohorts: if a cohort is not everybody."""
        return settings.cohort not in (None, settings.units)

    @property
    def separation(self) -> int:
        """Smallest number of rounds from one participation of a client to its next."""
        return self.clients // self.size

    @property
    def known_separation(self) -> int | None:
        """Smallest number of rounds from one participation of a client to its next, which everybody knows."""
        return self.separation

    def participations(self, rounds: int) -> int:
        """Return the largest number of rounds in which a client can participate, out of `rounds` rounds."""
        return math.ceil(rounds * self.size / self.clients)

    def eligible_units(self, seed: int, server_round: int) -> Integers:
        """Return the numbers of the clients that participate in a round, ascending, integers (size,)."""
        order = generator(seed, Purpose.COHORT_ORDER).permutation(self.clients)
        if self.first is not None:
            position = int(np.flatnonzero(order == self.first)[0])
            order[[0, position]] = order[[position, 0]]
        begin = (server_round - 1) * self.size
        return np.sort(order[np.arange(begin, begin + self.size) % self.clients]).astype(np.int64)

    def with_first(self, unit: int) -> Self:
        """Return the same rule with the client of the given number at the beginning of the order."""
        return replace(self, first=unit)

    def mean_units(self, units: int) -> float:
        """Return the number of clients in a cohort; `units` is not used."""
        return self.size

    def require_contribution(self, unit: str, is_of_client: bool) -> None:
        """Raise `InputError` if the unit of a contribution is not a client."""
        cohort = f"cohort is {self.size} clients with strategy 'dp-fedsgd', whose units are {unit}s"
        require(is_of_client, f"{cohort}: accepted with it are sampling-rate and expected-batch")

    def words(self, context: ParticipationPhraseContext) -> str:
        """Return a phrase for reports on the cohorts: their size, their order, and how often a client participates."""
        often = self.participations(context.rounds)
        return (
            f"cohorts of {self.size:,} of {self.clients:,} clients in a public order: a client takes part in "
            f"one round of {_ratio_text(self.clients / self.size)}, at most {plural(often, 'time')} in "
            f"{plural(context.rounds, 'round')}; everybody knows when, so sampling adds no protection"
        )

    def curve_words(self, differing: str) -> str:
        """Return a sentence for reports on rounds in which the differing unit is not in the cohort.

        The sentence says that the unit changes nothing in these rounds.
        """
        return f"In rounds in which {differing} is not in the cohort it changes nothing."

    def favoured_unit_words(self, rounds: int) -> str:
        """Return a sentence for reports: the differing client is in the first cohort, and takes part in so many rounds.

        The result is "" if the position of the differing client is not fixed (`first` is None).
        """
        if self.first is None:
            return ""
        often = f"{self.participations(rounds):,} of {plural(rounds, 'round')}"
        return (
            " The differing client stands first in the public order of cohorts, by construction, so that it takes part "
            f"in {often}: no client takes part more often."
        )


def _ratio_text(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 100 else f"{ratio:,.1f}".removesuffix(".0")
