"""Local noise: each client adds the full noise to its own contribution."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fl_audit.mechanisms.noises.shares import ClientsNoise, root_of_unknown_shares
from fl_audit.mechanisms.threat_model import ThreatModel


@dataclass(frozen=True)
class LocalGaussian(ClientsNoise):
    """Local Gaussian noise: each of m clients adds N(0, sigma^2 I) to its contribution, sigma = z Delta.

    z is the noise multiplier and Delta the global sensitivity. The noise of the sum has m times this variance. Even the
    server, which sees single contributions, faces noise with the multiplier z.
    """

    multiplier: float  # z, standard deviation of one client's noise in units of the sensitivity; positive and finite
    clients: int  # m, number of clients, at least 2
    kind: Literal["local"] = "local"
    names: ClassVar = ("local",)

    def share_scale(self, global_sensitivity: float) -> float:
        """Return the standard deviation of each client's noise: the noise multiplier times `global_sensitivity`."""
        return self.multiplier * global_sensitivity

    def effective_multiplier(self, threat_model: ThreatModel) -> float:
        """Return the noise multiplier that counts only noise unknown to the adversary.

        For a client that knows the noise of c of the m clients, it is z sqrt(m - c), with z the noise multiplier. For
        the server, which sees single contributions, it is z.
        """
        return self.multiplier * root_of_unknown_shares(self.clients, threat_model)

    def source_words(self) -> str:
        """Return a phrase for reports: each client adds the full noise, so the sum has m times its variance."""
        return (
            f"local: each of {self.clients:,} clients adds all of it to what it sends, so the sum holds "
            f"{self.clients:,} times the variance"
        )
