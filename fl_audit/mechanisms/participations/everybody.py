"""Participation of everybody, in every round."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fl_audit.errors import require
from fl_audit.mechanisms.participations.participation import Participation, ParticipationSettings, ParticipationWords


@dataclass(frozen=True)
class Everybody(Participation):
    """Every unit takes part in every round."""

    rate = 1.0
    kind: Literal["everybody"] = "everybody"
    takes_all: ClassVar = True

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Return the rule; a sampling rate is refused."""
        written = f"sampling is 'everybody' at a sampling rate of {float(settings.rate):g}"
        require(settings.rate == 1, f"{written}: accepted with it is none")
        return cls()

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return whether nothing says otherwise, or a cohort has all clients."""
        return settings.cohort == settings.units if settings.cohort is not None else settings.rate == 1

    def participations(self, rounds: int) -> int:
        """Return all rounds."""
        return rounds

    def words(self, words: ParticipationWords) -> str:
        """Return that everybody takes part."""
        return f"every {words.one} in every round"
