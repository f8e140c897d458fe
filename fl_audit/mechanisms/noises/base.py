"""The interface of all kinds of noise, so that other code does not depend on the kind.

Every noise is Gaussian given the releases of earlier rounds; the insiders' likelihood ratios and the tests of the
verdict rely on this. The module of each kind defines the scale and the origin of the noise, its drawing, accounting and
whitening, the parts that it is incompatible with, and its phrases in reports. These modules do not import torch, so
that a configuration can be checked without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.mechanisms.threat_model import ThreatModel
from fl_audit.privacy.events import ReleaseEvent, gaussian_rounds
from fl_audit.privacy.names import NoiseScaling

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.learning.local_training import LocalSchedule
    from fl_audit.mechanisms.participations.participation import Participation


class NoiseOrigin(StrEnum):
    """The party that adds the noise, and the quantity to which it is added."""

    NOBODY = "nobody"  # no noise is added, and there is no claim
    SERVER = "server"  # the server adds the noise to the sum
    CLIENTS = "clients"  # each client adds a share of the noise to its contribution, and knows this share
    TRAINING = "training"  # each client adds the noise in every step of its own training


@dataclass(frozen=True)
class NoiseSettings:
    """Configuration of the noise, and the other settings on which noises depend."""

    name: str  # name of the noise in the configuration
    multiplier: float  # z
    scaling: NoiseScaling  # sensitivity that the noise is scaled to
    clients: int  # m, number of clients
    rounds: int  # k, number of rounds
    separation: int | None  # with cohorts, fewest rounds from a client's participation to its next; otherwise None
    own: Mapping[str, Any]  # values of the settings that only this noise has, by name; None for those left out


@dataclass(frozen=True)
class SumSensitivity:
    """Local and global sensitivity of a round's sum in each trial."""

    local: Floats  # ||f_i(D) - f_i(D')|| at the current model parameters, any shape
    largest: Floats  # the largest change that the clipping norm of the round allows, of the same shape
    clipping_norm: float  # C of the first round


@dataclass(frozen=True)
class AccountedRounds:
    """Description of the rounds for the accountant."""

    count: int  # k, from 1
    multiplier: float  # effective z of one round's releases together, against the adversary
    participation: "Participation"  # rule of participation
    seen: bool  # whether the adversary sees in which rounds the target participates
    schedule: "LocalSchedule | None" = None  # training of clients, if they train by DP-SGD; otherwise None
    shards: tuple[int, ...] = ()  # sizes of the clients' shards, if they train by DP-SGD


Normals = Callable[[int], "Tensor"]
"""Function that returns a set of standard normal draws of a round, float32 (trials, parameters), for a number from 0.

Sets with different numbers are independent. Set 0 is drawn in advance, while clients compute."""


class ServerDraws(Protocol):
    """Draws the server's noise for some trials round by round, and keeps the draws of earlier rounds that it needs."""

    def next(self, normals: Normals, server_round: int) -> "Tensor":
        """Return the draws of the next round in units of `MechanismNoise.scale`, float32 (trials, parameters).

        Parameters
        ----------
        normals
            Function that returns standard normal draws of this round, whose memory may be overwritten.
        server_round
            Number of the round, from 1.
        """


class _IndependentDraws:
    """Independent standard normal draws in every round."""

    def next(self, normals: Normals, server_round: int) -> "Tensor":
        """Return the first set of standard normal draws."""
        return normals(0)


class MechanismNoise(ABC):
    """Interface of a kind of noise, a frozen dataclass; numbers out of range raise `InputError`."""

    kind: str
    """Name of the kind in a stored mechanism, which is its key in the registry."""
    multiplier: float
    """Noise multiplier z, as this kind of noise defines it; 0 without noise."""
    scaling: NoiseScaling = NoiseScaling.GLOBAL
    """Sensitivity to which the noise is scaled; global without noise."""

    names: ClassVar[tuple[str, ...]]
    """Names of the noise in a configuration; empty if it cannot be chosen there."""
    origin: ClassVar[NoiseOrigin]
    """Party that adds the noise."""
    own_settings: ClassVar[Mapping[str, str]] = {}
    """Settings of [privacy] that only this kind of noise has, each with the name of the noise that it needs."""
    may_follow_data: ClassVar[bool] = False
    """Whether the noise may be scaled to the local sensitivity, as in the audits of Bernau et al. 2021."""
    carries_canaries: ClassVar[bool] = False
    """Whether the noise of every round is independent with a known scale, so that canaries can be measured under it."""

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Return the noise for the settings of a configuration."""

    @property
    def name(self) -> str:
        """The name of this noise in a configuration."""
        return self.names[0]

    def with_multiplier(self, multiplier: float) -> Self:
        """Return the same kind of noise with another multiplier z."""
        return replace(self, multiplier=multiplier)  # type: ignore[type-var]  # every kind is a dataclass

    # Drawing of the noise.

    def scale(self, sensitivity: SumSensitivity, multiplier: float) -> Floats:
        """Return the standard deviation of noise that an adversary does not know, in the shape of the sensitivities.

        Parameters
        ----------
        sensitivity
            Sensitivity of the sum in each trial.
        multiplier
            Effective noise multiplier against the adversary.
        """
        return multiplier * sensitivity.largest

    def share_scale(self, global_sensitivity: float) -> float:
        """Return the standard deviation of each client's noise share; 0 if the server adds the noise.

        Parameters
        ----------
        global_sensitivity
            Global sensitivity Delta of the sum.
        """
        return 0.0

    def server_draws(self) -> ServerDraws:
        """Return an object that draws the server's noise for some trials."""
        return _IndependentDraws()

    # Accounting of the noise.

    def effective_multiplier(self, threat_model: ThreatModel) -> float:
        """Return the effective noise multiplier after an adversary subtracts the noise that it knows; 0 without noise.

        For a server that adds the noise itself, `effective_noise_multiplier` raises an error instead.

        Parameters
        ----------
        threat_model
            Position and knowledge of the adversary.
        """
        return self.multiplier

    def round_multiplier(self, multiplier: float, participation: "Participation") -> float:
        """Return the noise relative to the largest difference of D and D' that an adversary can see in one round.

        0 without noise.

        Parameters
        ----------
        multiplier
            Effective noise multiplier against the adversary.
        participation
            Rule of participation.
        """
        return multiplier

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return the release events of some rounds for the accountant, one tuple for every kind of client.

        The tuple is empty without noise.
        """
        often = rounds.participation.participations(rounds.count)
        return (gaussian_rounds(rounds.multiplier, often, rounds.participation.rate, rounds.seen),)

    def joint_sensitivity(self, participation: "Participation") -> float | None:
        """Return the sensitivity of all rounds as one release, relative to the sensitivity of one contribution.

        None if every round is a separate release.
        """
        return None

    # Evidence of the noised releases for an insider.

    @property
    def rounds_needed(self) -> int:
        """Number of rounds, including the latest, whose releases are needed to whiten the latest release."""
        return 1

    def whitening(self, server_round: int) -> Floats:
        """Return the whitening weights of the releases up to a round, float64 (rounds,).

        The noise of the weighted sum is independent of all earlier releases, and has the scale of one round's noise.

        Parameters
        ----------
        server_round
            The latest round, from 1; the last weight belongs to its release.
        """
        factors = np.zeros(server_round)
        factors[-1] = 1.0
        return factors

    # Checks against other parts of a mechanism: each method raises `InputError` with the reason if they do not fit.

    @abstractmethod
    def require_participation(self, participation: "Participation") -> None:
        """Raise `InputError` if this noise has no accounting or likelihood ratio for partial participation.

        Parameters
        ----------
        participation
            Rule of participation; the method is not called if all units participate in every round.
        """

    @abstractmethod
    def require_adaptive_clipping(self) -> None:
        """Raise `InputError` if this noise has no accounting or likelihood ratio for adaptive clipping."""

    def require_rounds(self, rounds: int) -> None:  # noqa: B027  # most noises are made for any number
        """Raise `InputError` if this noise does not support a number of rounds.

        Parameters
        ----------
        rounds
            Number of rounds k, from 1.
        """

    # Words for reports.

    @abstractmethod
    def source_words(self) -> str:
        """Return a phrase on the kind of noise and the party that adds it."""

    @property
    def multiplied_words(self) -> str | None:
        """Phrase for the quantity that the noise multiplier multiplies; None for the sensitivity of the sum."""
        return None

    def mu_words(self, rounds: str) -> str:
        """Return the formula of the claimed mu in words, in terms of the noise multiplier z.

        Parameters
        ----------
        rounds
            Phrase for the rounds in which a unit participates.
        """
        return f"square root of {rounds} over z"
