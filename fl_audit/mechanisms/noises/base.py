"""The interface of all kinds of noise, so that other code does not depend on the kind.

Every noise is Gaussian given the releases of earlier rounds; the insiders' likelihood ratios and the tests of the
verdict rely on this. The module of each kind defines its scale and origin, its drawing, accounting and whitening, the
parts that it is incompatible with, and its words in reports. The settings of a configuration are checked without torch,
so these modules do not import it.
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

    NOBODY = "nobody"  # no noise is added, and nothing is claimed
    SERVER = "server"  # the server adds it to the sum
    CLIENTS = "clients"  # each client adds a share of it to what it sends, and knows this share
    TRAINING = "training"  # each client adds it in every step of its own training


@dataclass(frozen=True)
class NoiseSettings:
    """Configuration of the noise, and the other settings on which noises depend."""

    name: str  # name of the noise in the configuration
    multiplier: float  # z
    scaling: NoiseScaling  # sensitivity that the noise is scaled to
    clients: int  # m, number of clients
    rounds: int  # k, number of rounds
    separation: int | None  # rounds from one of a client's to its next, where cohorts take part; None elsewhere
    own: Mapping[str, Any]  # values of the settings that this noise alone has, by name; None where they are left out


@dataclass(frozen=True)
class SumSensitivity:
    """Sensitivity of a round's sum in each trial: local, and the global bound."""

    local: Floats  # ||f_i(D) - f_i(D')|| at the current weights, any shape
    largest: Floats  # the largest change that the clipping norm of the round allows, of the same shape
    clipping_norm: float  # C of the first round


@dataclass(frozen=True)
class AccountedRounds:
    """Description of the rounds for the accountant."""

    count: int  # k, from 1
    multiplier: float  # z against the adversary, of everything that is released in one round
    participation: "Participation"  # rule that decides which units take part
    seen: bool  # whether the adversary sees in which rounds the target takes part
    schedule: "LocalSchedule | None" = None  # training of clients, if they train privately; None otherwise
    shards: tuple[int, ...] = ()  # sizes of their shards there


Normals = Callable[[int], "Tensor"]
"""Gives sets of standard normal draws of a round, float32 (trials, parameters), by their numbers from 0.

Different numbers are independent. Set 0 is drawn ahead, while clients compute."""


class ServerDraws(Protocol):
    """The server's noise draws for some trials, round by round, with the state that they need of earlier rounds."""

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
    """Name in a stored mechanism: the key in the registry."""
    multiplier: float
    """z, as this kind of noise defines it; 0 without noise."""
    scaling: NoiseScaling = NoiseScaling.GLOBAL
    """Sensitivity that the noise is scaled to; a mechanism without noise counts as global."""

    names: ClassVar[tuple[str, ...]]
    """Names in a configuration; empty if the noise cannot be chosen there."""
    origin: ClassVar[NoiseOrigin]
    """Party that adds the noise."""
    own_settings: ClassVar[Mapping[str, str]] = {}
    """Settings of [privacy] that no other noise has, each with the name of the noise that it needs."""
    may_follow_data: ClassVar[bool] = False
    """Whether it may be scaled to the local sensitivity, as the audit device of Bernau et al. 2021 is."""
    carries_canaries: ClassVar[bool] = False
    """Whether an observer knows it to be fresh and of one scale in every round, and so can read canaries through it."""

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
        """Return the standard deviation of the noise that remains for an adversary, in the shape of the sensitivities.

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
        """Return what the accountant is told of some rounds, once for every kind of client; () where nothing is
        claimed.
        """
        often = rounds.participation.participations(rounds.count)
        return (gaussian_rounds(rounds.multiplier, often, rounds.participation.rate, rounds.seen),)

    def joint_sensitivity(self, participation: "Participation") -> float | None:
        """Return the sensitivity of all rounds as one release, relative to that of one contribution.

        None if every round is a separate release.
        """
        return None

    # Evidence of the noised releases for an insider.

    @property
    def rounds_needed(self) -> int:
        """Number of rounds, including the latest, whose draws enter the noise of the latest release."""
        return 1

    def whitening(self, server_round: int) -> Floats:
        """Return the whitening weights of the releases up to a round, float64 (rounds,).

        The noise of the weighted sum is independent of all earlier releases, and has the scale of one round's noise.

        Parameters
        ----------
        server_round
            The latest round, from 1; the last weight is its own.
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
