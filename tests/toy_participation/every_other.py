"""Rounds that take turns: everybody takes part in every other round, and nobody in the rounds between."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from fl_audit.arrays import Integers
from fl_audit.mechanisms.participations.participation import Participation, ParticipationSettings, ParticipationWords


@dataclass(frozen=True)
class EveryOther(Participation):
    """All units take part in rounds 1, 3, 5 and so on."""

    units: int  # number of all units
    rate = 1.0
    kind: Literal["every-other"] = "every-other"

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Return the rule for the units of a configuration."""
        return cls(settings.units)

    def participations(self, rounds: int) -> int:
        """Return half of the rounds, the first one included."""
        return -(-rounds // 2)

    def members(self, seed: int, server_round: int) -> Integers:
        """Return everybody, or nobody."""
        return np.arange(self.units if server_round % 2 else 0)

    def words(self, words: ParticipationWords) -> str:
        """Return which rounds are used."""
        return f"every {words.one} in every other round"
