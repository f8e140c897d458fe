"""Two halves of the clients, those of even and of odd numbers, which take turns in public."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from fl_audit.array_types import Integers
from fl_audit.mechanisms.participations.participation import (
    Participation,
    ParticipationPhraseContext,
    ParticipationSettings,
)


@dataclass(frozen=True)
class TwoHalves(Participation):
    """In odd rounds one half of the clients takes part, in even rounds the other."""

    clients: int  # number of all clients
    first: int = 0  # a client of the half that begins
    rate = 1.0
    kind: Literal["two-halves"] = "two-halves"

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Return the rule for the clients of a configuration."""
        return cls(settings.units)

    def participations(self, rounds: int) -> int:
        """Return half of the rounds, the first one included."""
        return -(-rounds // 2)

    def eligible_units(self, seed: int, server_round: int) -> Integers:
        """Return the half of a round."""
        return np.arange((self.first + server_round + 1) % 2, self.clients, 2)

    def with_first(self, unit: int) -> Self:
        """Return the rule that begins with the half of a client."""
        return replace(self, first=unit)

    def mean_units(self, units: int) -> float:
        """Return half of the clients."""
        return units / 2

    def words(self, context: ParticipationPhraseContext) -> str:
        """Return that halves take turns."""
        return f"two halves of the {context.unit}s take turns"
