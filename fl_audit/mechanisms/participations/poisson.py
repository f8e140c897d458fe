"""Poisson sampling: each unit takes part in each round on its own, in secret."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fl_audit.errors import require_number
from fl_audit.mechanisms.participations.participation import Participation, ParticipationSettings, ParticipationWords


@dataclass(frozen=True)
class PoissonSampling(Participation):
    """Each unit takes part in each round on its own with probability q."""

    rate: float  # q, above 0 and below 1; at 1 it would be `Everybody`
    kind: Literal["poisson"] = "poisson"
    is_sampled: ClassVar = True

    def __post_init__(self) -> None:
        require_number("sampling rate is", self.rate, "numbers above 0 and below 1")

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Return the rule at the sampling rate of a configuration."""
        return cls(float(settings.rate))

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return whether there is a sampling rate."""
        return settings.rate < 1

    def participations(self, rounds: int) -> int:
        """Return all rounds: in any of them a unit may take part."""
        return rounds

    def words(self, words: ParticipationWords) -> str:
        """Return the rate, and whether it is secret who takes part."""
        return f"each {words.one} in each round on its own with probability {self.rate:g}; {secret_words(words)}"

    def curve_words(self, differing: str) -> str:
        """Return that the curve is that of a round in which the unit takes part."""
        return f"The curve is what {differing} changes in a round in which it takes part."


def secret_words(words: ParticipationWords) -> str:
    """Return whether it is secret in which rounds the unit in question takes part, and what protects it."""
    rounds = f"in which rounds {words.differing} does"
    if words.is_seen:
        return f"the insider is told {rounds}: only being left out protects it"
    return f"{rounds} is secret, and sampling adds protection"
