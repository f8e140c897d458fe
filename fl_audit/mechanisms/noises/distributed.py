"""Distributed noise: all clients together add what a server would add alone."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from fl_audit.mechanisms.noises.shares import ClientsNoise, root_of_shares
from fl_audit.mechanisms.threat_model import ThreatModel


@dataclass(frozen=True)
class DistributedGaussian(ClientsNoise):
    """Every client adds an equal share of the noise to its contribution: N(0, sigma^2 / m I), sigma = z Delta.

    Nobody but the client knows its share. An insider knows its own, and so faces less noise than others do.
    """

    multiplier: float  # z, standard deviation of all shares together in units of the sensitivity; positive and finite
    clients: int  # m, number of clients, at least 2
    kind: Literal["distributed"] = "distributed"
    names: ClassVar = ("distributed",)

    def share_scale(self, global_sensitivity: float) -> float:
        """Return sigma / sqrt(m)."""
        return self.multiplier * global_sensitivity / math.sqrt(self.clients)

    def effective_multiplier(self, threat_model: ThreatModel) -> float:
        """Return z sqrt((m - c) / m), of which c shares are known; z / sqrt(m) if single contributions are seen."""
        return self.multiplier * root_of_shares(self.clients, threat_model) / math.sqrt(self.clients)

    def source_words(self) -> str:
        """Return words for the share of the noise that each client adds."""
        clients = f"{self.clients:,}"
        return f"distributed: each of {clients} clients adds 1/{clients} of the variance, the server none"
