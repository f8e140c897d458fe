"""No noise, and therefore no claim."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.mechanisms.noises.mechanism_noise import (
    AccountedRounds,
    MechanismNoise,
    NoiseOrigin,
    NoiseSettings,
    ServerNoiseDraws,
    SumSensitivity,
)
from fl_audit.privacy.accounting_enums import NoiseDistribution, VectorNorm
from fl_audit.privacy.events import ReleaseEvent

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.mechanisms.likelihood_ratio import Hypotheses, ReleaseLlrs, ReleaseUnderHypotheses
    from fl_audit.mechanisms.participations.participation import Participation


@dataclass(frozen=True)
class NoNoise(MechanismNoise):
    """No noise: the sum itself is released, and nothing is claimed."""

    kind: Literal["none"] = "none"
    multiplier = 0.0  # a class attribute instead of a field, because it has no other value
    names: ClassVar[tuple[str, ...]] = ()
    origin: ClassVar = NoiseOrigin.NOBODY
    distribution: ClassVar = NoiseDistribution.NONE
    scale_words: ClassVar = "scale"
    norm: ClassVar = VectorNorm.L2
    has_gaussian_llr: ClassVar = False

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Return a `NoNoise`; the settings are not used."""
        return cls()

    def with_multiplier(self, multiplier: float) -> Self:
        """Return the same object, because its multiplier is always 0."""
        return self

    def scale(self, sensitivity: SumSensitivity, multiplier: float) -> Floats:
        """Return zeros, float64 in the shape of the sensitivities."""
        return np.zeros_like(sensitivity.local, dtype=np.float64)

    def server_draws(self) -> ServerNoiseDraws:
        """Return a function that returns the normal draws, which are multiplied by a scale of 0."""
        return lambda normals, server_round: normals(0)

    def release_llrs(
        self, release: "ReleaseUnderHypotheses", scale: "Tensor", distance: "Tensor", hypotheses: "Hypotheses"
    ) -> "ReleaseLlrs":
        """Raise `AssertionError`: no insider weighs releases without noise, whose likelihood ratio is infinite."""
        raise AssertionError("no insider weighs releases without noise")

    def standard_residuals(self, noise: "Tensor") -> "Tensor":
        """Raise `AssertionError`: there is no noise to measure."""
        raise AssertionError("there is no noise to measure")

    @property
    def residual_shift(self) -> float:
        """Raise `AssertionError`: there is no noise to measure."""
        raise AssertionError("there is no noise to measure")

    def residual_ratio(self, noise_ratio: float) -> float:
        """Raise `AssertionError`: there is no noise to measure."""
        raise AssertionError("there is no noise to measure")

    def noise_ratio(self, residual_ratio: float) -> float:
        """Raise `AssertionError`: there is no noise to measure."""
        raise AssertionError("there is no noise to measure")

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return `((),)`: one kind of client, without release events."""
        return ((),)

    def require_participation(self, participation: "Participation") -> None:
        """Accept every rule of participation, because nothing is claimed."""

    def require_adaptive_clipping(self) -> None:
        """Accept adaptive clipping: a mechanism without noise does not clip, so clipping needs no check."""

    def source_words(self) -> str:
        """Return "none", the phrase for reports."""
        return "none"
