"""The interface of a rule of participation: what each of them answers for itself, so that nobody asks which one it is.

A rule has a public part and a secret one. In public it says whose turn a round is; in secret each of those takes part
on its own with a probability. The server and the clients draw by it, the accountant counts by it, and the insider and
the tests of the opened samples weigh by it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from fl_audit.array_types import Flags, Integers
from fl_audit.errors import require


@dataclass(frozen=True)
class ParticipationSettings:
    """Settings of a configuration for who takes part."""

    name: str | None  # name of the rule in the configuration; None leaves it to the other settings
    rate: Fraction  # probability with which a unit takes part in a round of its turn, as exactly the number written
    units: int  # number of all units of which some take part: records, users or clients
    cohort: int | None  # clients of a round, where it has a fixed number of them
    own: Mapping[str, Any]  # values of the settings that this rule alone has, by name; None where they are left out


@dataclass(frozen=True)
class ParticipationWords:
    """Words of a report for the units of a federation."""

    one: str  # a unit, as `record`
    differing: str  # the unit in question, as `the differing record`
    rounds: int  # number of rounds of the training
    is_seen: bool  # whether the insider is told in which rounds the unit in question takes part


class Participation(ABC):
    """One rule of participation, as a frozen dataclass of its numbers; those out of range raise `InputError`."""

    kind: str
    """Name in a stored mechanism, and in a configuration: the key in the registry."""
    rate: float
    """Probability with which a unit takes part in a round of its turn, as far as others know."""

    own_settings: ClassVar[Mapping[str, str]] = {}
    """Settings of [training] that no other rule has, each with the name of the rule that it needs."""
    is_sampled: ClassVar[bool] = False
    """Whether a round is made of a secret sample of the units."""
    takes_all: ClassVar[bool] = False
    """Whether every unit takes part in every round."""
    counted_rounds: ClassVar[str] = "rounds"
    """Words for the rounds that a guarantee composes."""

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: ParticipationSettings) -> "Participation":
        """Return the rule of a configuration that names it."""

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return whether a configuration that names no rule means this one."""
        return False

    @abstractmethod
    def participations(self, rounds: int) -> int:
        """Return the most rounds of so many whose turn one unit has."""

    @property
    def separation(self) -> int:
        """Fewest rounds from one turn of a unit to its next."""
        return 1

    @property
    def known_separation(self) -> int | None:
        """The same where everybody knows who takes part, and not everybody does; None elsewhere."""
        return None

    def members(self, seed: int, server_round: int) -> Integers | None:
        """Return the units whose turn a round is, in ascending order; None where it is everybody's.

        Parameters
        ----------
        seed
            Public seed of the data.
        server_round
            Number of the round, from 1.
        """
        return None

    def with_first(self, unit: int) -> Self:
        """Return the same rule in which a unit has as many turns as any can."""
        return self

    def mean_units(self, units: int) -> float:
        """Return the mean number of units in a round, of so many."""
        return units * self.rate

    def require_contribution(self, unit: str, is_of_client: bool) -> None:
        """Refuse contributions that do not go with the rule: a public turn of units inside clients, which nobody draws.

        Parameters
        ----------
        unit
            The unit of a contribution, as a word.
        is_of_client
            Whether that unit is a client.
        """
        turns = f"sampling is '{self.kind}' with strategy 'dp-fedsgd', whose units are {unit}s"
        fits = is_of_client or self.is_sampled or self.takes_all
        require(fits, f"{turns}: accepted with it are sampling-rate and expected-batch")

    @abstractmethod
    def words(self, words: ParticipationWords) -> str:
        """Return who takes part in a round, and whether that protects anybody."""

    def curve_words(self, differing: str) -> str:
        """Return a sentence on what a curve over rounds shows of the unit in question; empty where none is needed."""
        return ""

    def turn_words(self, rounds: int) -> str:
        """Return a sentence on the unit in question, if its turns are fixed by construction; empty elsewhere.

        Parameters
        ----------
        rounds
            Number of rounds of the training.
        """
        return ""


def in_turn(drawn: Flags, turn: Integers | None, units: Integers) -> Flags:
    """Return a secret sample without the units whose turn it is not.

    Parameters
    ----------
    drawn
        Whether each unit was drawn, shape (trials, units).
    turn
        Numbers of the units whose turn it is; None where all may take part.
    units
        Number of each unit, shape (units,).
    """
    return drawn if turn is None else drawn & (units[:, None] == turn).any(axis=1)
