"""Noise to which every client adds a secret share: its base class, and the number of shares that hide the target."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.gaussian_noise import GaussianNoise
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin, NoiseSettings
from fl_audit.mechanisms.threat_model import Adversary, ThreatModel
from fl_audit.privacy.gaussian import require_positive

if TYPE_CHECKING:
    from fl_audit.mechanisms.participations.participation import Participation


@dataclass(frozen=True)
class ClientsNoise(GaussianNoise):
    """Base class of noise to which every client adds a secret share, as a part of its contribution."""

    multiplier: float
    clients: int
    origin: ClassVar = NoiseOrigin.CLIENTS

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)
        require(self.clients >= 2, f"clients is {self.clients}: accepted are 2 and more, for noise that clients add")

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Build the noise from the configured multiplier and number of clients."""
        return cls(settings.multiplier, settings.clients)

    def require_participation(self, participation: "Participation") -> None:
        """Raise `InputError`: partial participation is not supported, since absent clients would add no noise."""
        partial_participation = f"noise is '{self.name}' and not everybody takes part in every round"
        shares = "so the shares of the noise that a round holds would change"
        raise InputError(f"{partial_participation}, {shares}: accepted with it is that everybody takes part")

    def require_adaptive_clipping(self) -> None:
        """Raise `InputError` in every case: no client adds noise to the count that adaptive clipping releases."""
        nobody = f"noise is '{self.name}', where nobody is there to add the noise of the bits"
        raise InputError(f"clipping is 'adaptive' and {nobody}: accepted with it is 'fixed'")


def root_of_unknown_shares(clients: int, threat_model: ThreatModel) -> float:
    """Return the square root of the number of clients' noise shares that hide the target from an adversary.

    An insider sees sums of all shares, of which it knows its own and those of its colluders. The server sees single
    contributions, so the result is 1. Raises `InputError` if the adversary knows all shares.
    """
    if threat_model.adversary is Adversary.SERVER:
        return 1.0
    known_shares = threat_model.known_shares
    counts = f"colluders is {threat_model.colluders} and there are {clients} clients"
    accepted = f"accepted are 0 to {clients - 2}, for somebody else's noise must be left"
    require(known_shares < clients, f"{counts}: {accepted}")
    return math.sqrt(clients - known_shares)
