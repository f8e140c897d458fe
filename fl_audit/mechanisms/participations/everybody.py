"""Full participation: every unit participates in every round."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fl_audit.errors import require
from fl_audit.mechanisms.participations.participation import (
    Participation,
    ParticipationPhraseContext,
    ParticipationSettings,
)


@dataclass(frozen=True)
class Everybody(Participation):
    """Full participation: every unit participates in every round."""

    rate = 1.0
    kind: Literal["everybody"] = "everybody"
    takes_all: ClassVar = True

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Return full participation; raise `InputError` if the configuration has a sampling rate below 1."""
        written = f"sampling is 'everybody' at a sampling rate of {float(settings.rate):g}"
        require(settings.rate == 1, f"{written}: accepted with it is none")
        return cls()

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return True if the configuration means full participation: a cohort of all units, or no cohort and rate 1."""
        return settings.cohort == settings.units if settings.cohort is not None else settings.rate == 1

    def participations(self, rounds: int) -> int:
        """Return `rounds`, because a unit participates in every round."""
        return rounds

    def words(self, context: ParticipationPhraseContext) -> str:
        """Return a phrase for reports which says that every unit participates in every round.

        `context` has the name of a unit, such as "record".
        """
        return f"every {context.unit} in every round"
