"""Central noise: the server adds independent noise to the sum in every round."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.gaussian_noise import GaussianNoise
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin, NoiseSettings, SumSensitivity
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.gaussian import require_positive

if TYPE_CHECKING:
    from fl_audit.mechanisms.participations.participation import Participation

SENSITIVITY_FLOOR = 1e-4
"""Smallest local sensitivity, relative to the clipping norm, to which noise is scaled.

Below it the noise would be smaller than float32 rounding errors."""


@dataclass(frozen=True)
class CentralGaussian(GaussianNoise):
    """Central Gaussian noise: the server adds N(0, sigma_i^2 I) to the sum of round i, sigma_i = z Delta_i.

    z is the noise multiplier and Delta_i the local or the global sensitivity of the sum.
    """

    multiplier: float  # z, noise standard deviation in units of the sensitivity; positive and finite
    scaling: SensitivityKind = SensitivityKind.GLOBAL  # whether Delta_i is the local or the global sensitivity
    kind: Literal["central"] = "central"
    names: ClassVar = ("central",)
    origin: ClassVar = NoiseOrigin.SERVER
    may_follow_data: ClassVar = True
    carries_canaries: ClassVar = True

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Build the noise from the configured multiplier and scaling."""
        return cls(settings.multiplier, settings.scaling)

    @property
    def _is_local(self) -> bool:
        return self.scaling is SensitivityKind.LOCAL

    def scale(self, sensitivity: SumSensitivity, multiplier: float) -> Floats:
        """Return the multiplier times the local or the global sensitivity, whichever the noise is scaled to.

        A local sensitivity below `SENSITIVITY_FLOOR` times the clipping norm is raised to this value.
        """
        if not self._is_local:
            return super().scale(sensitivity, multiplier)
        floor = SENSITIVITY_FLOOR * sensitivity.clipping_norm
        return np.asarray(multiplier * np.maximum(sensitivity.local, floor), dtype=np.float64)

    def require_participation(self, participation: "Participation") -> None:
        """Raise `InputError` if the noise is scaled to the local sensitivity, which depends on who participates.

        Raises
        ------
        InputError
            If the noise is scaled to the local sensitivity.
        """
        if self._is_local and participation.rate < 1:
            sampled = f"sensitivity is 'local' at sampling rate {participation.rate}"
            raise InputError(f"{sampled}: accepted with sampling is 'global'")
        require(not self._is_local, "sensitivity is 'local' with a cohort: accepted with cohorts is 'global'")

    def require_adaptive_clipping(self) -> None:
        """Raise `InputError` if the noise is scaled to the local sensitivity instead of the clipping norm."""
        local = "sensitivity is 'local' and clipping is 'adaptive': accepted with it is 'global'"
        require(not self._is_local, local)

    def source_words(self) -> str:
        """Return a phrase for reports which says that the server adds the noise."""
        return "central: the server adds it to the sum"

    @property
    def multiplied_quantity_words(self) -> str | None:
        """Phrase for reports that describes the local sensitivity; None if the noise is scaled to the global one."""
        return "the difference that the pair makes in the round, the local sensitivity" if self._is_local else None
