"""The threat model of an adversary: its position in a federation, and what it sees and knows beside the releases."""

from dataclasses import dataclass
from enum import StrEnum

from fl_audit.errors import require


class Adversary(StrEnum):
    """Position of the adversary.

    CLIENT is one of the clients, who sees what is released to all. SERVER is the honest-but-curious server, who sees
    every contribution by itself, before the sum.
    """

    CLIENT = "client"
    SERVER = "server"


class TargetsParticipation(StrEnum):
    """Whether the adversary sees in which rounds the target takes part; that of all others is known to it anyway."""

    SECRET = "secret"
    SEEN = "seen"


@dataclass(frozen=True)
class ThreatModel:
    """The position of the adversary in a federation, and what it sees and knows.

    Raises `InputError` if the number of colluders is negative, or the server is said to have some.
    """

    adversary: Adversary = Adversary.CLIENT  # position of the adversary
    # Whether it sees in which rounds the target takes part. It matters where units are sampled.
    participation: TargetsParticipation = TargetsParticipation.SECRET
    colluders: int = 0  # other clients who share their noise with it, at least 0; matters where clients add noise

    def __post_init__(self) -> None:
        require(self.colluders >= 0, f"colluders is {self.colluders}: accepted are 0 and more")
        alone = self.adversary is Adversary.CLIENT or self.colluders == 0
        server = "adversary is 'server', which learns nothing from other clients' noise: accepted is 0"
        require(alone, f"colluders is {self.colluders} and {server}")

    @property
    def sees_participation(self) -> bool:
        """Whether it sees in which rounds the target takes part."""
        return self.participation is TargetsParticipation.SEEN

    @property
    def known_shares(self) -> int:
        """Noise shares that the adversary knows and subtracts: its own and its colluders'."""
        return 0 if self.adversary is Adversary.SERVER else 1 + self.colluders


CLIENT_ALONE = ThreatModel()
"""A single client, who is not shown when the target takes part."""
