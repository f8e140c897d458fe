"""No noise, and nothing that is claimed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.mechanisms.noises.base import AccountedRounds, MechanismNoise, NoiseOrigin, NoiseSettings, SumSensitivity
from fl_audit.privacy.events import ReleaseEvent

if TYPE_CHECKING:
    from fl_audit.mechanisms.participations.participation import Participation


@dataclass(frozen=True)
class NoNoise(MechanismNoise):
    """The sum itself is released, and nothing is claimed."""

    kind: Literal["none"] = "none"
    multiplier = 0.0  # no field: it has no other value
    names: ClassVar[tuple[str, ...]] = ()
    origin: ClassVar = NoiseOrigin.NOBODY

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Return the absence of noise, with any configuration."""
        return cls()

    def with_multiplier(self, multiplier: float) -> Self:
        """Return the same: no noise has no other multiplier."""
        return self

    def scale(self, sensitivity: SumSensitivity, multiplier: float) -> Floats:
        """Return standard deviations of 0, since there is no noise, in the shape of the sensitivities."""
        return np.zeros_like(sensitivity.local, dtype=np.float64)

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return nothing, since nothing is claimed."""
        return ((),)

    def require_participation(self, participation: "Participation") -> None:
        """Refuse nothing: without a claim there is nothing to account for."""

    def require_adaptive_clipping(self) -> None:
        """Refuse nothing: without noise there is no clipping."""

    def source_words(self) -> str:
        """Return that there is none."""
        return "none"
