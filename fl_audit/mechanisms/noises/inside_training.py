"""Noise of local DP-SGD, which each client adds in the steps of its own training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from fl_audit.mechanisms.noises.gaussian_noise import GaussianNoise
from fl_audit.mechanisms.noises.mechanism_noise import AccountedRounds, NoiseOrigin, NoiseSettings
from fl_audit.privacy.events import ReleaseEvent, local_events
from fl_audit.privacy.gaussian import require_positive

if TYPE_CHECKING:
    from fl_audit.mechanisms.contribution import Contribution
    from fl_audit.mechanisms.participations.participation import Participation


@dataclass(frozen=True)
class LocalDPSGD(GaussianNoise):
    """Noise of local DP-SGD: every client adds N(0, (z C)^2 I) to the clipped gradient sum in each training step.

    No further noise is added to the sum of contributions. No other client knows the noise of the client that holds the
    target, the record in question.
    """

    multiplier: float  # z, standard deviation of the noise of a step in units of the clipping norm; positive and finite
    kind: Literal["inside-training"] = "inside-training"
    names: ClassVar = ("inside-training",)
    origin: ClassVar = NoiseOrigin.TRAINING
    carries_canaries: ClassVar = True

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Build the noise from the configured multiplier."""
        return cls(settings.multiplier)

    def knows_llr(self, contribution: "Contribution") -> bool:
        """Return whether clients take one noised step in a round: the update after several has no closed form."""
        return contribution.kind == "private-training" and contribution.is_one_step

    def is_measurable(self, contribution: "Contribution") -> bool:
        """Return whether clients take one noised step in a round, whose noise is that of one clipped sum."""
        return self.knows_llr(contribution)

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return the release events of a client's DP-SGD steps in all rounds, one tuple per distinct size of shard."""
        schedule = rounds.schedule
        z = rounds.multiplier
        assert schedule is not None, "noise inside training goes with private training alone"
        events = (
            local_events(records, schedule.batch, rounds.count, z, epochs=schedule.epochs, steps=schedule.steps)
            for records in rounds.shards
        )
        return tuple(dict.fromkeys(events))

    def require_participation(self, participation: "Participation") -> None:
        """Do nothing: another check requires that all clients participate (module `compatibility_checks`)."""

    def require_adaptive_clipping(self) -> None:
        """Accept adaptive clipping here: module `compatibility_checks` already refuses it for local DP-SGD."""

    def source_words(self) -> str:
        """Return a phrase for reports which says that each client adds the noise in every step of its training."""
        return "in every step of the clients' training: each client adds it to its own clipped gradients"

    def mu_words(self, rounds: str) -> str:
        """Return the formula of the claimed Gaussian-DP parameter mu in words, in terms of training steps.

        `rounds` is not used.
        """
        return "square root of the most steps that a client takes, over z"
