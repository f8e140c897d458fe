"""Interface of all kinds of noise, so that other code does not depend on the kind.

The module of each kind defines the distribution of the noise: its scale and origin, how it is drawn, accounted and
whitened, the likelihood ratio of a release, and how noise becomes standard normal values for the tests of the verdict.
It also says which other parts of a mechanism the noise excludes, and has its phrases for reports. Kinds of Gaussian
noise share `gaussian_noise.GaussianNoise`. These modules do not import torch before a release is weighed, so that a
configuration can be checked without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.mechanisms.threat_model import ThreatModel
from fl_audit.paper_reference import PaperReference
from fl_audit.privacy.accounting_enums import NoiseDistribution, SensitivityKind, VectorNorm
from fl_audit.privacy.events import ReleaseEvent

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.learning.local_training import LocalSchedule
    from fl_audit.mechanisms.contribution import Contribution
    from fl_audit.mechanisms.likelihood_ratio import Hypotheses, ReleaseLlrs, ReleaseUnderHypotheses
    from fl_audit.mechanisms.participations.participation import Participation


class NoiseOrigin(StrEnum):
    """Party that adds the noise, and the quantity to which the party adds it."""

    NOBODY = "nobody"  # no noise is added, and there is no claim
    SERVER = "server"  # the server adds the noise to the sum
    CLIENTS = "clients"  # each client adds a share of the noise to its contribution, and knows this share
    TRAINING = "training"  # each client adds the noise in every step of its own training


@dataclass(frozen=True)
class NoiseSettings:
    """Configured settings of the noise, and the other settings of a run on which kinds of noise depend."""

    name: str  # name of the noise in the configuration
    multiplier: float  # noise multiplier z
    scaling: SensitivityKind  # sensitivity that the noise is scaled to
    clients: int  # m, number of clients
    rounds: int  # k, number of rounds
    separation: int | None  # smallest number of rounds between a client's participations, with cohorts; otherwise None


@dataclass(frozen=True)
class SumSensitivity:
    """Local sensitivity of a round's sum in each trial (at D and D'), and global sensitivity (over all pairs)."""

    local: Floats  # ||f_i(D) - f_i(D')|| at the current model parameters, any shape
    largest: Floats  # the largest change that the clipping norm of the round allows, of the same shape
    clipping_norm: float  # C of the first round


@dataclass(frozen=True)
class AccountedRounds:
    """Description of a run's rounds, from which a kind of noise derives the release events for the accountant."""

    count: int  # number of rounds k, from 1
    multiplier: float  # noise multiplier of a round's releases together, without noise that the adversary knows
    participation: "Participation"  # rule of participation
    seen: bool  # whether the adversary sees in which rounds the target participates
    schedule: "LocalSchedule | None" = None  # training of clients, if they train by DP-SGD; otherwise None
    shards: tuple[int, ...] = ()  # sizes of the clients' shards, if they train by DP-SGD


Normals = Callable[[int], "Tensor"]
"""Function that returns a set of standard normal draws of a round, float32 (trials, parameters), for a number from 0.

Sets with different numbers are independent. Set 0 is drawn in advance, while clients compute."""

ServerNoiseDraws = Callable[[Normals, int], "Tensor"]
"""Function that draws the server's noise of the next round, for some trials: from the standard normal draws of the
round, whose memory may be overwritten, and the number of the round, from 1. It returns the noise divided by
`MechanismNoise.scale`, float32 (trials, parameters). It keeps earlier draws if those of later rounds depend on them."""


class MechanismNoise(ABC):
    """Interface of a kind of noise, implemented by frozen dataclasses; numbers out of range raise `InputError`."""

    kind: str
    """Name of the kind in a stored mechanism, which is its key in the registry."""
    multiplier: float
    """Noise multiplier z, as this kind of noise defines it; 0 without noise."""
    scaling: SensitivityKind = SensitivityKind.GLOBAL
    """Sensitivity to which the noise is scaled; global without noise."""

    names: ClassVar[tuple[str, ...]]
    """Names of the noise in a configuration; empty if it cannot be chosen there."""
    origin: ClassVar[NoiseOrigin]
    """Party that adds the noise."""
    may_follow_data: ClassVar[bool] = False
    """Whether the noise may be scaled to the local sensitivity, as in the audits of Bernau et al. 2021."""
    carries_canaries: ClassVar[bool] = False
    """Whether the noise of every round is independent with a known scale, so that canaries can be measured under it."""
    weighs_targets: ClassVar[bool] = True
    """Whether the log-likelihood ratios of many targets, or of many candidates, can be computed under the noise."""

    # Facts on the distribution, from which reports make their words.

    distribution: ClassVar[NoiseDistribution]
    """Distribution of the noise in one round, given the releases of earlier rounds."""
    paper: ClassVar[PaperReference | None] = None
    """Paper that a report names for the guarantee of the noise; None if it names it for another reason."""
    scale_words: ClassVar[str]
    """Name of the parameter that `scale` returns, such as "standard deviation"."""
    norm: ClassVar[VectorNorm]
    """Norm in which contributions are clipped, and in which the noise is scaled to the sensitivity."""
    has_gaussian_llr: ClassVar[bool]
    """Whether increments of the log-likelihood ratio are Gaussian, given the difference of D and D' in the round.

    Then all rounds together are as private as one Gaussian release, with a parameter mu, and the noise has the same
    distribution along every direction, so that most of it can be measured without knowing the secret bit."""

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Build the noise from the settings of a configuration."""

    @property
    def name(self) -> str:
        """Name of this noise in a configuration, or its kind if it cannot be chosen there."""
        return self.names[0] if self.names else self.kind

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
            Noise multiplier that counts only noise unknown to the adversary.
        """
        return multiplier * sensitivity.largest

    def share_scale(self, global_sensitivity: float) -> float:
        """Return the standard deviation of the noise that each client adds; 0 if the server adds the noise.

        Parameters
        ----------
        global_sensitivity
            Global sensitivity Delta of a round's sum.
        """
        return 0.0

    @abstractmethod
    def server_draws(self) -> ServerNoiseDraws:
        """Return a function that draws the server's noise for some trials, round by round."""

    # Distribution of the noise.

    def knows_llr(self, contribution: "Contribution") -> bool:
        """Return whether an insider can compute the exact log-likelihood ratio of its observation."""
        return True

    def is_measurable(self, contribution: "Contribution") -> bool:
        """Return whether the noise of a release can be measured, by someone who knows the sum before the noise."""
        return True

    @abstractmethod
    def release_llrs(
        self, release: "ReleaseUnderHypotheses", scale: "Tensor", distance: "Tensor", hypotheses: "Hypotheses"
    ) -> "ReleaseLlrs":
        """Return the log-likelihood ratio of each release for D against D', and the noise that either implies.

        Parameters
        ----------
        release
            Releases of some trials, and the sums before noise that are expected under D and under D'.
        scale
            Scale of the noise that the adversary does not know, positive, float64 (rows,).
        distance
            Euclidean distance ||f(D) - f(D')||_2 of the two sums, float64 (rows,).
        hypotheses
            Both hypotheses of all trials, with the probability that the differing unit takes part.
        """

    @abstractmethod
    def standard_residuals(self, noise: "Tensor") -> "Tensor":
        """Return noise as independent N(0, 1) values, by a rising function of each coordinate.

        `noise`: The noise divided by its scale, float64 of any shape.
        """

    @property
    @abstractmethod
    def residual_shift(self) -> float:
        """Shift of the mean of a standard residual, if the noise is shifted by a small part of its scale, per part."""

    @abstractmethod
    def residual_ratio(self, noise_ratio: float) -> float:
        """Return the standard deviation of standard residuals whose noise has `noise_ratio` times the claimed scale."""

    @abstractmethod
    def noise_ratio(self, residual_ratio: float) -> float:
        """Return the ratio of real to claimed scale at which standard residuals have a given standard deviation."""

    # Accounting of the noise.

    def effective_multiplier(self, threat_model: ThreatModel) -> float:
        """Return the noise multiplier after an adversary has subtracted the noise that it knows; 0 without noise.

        `effective_noise_multiplier` calls this method, unless the adversary is a server that adds the noise itself.

        Parameters
        ----------
        threat_model
            Position and knowledge of the adversary.
        """
        return self.multiplier

    def round_multiplier(self, multiplier: float, participation: "Participation") -> float:
        """Return the noise multiplier with which a round is accounted.

        Where noise is independent between rounds, it is `multiplier`. Where noise is correlated over rounds, all rounds
        are accounted as one release, and the result is that of this release: the standard deviation of the noise over
        the largest norm of the difference that D and D' make in all rounds together. It is 0 without noise.

        Parameters
        ----------
        multiplier
            Noise multiplier of a single round, in which only noise that the adversary does not know counts.
        participation
            Rule by which units participate in rounds.
        """
        return multiplier

    @abstractmethod
    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return the release events of the first `rounds.count` rounds, one tuple of events for every kind of client.

        They account for these rounds exactly, whatever rounds follow; rounds that the noise does not have are refused.
        There are several kinds only if clients train by DP-SGD on shards of different sizes. The tuples are empty
        without noise.
        """

    def joint_sensitivity(self, participation: "Participation") -> float | None:
        """Return the sensitivity of all rounds together, divided by that of one contribution.

        The result is None unless the accountant treats all rounds as a single release.

        Parameters
        ----------
        participation
            Rule by which units participate in rounds.
        """
        return None

    # Evidence of the noised releases for an insider.

    @property
    def rounds_needed(self) -> int:
        """Number of latest rounds whose releases are combined to whiten the latest noise; 1 if it is independent.

        Whitened noise is independent of all earlier releases.
        """
        return 1

    def whitening(self, server_round: int) -> Floats:
        """Return the weights that whiten the releases of rounds 1 to `server_round`, float64 (rounds,).

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
        """Raise `InputError` if this noise has no accounting or likelihood ratio for a rule of participation.

        Parameters
        ----------
        participation
            Rule by which only some units participate in a round.
        """

    @abstractmethod
    def require_adaptive_clipping(self) -> None:
        """Raise `InputError` if this noise has no accounting or likelihood ratio for adaptive clipping."""

    def require_rounds(self, rounds: int) -> None:  # noqa: B027  # most noises are made for any number
        """Raise `InputError` if this noise does not support `rounds` rounds.

        Parameters
        ----------
        rounds
            Number of rounds k, from 1.
        """

    # Words for reports.

    @abstractmethod
    def source_words(self) -> str:
        """Return a phrase for reports that names the kind of noise and the party that adds it."""

    @property
    def multiplied_quantity_words(self) -> str | None:
        """Phrase for reports on the quantity that the noise multiplier multiplies; None for the sum's sensitivity."""
        return None

    def mu_words(self, rounds: str) -> str | None:
        """Return the formula of the claimed Gaussian-DP parameter mu in words, e.g. "square root of the rounds over z".

        None if the noise is not Gaussian, so that no such formula exists.

        Parameters
        ----------
        rounds
            Phrase for the number of rounds in which a unit participates.
        """
        return None
