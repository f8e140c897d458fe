"""Distributed noise: the clients' noise shares add up to the noise that the server would otherwise add alone."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from fl_audit.mechanisms.noises.shares import ClientsNoise, root_of_unknown_shares
from fl_audit.mechanisms.threat_model import ThreatModel


@dataclass(frozen=True)
class DistributedGaussian(ClientsNoise):
    """Distributed Gaussian noise: each of m clients adds N(0, sigma^2 / m I) to its contribution, sigma = z Delta.

    z is the noise multiplier and Delta the global sensitivity. A client that attacks subtracts its own share, so it
    faces less noise than an adversary outside the federation.
    """

    multiplier: float  # z, standard deviation of all shares together in units of the sensitivity; positive and finite
    clients: int  # m, number of clients, at least 2
    kind: Literal["distributed"] = "distributed"
    names: ClassVar = ("distributed",)

    def share_scale(self, global_sensitivity: float) -> float:
        """Return the standard deviation of the noise that each client adds, z `global_sensitivity` / sqrt(m).

        z is the noise multiplier and m the number of clients.
        """
        return self.multiplier * global_sensitivity / math.sqrt(self.clients)

    def effective_multiplier(self, threat_model: ThreatModel) -> float:
        """Return the noise multiplier that counts only noise unknown to the adversary.

        For a client that knows c of the m clients' shares, it is z sqrt((m - c) / m), with z the noise multiplier. For
        the server, which sees single contributions, it is z / sqrt(m).
        """
        return self.multiplier * root_of_unknown_shares(self.clients, threat_model) / math.sqrt(self.clients)

    def source_words(self) -> str:
        """Return a phrase for reports which says that each client adds a share of the noise."""
        clients = f"{self.clients:,}"
        return f"distributed: each of {clients} clients adds 1/{clients} of the variance, the server none"
