"""Local noise: each client adds all that it needs by itself."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fl_audit.mechanisms.noises.shares import ClientsNoise, root_of_shares
from fl_audit.mechanisms.threat_model import ThreatModel


@dataclass(frozen=True)
class LocalGaussian(ClientsNoise):
    """Every client adds all of the noise to its contribution: N(0, sigma^2 I), sigma = z Delta.

    The sum holds m times the variance. Even who sees a contribution by itself, as the server does, faces the noise that
    was claimed.
    """

    multiplier: float  # z, standard deviation of one client's noise in units of the sensitivity; positive and finite
    clients: int  # m, number of clients, at least 2
    kind: Literal["local"] = "local"
    names: ClassVar = ("local",)

    def share_scale(self, global_sensitivity: float) -> float:
        """Return the standard deviation of a client's share: the noise multiplier times the sensitivity."""
        return self.multiplier * global_sensitivity

    def effective_multiplier(self, threat_model: ThreatModel) -> float:
        """Return z sqrt(m - c), of which c shares are known; z if single contributions are seen."""
        return self.multiplier * root_of_shares(self.clients, threat_model)

    def source_words(self) -> str:
        """Return words for the noise that each client adds, and for the noise of their sum."""
        return (
            f"local: each of {self.clients:,} clients adds all of it to what it sends, so the sum holds "
            f"{self.clients:,} times the variance"
        )
