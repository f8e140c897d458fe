"""Interface of all rules of participation, so that other code does not depend on the rule.

A rule has a public and a secret part. It is public which units have their turn in a round; it is secret which of these
units participate, each independently with some probability. The server and the clients draw samples by the rule, the
accountant accounts for it, and the adversary and the tests of revealed samples use its probabilities.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from fl_audit.array_types import Integers
from fl_audit.errors import require


@dataclass(frozen=True)
class ParticipationSettings:
    """Settings that a configuration has for participation, from which the rule of participation is built."""

    name: str | None  # name of the rule in the configuration; None leaves it to the other settings
    rate: Fraction  # probability with which a unit participates in a round of its turn, exactly as written
    units: int  # number of all units: records, users or clients
    cohort: int | None  # number of clients in a round, if it is fixed; otherwise None
    own: Mapping[str, Any]  # values of the settings that only this rule has, by name; None if left out


@dataclass(frozen=True)
class ParticipationPhraseContext:
    """Words and facts about a training, from which a participation rule writes its phrases for the report."""

    unit: str  # name of a unit, e.g. `record`
    differing: str  # the differing unit, e.g. `the differing record`
    rounds: int  # number of rounds of the training
    is_seen: bool  # whether the insider is told in which rounds the differing unit participates


class Participation(ABC):
    """Rule that says which units participate in which rounds, such as Poisson sampling; base class of all rules.

    Subclasses are frozen dataclasses. Numbers out of range raise `InputError`.
    """

    kind: str
    """Name of the rule in a stored mechanism and in a configuration, which is its key in the registry."""
    rate: float
    """Probability with which a unit participates in a round of its turn; 1 if the public part decides everything."""

    own_settings: ClassVar[Mapping[str, str]] = {}
    """Settings of [training] that only this rule has, each with the name of the rule that it needs."""
    is_sampled: ClassVar[bool] = False
    """Whether each round uses a secret random sample of the units that have their turn."""
    takes_all: ClassVar[bool] = False
    """Whether every unit participates in every round."""
    counted_rounds: ClassVar[str] = "rounds"
    """Phrase for the rounds over which a guarantee is composed."""

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: ParticipationSettings) -> "Participation":
        """Build the rule from the settings of a configuration."""

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return True if a configuration that names no rule implies this one, e.g. by a sampling rate below 1.

        Every configuration without a name implies exactly one rule, so the order of the registry has no meaning.
        """
        return False

    @abstractmethod
    def participations(self, rounds: int) -> int:
        """Return the largest number of turns that a unit can have in `rounds` rounds.

        A unit has its turn in a round if it may participate.
        """

    @property
    def separation(self) -> int:
        """Smallest number of rounds from one turn of a unit to its next.

        A turn is a round in which the unit may participate.
        """
        return 1

    @property
    def known_separation(self) -> int | None:
        """Smallest number of rounds from one participation of a unit to its next, if participation is public.

        None if participation is secret, or if every unit participates in every round.
        """
        return None

    def eligible_units(self, seed: int, server_round: int) -> Integers | None:
        """Return the numbers of the units that may participate in a round, ascending; None if all may.

        Parameters
        ----------
        seed
            Public seed of the data, from which turns are drawn.
        server_round
            Number of the round, from 1.
        """
        return None

    def with_first(self, unit: int) -> Self:
        """Return this rule, changed so that the given unit participates as often as any unit can.

        Parameters
        ----------
        unit
            Number of the unit.
        """
        return self

    def mean_units(self, units: int) -> float:
        """Return the mean number of units that participate in a round, if there are `units` units."""
        return units * self.rate

    def require_contribution(self, unit: str, is_of_client: bool) -> None:
        """Raise `InputError` if the rule does not support contributions of this kind of unit.

        If a rule lets units take turns without sampling, only clients can be the units.

        Parameters
        ----------
        unit
            Unit of a contribution, as a word such as "record".
        is_of_client
            Whether this unit is a client.
        """
        turns = f"sampling is '{self.kind}' with strategy 'dp-fedsgd', whose units are {unit}s"
        fits = is_of_client or self.is_sampled or self.takes_all
        require(fits, f"{turns}: accepted with it are sampling-rate and expected-batch")

    @abstractmethod
    def words(self, context: ParticipationPhraseContext) -> str:
        """Return a phrase for reports on who participates in a round, and whether participation is a secret."""

    def curve_words(self, differing: str) -> str:
        """Return a sentence on how to read a figure of the differing unit's effect in each round; "" if none is needed.

        Parameters
        ----------
        differing
            Phrase for the unit in which D and D' differ, such as "the differing record".
        """
        return ""

    def favoured_unit_words(self, rounds: int) -> str:
        """Return a sentence for reports on how often the differing unit participates, if the rule favours this unit.

        A rule favours the unit if it always gives this unit the largest number of turns. Otherwise the text is empty.

        Parameters
        ----------
        rounds
            Number of rounds of the training.
        """
        return ""
