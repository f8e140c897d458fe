"""Cyclic Poisson sampling: groups of units take turns, and each unit of the group is sampled independently."""

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
from fl_audit.mechanisms.participations.poisson import participation_secrecy_words
from fl_audit.plurals import plural
from fl_audit.randomness import Purpose, generator
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class CyclicPoisson(Participation):
    """Cyclic Poisson sampling: b groups take turns, and each unit of the group participates with probability q.

    Each unit is in a random, public group, independently of other units, so no group changes when a unit is added or
    removed. The groups give no protection, because they are public. A unit has at most ceil(k / b) turns in k rounds,
    and the accountant counts each turn as a round of Poisson sampling at rate q.

    Source: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu 2023, "(Amplified) banded matrix
    factorization", algorithm 2, here for independent noise (bands of one round).
    """

    rate: float  # q, above 0 and below 1
    cycle: int  # b, number of groups, from 2
    units: int  # number of all units
    # The unit that is put into the first group, so that it has the maximum number of turns: in audits, the differing
    # unit. None for random groups only.
    first: int | None = None
    kind: Literal["cyclic-poisson"] = "cyclic-poisson"
    own_settings: ClassVar = {"cycle": "cyclic-poisson"}
    is_sampled: ClassVar = True
    counted_rounds: ClassVar = "the rounds of one group"

    def __post_init__(self) -> None:
        require_number("sampling rate is", self.rate, "numbers from 1e-20 and below 1")
        description = f"cycle is {self.cycle} of {self.units} units"
        require(2 <= self.cycle <= self.units, f"{description}: accepted are 2 to {self.units}, the number of groups")

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Build the rule from the configured sampling rate and number of groups (`cycle`).

        Raises
        ------
        InputError
            If the number of groups is missing, or the rate is 1.
        """
        cycle = settings.own["cycle"]
        if cycle is None:
            left_out = "sampling is 'cyclic-poisson' and cycle is left out"
            raise InputError(f"{left_out}: accepted is the number of groups, from 2")
        reason = "where everybody of a group takes part, so that sampling protects nobody"
        rates = "accepted is a sampling rate below 1, or a smaller cycle"
        require(settings.rate < 1, f"sampling is 'cyclic-poisson' at a rate of 1, {reason}: {rates}")
        return cls(float(settings.rate), cycle, settings.units)

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return True if the configuration has a number of groups."""
        return settings.own["cycle"] is not None

    @property
    def separation(self) -> int:
        """Number of rounds from one turn of a unit to its next: the number of groups."""
        return self.cycle

    def participations(self, rounds: int) -> int:
        """Return the number of turns of the first group in `rounds` rounds, the largest that a unit can have."""
        return -(-rounds // self.cycle)

    def eligible_units(self, seed: int, server_round: int) -> Integers:
        """Return the numbers of the units whose group has its turn in a round, ascending, integers (units,).

        `seed` is the public seed of the data.
        """
        groups = generator(seed, Purpose.COHORT_ORDER, client=1).integers(self.cycle, size=self.units)
        if self.first is not None:
            groups[self.first] = 0
        return np.flatnonzero(groups == (server_round - 1) % self.cycle)

    def with_first(self, unit: int) -> Self:
        """Return the same rule, in which the unit of the given number is in the first group."""
        return replace(self, first=unit)

    def mean_units(self, units: int) -> float:
        """Return the mean number of units that participate in a round, if there are `units` units."""
        return units * self.rate / self.cycle

    def words(self, words: ParticipationPhraseContext) -> str:
        """Return a phrase for reports on the groups, the sampling rate, and whether participation is secret."""
        often = f"{self.participations(words.rounds):,} of {plural(words.rounds, 'round')}"
        return (
            f"{self.cycle:,} groups of {words.one}s take turns, at most {often} each, and everybody knows whose turn "
            f"it is; each {words.one} of the group is drawn on its own with probability {self.rate:g}; "
            f"{participation_secrecy_words(words)}"
        )

    def curve_words(self, differing: str) -> str:
        """Return a sentence for the figure of the differing unit's effect, which says when the effect is 0.

        It is 0 in the rounds in which other groups of units have their turn.
        """
        return f"The curve is what {differing} changes in a round in which it takes part; in turns of others it is 0."

    def favoured_unit_words(self, rounds: int) -> str:
        """Return a sentence which says that the differing unit is in the first group, and in how many rounds.

        The sentence is "" if the differing unit has no fixed group (`first` is None).
        """
        if self.first is None:
            return ""
        often = f"{self.participations(rounds):,} of {plural(rounds, 'round')}"
        return f" The unit in question is in the group that comes first, by construction, which has {often}."
