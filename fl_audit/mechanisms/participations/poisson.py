"""Poisson sampling: each unit participates in each round independently and in secret."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from fl_audit.mechanisms.participations.participation import (
    Participation,
    ParticipationPhraseContext,
    ParticipationSettings,
)
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class PoissonSampling(Participation):
    """Poisson sampling: each unit participates in each round independently with probability q."""

    rate: float  # q, above 0 and below 1; for 1, use `Everybody`
    kind: Literal["poisson"] = "poisson"
    is_sampled: ClassVar = True

    def __post_init__(self) -> None:
        require_number("sampling rate is", self.rate, "numbers from 1e-20 and below 1")

    @classmethod
    def of_settings(cls, settings: ParticipationSettings) -> Self:
        """Build the participation rule from the configured sampling rate."""
        return cls(float(settings.rate))

    @classmethod
    def is_meant(cls, settings: ParticipationSettings) -> bool:
        """Return True if a configuration that names no rule means Poisson sampling: a rate below 1, without cohorts."""
        return settings.cohort is None and settings.rate < 1

    def participations(self, rounds: int) -> int:
        """Return `rounds`, because a unit may participate in every round."""
        return rounds

    def words(self, context: ParticipationPhraseContext) -> str:
        """Return a phrase for reports on the sampling rate, and on whether participation is secret."""
        alone = f"each {context.unit} in each round on its own with probability {self.rate:g}"
        return f"{alone}; {participation_secrecy_words(context)}"

    def curve_words(self, differing: str) -> str:
        """Return a sentence for the caption of a figure which shows the effect of the differing unit on a round's sum.

        It says that the figure is about rounds in which the unit takes part.
        """
        return f"The curve is what {differing} changes in a round in which it takes part."


def participation_secrecy_words(context: ParticipationPhraseContext) -> str:
    """Return a phrase for reports that says whether the insider learns in which rounds the differing unit participates.

    If the insider does not, the phrase adds that sampling protects the unit.
    """
    rounds = f"in which rounds {context.differing} does"
    if context.is_seen:
        return f"the insider is told {rounds}: only being left out protects it"
    return f"{rounds} is secret, and sampling adds protection"
