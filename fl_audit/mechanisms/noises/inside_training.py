"""Noise inside the training of clients, each of which trains on its own records by DP-SGD."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from fl_audit.mechanisms.noises.base import AccountedRounds, MechanismNoise, NoiseOrigin, NoiseSettings
from fl_audit.privacy.events import ReleaseEvent, local_events
from fl_audit.privacy.gaussian import require_positive

if TYPE_CHECKING:
    from fl_audit.mechanisms.participations.participation import Participation


@dataclass(frozen=True)
class LocalDPSGD(MechanismNoise):
    """Every client adds N(0, (z C)^2 I) to the sum of clipped gradients in every step of its local training.

    It is a part of the contribution, and nobody adds any to the sum of contributions. The target's client noises its
    own steps: what others know of their own noise takes nothing from it.
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
        """Return the noise of a configuration."""
        return cls(settings.multiplier)

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return the steps of a client, once for every size of shard: a guarantee is to hold for all."""
        schedule, z = rounds.schedule, rounds.multiplier
        assert schedule is not None, "noise inside training goes with private training alone"
        each = (
            local_events(records, schedule.batch, rounds.count, z, epochs=schedule.epochs, steps=schedule.steps)
            for records in rounds.shards
        )
        return tuple(dict.fromkeys(each))

    def require_participation(self, participation: "Participation") -> None:
        """Refuse nothing: private training itself requires that all clients take part."""

    def require_adaptive_clipping(self) -> None:
        """Refuse nothing: private training itself asks for a fixed norm."""

    def source_words(self) -> str:
        """Return in which steps each client adds it."""
        return "in every step of the clients' training: each client adds it to its own clipped gradients"

    def mu_words(self, rounds: str) -> str:
        """Return that steps are counted, and no rounds."""
        return "square root of the most steps that a client takes, over z"
