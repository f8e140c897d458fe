"""Cyclic Poisson sampling: groups of units take turns, and each unit of a group is drawn on its own, in secret."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np

from fl_audit.array_types import Integers
from fl_audit.errors import InputError, require, require_number
from fl_audit.mechanisms.participations.participation import Participation, ParticipationSettings, ParticipationWords
from fl_audit.mechanisms.participations.poisson import secret_words
from fl_audit.plurals import plural
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class CyclicPoisson(Participation):
    """Every unit is in one of b groups, which take turns; in a round each unit of one group is drawn on its own.

    Units are put into groups at random, each on its own and in public, so no group changes when a unit comes or goes.
    The groups protect nobody; in each of at most ceil(k / b) rounds of its turn a unit is drawn with probability q.
    That is Poisson sampling at rate q over so many rounds, and is accounted as such.

    Source: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta & Xu 2023, "(Amplified) banded matrix
    factorization", algorithm 2, whose amplification for bands of one round, independent noise, is this one.
    """

    rate: float  # q, above 0 and below 1
    cycle: int  # b, number of groups, from 2
    units: int  # number of all units
    # The unit that is in the first group, so that it has as many turns as any can: the differing one of an audit. None
    # leaves that to chance.
    first: int | None = None
    kind: Literal["cyclic-poisson"] = "cyclic-poisson"
    own_settings: ClassVar = {"cycle": "cyclic-poisson"}
    is_sampled: ClassVar = True
    counted_rounds: ClassVar = "the rounds of one group"

    def __post_init__(self) -> None:
        require_number("sampling rate is", self.rate, "numbers above 0 and below 1")
        many = f"cycle is {self.cycle} of {self.units} units"
        require(2 <= self.cycle <= self.units, f"{many}: accepted are 2 to {self.units}, the number of groups")

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Return the rule at the rate and with the groups of a configuration."""
        cycle = settings.own["cycle"]
        if cycle is None:
            left_out = "sampling is 'cyclic-poisson' and cycle is left out"
            raise InputError(f"{left_out}: accepted is the number of groups, from 2")
        known = "where everybody of a group takes part, so that sampling protects nobody"
        rates = "accepted is a sampling rate below 1, or a smaller cycle"
        require(settings.rate < 1, f"sampling is 'cyclic-poisson' at a rate of 1, {known}: {rates}")
        return cls(float(settings.rate), cycle, settings.units)

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return whether a configuration has a number of groups."""
        return settings.own["cycle"] is not None

    @property
    def separation(self) -> int:
        """The number of groups."""
        return self.cycle

    def participations(self, rounds: int) -> int:
        """Return the rounds of the group that comes first."""
        return -(-rounds // self.cycle)

    def members(self, seed: int, server_round: int) -> Integers:
        """Return the units of the group whose turn a round is, in ascending order."""
        groups = generator(seed, Purpose.COHORT_ORDER, client=1).integers(self.cycle, size=self.units)
        if self.first is not None:
            groups[self.first] = 0
        return np.flatnonzero(groups == (server_round - 1) % self.cycle)

    def with_first(self, unit: int) -> Self:
        """Return the same rule with a unit in the first group."""
        return replace(self, first=unit)

    def mean_units(self, units: int) -> float:
        """Return the mean number of units in a round: q of one group."""
        return units * self.rate / self.cycle

    def words(self, words: ParticipationWords) -> str:
        """Return the groups and the rate, and whether it is secret who takes part."""
        often = f"{self.participations(words.rounds):,} of {plural(words.rounds, 'round')}"
        return (
            f"{self.cycle:,} groups of {words.one}s take turns, at most {often} each, and everybody knows whose turn "
            f"it is; each {words.one} of the group is drawn on its own with probability {self.rate:g}; "
            f"{secret_words(words)}"
        )

    def curve_words(self, differing: str) -> str:
        """Return that the curve is that of a round in which the unit takes part."""
        return f"The curve is what {differing} changes in a round in which it takes part; in turns of others it is 0."

    def turn_words(self, rounds: int) -> str:
        """Return that the unit in question is in the first group, where one is."""
        if self.first is None:
            return ""
        often = f"{self.participations(rounds):,} of {plural(rounds, 'round')}"
        return f" The unit in question is in the group that comes first, by construction, which has {often}."
