"""The noise of two servers: each of them adds all of it to the sum, so that the sum holds twice the variance."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.gaussian_noise import GaussianNoise
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin, NoiseSettings, Normals, ServerNoiseDraws
from fl_audit.mechanisms.threat_model import ThreatModel
from fl_audit.privacy.gaussian import require_positive

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.mechanisms.contribution import Participation


@dataclass(frozen=True)
class TwoServersGaussian(GaussianNoise):
    """Each of two servers adds N(0, (z Delta)^2 I) to the sum, and neither knows the draws of the other."""

    multiplier: float  # z of one server
    kind: Literal["two-servers"] = "two-servers"
    names: ClassVar = ("two-servers",)
    origin: ClassVar = NoiseOrigin.SERVER

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Return the noise of a configuration."""
        return cls(settings.multiplier)

    def server_draws(self) -> ServerNoiseDraws:
        """Return the draws of both servers together."""
        return _draws_of_both

    def effective_multiplier(self, threat_model: ThreatModel) -> float:
        """Return z sqrt(2): nobody who is a client knows either server's draws."""
        return self.multiplier * math.sqrt(2)

    def require_participation(self, participation: "Participation") -> None:
        """Refuse cohorts."""
        require(participation.rate < 1, f"noise is '{self.name}' with a cohort: accepted with cohorts is 'central'")

    def require_adaptive_clipping(self) -> None:
        """Refuse it."""
        raise InputError(f"clipping is 'adaptive' and noise is '{self.name}': accepted with it is 'fixed'")

    def source_words(self) -> str:
        """Return who adds it."""
        return "two servers: each of them adds all of it to the sum"


def _draws_of_both(normals: Normals, server_round: int) -> "Tensor":
    """Return the sum of two independent draws, in units of its own standard deviation."""
    return (normals(0) + normals(1)) / math.sqrt(2)
