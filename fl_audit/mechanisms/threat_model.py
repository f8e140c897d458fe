"""Threat model: the position of the adversary in the federation, its view of a round, and what else it knows."""

from dataclasses import dataclass
from enum import StrEnum

from fl_audit.errors import require


class Adversary(StrEnum):
    """Position of the adversary.

    CLIENT is one of the clients, which sees what is released to all. SERVER is the honest-but-curious server, which
    sees every single contribution before the sum.
    """

    CLIENT = "client"
    SERVER = "server"


class InsiderView(StrEnum):
    """Views that an insider, an attacking client, may have of a round.

    UPDATE shows the noised sum, as if the server published it, so that outside observers see it, too. MODEL shows only
    the resulting model. Clients that do not attack receive only models.
    """

    UPDATE = "update"
    MODEL = "model"


class TargetsParticipation(StrEnum):
    """Whether the adversary sees in which rounds the target, the unit in question, participates.

    The adversary always sees the participation of all other units.
    """

    SECRET = "secret"
    SEEN = "seen"


@dataclass(frozen=True)
class ThreatModel:
    """Position of the adversary in a federation, and its knowledge.

    Raises `InputError` if the number of colluders is negative, or if the adversary is the server and has colluders.
    """

    adversary: Adversary = Adversary.CLIENT  # position of the adversary
    # Whether the adversary sees in which rounds the target participates; it matters only if units are sampled.
    participation: TargetsParticipation = TargetsParticipation.SECRET
    colluders: int = 0  # other clients that tell it their noise, at least 0; matters only if clients add noise

    def __post_init__(self) -> None:
        require(self.colluders >= 0, f"colluders is {self.colluders}: accepted are 0 and more")
        alone = self.adversary is Adversary.CLIENT or self.colluders == 0
        server = "adversary is 'server', which learns nothing from other clients' noise: accepted is 0"
        require(alone, f"colluders is {self.colluders} and {server}")

    @property
    def sees_participation(self) -> bool:
        """Whether the adversary sees in which rounds the target participates."""
        return self.participation is TargetsParticipation.SEEN

    @property
    def known_shares(self) -> int:
        """Number of clients whose noise the adversary knows and subtracts: itself and its colluders; 0 for a server."""
        return 0 if self.adversary is Adversary.SERVER else 1 + self.colluders


CLIENT_ALONE = ThreatModel()
"""A single client without colluders that does not see in which rounds the target participates."""
