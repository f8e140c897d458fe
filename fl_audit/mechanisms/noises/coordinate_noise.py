"""Base class of the server's noise with independent coordinates: what is the same for every distribution of them."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.mechanism_noise import (
    AccountedRounds,
    MechanismNoise,
    NoiseOrigin,
    NoiseSettings,
    Normals,
    ServerNoiseDraws,
)
from fl_audit.privacy.accounting_enums import VectorNorm
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.privacy.gaussian import require_positive
from fl_audit.root_finding import bracketed_root

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.array_types import Floats
    from fl_audit.mechanisms.likelihood_ratio import Hypotheses, ReleaseLlrs, ReleaseUnderHypotheses
    from fl_audit.mechanisms.participations.participation import Participation

_LARGEST_RATIO = 1e6  # of real to claimed noise, as far as it is told


@dataclass(frozen=True)
class CoordinateNoise(MechanismNoise):
    """Base class of noise that the server adds to every coordinate of the sum, independently.

    The noise has the scale b = z Delta, where z is the noise multiplier and Delta the global sensitivity of the sum in
    the L1 norm, in which contributions are clipped. A kind of such noise has the functions of its distribution at scale
    1, which is symmetric, and the event by which a round is accounted.
    """

    multiplier: float  # z, scale b of the noise in units of the L1 sensitivity; positive and finite
    origin: ClassVar = NoiseOrigin.SERVER
    weighs_targets: ClassVar = False
    scale_words: ClassVar = "scale"
    norm: ClassVar = VectorNorm.L1
    has_gaussian_llr: ClassVar = False

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> Self:
        """Build the noise from the configured multiplier."""
        return cls(settings.multiplier)

    @staticmethod
    @abstractmethod
    def release(multiplier: float, count: int) -> ReleaseEvent:
        """Return the event of rounds with this noise.

        Parameters
        ----------
        multiplier
            Noise multiplier z of a round.
        count
            Number of rounds in which a unit can take part.
        """

    # Functions of the distribution at scale 1.

    @staticmethod
    @abstractmethod
    def log_density_ratios(first: "Tensor", second: "Tensor", scale: "Tensor") -> "Tensor":
        """Return the log-density of the first noise less that of the second, summed over coordinates, float64 (rows,).

        Parameters
        ----------
        first
            Noise, float64 (rows, parameters).
        second
            Other noise of the same shape.
        scale
            Scale of the noise, float64 (rows,).
        """

    @staticmethod
    @abstractmethod
    def from_normal(normal: "Floats") -> "Floats":
        """Return noise of scale 1, by a rising function of N(0, 1) numbers."""

    @staticmethod
    @abstractmethod
    def to_normal(noise: "Floats") -> "Floats":
        """Return N(0, 1) numbers of noise of scale 1; the inverse of `from_normal`."""

    @staticmethod
    @abstractmethod
    def size_density(size: "Floats") -> "Floats":
        """Return the density of the absolute value of noise of scale 1 at sizes from 0."""

    @property
    @abstractmethod
    def residual_shift(self) -> float:
        """Mean of the derivative of a standard residual, the integral of f^2 / phi(Phi^-1(F)).

        f and F are the density and distribution function of the noise, and phi and Phi those of N(0, 1).
        """

    # What follows from them.

    def server_draws(self) -> ServerNoiseDraws:
        """Return a function that draws noise of scale 1, independently for each round."""
        return self._draw

    def _draw(self, normals: Normals, server_round: int) -> "Tensor":
        import torch  # noqa: PLC0415

        draws = normals(0)
        return draws.copy_(torch.from_numpy(self.from_normal(draws.double().numpy())))

    def release_llrs(
        self, release: "ReleaseUnderHypotheses", scale: "Tensor", distance: "Tensor", hypotheses: "Hypotheses"
    ) -> "ReleaseLlrs":
        """Return the sums over coordinates of log f(r - f(D)) - log f(r - f(D')) for each release r.

        f is the density of the noise. The scores are the standard residuals of either hypothesis along f(D) - f(D').
        """
        import torch  # noqa: PLC0415

        from fl_audit.mechanisms.likelihood_ratio import ReleaseLlrs  # noqa: PLC0415

        assert hypotheses.weight == 1, f"units are not sampled with {self.distribution} noise"
        tensor = release.release - release.shared
        noises = [tensor - release.present, tensor - release.absent]
        log_odds = self.log_density_ratios(noises[0], noises[1], scale)
        residuals = [self.standard_residuals(noise / scale.unsqueeze(1)) for noise in noises]
        along = [(residual * release.difference).sum(dim=1) / distance for residual in residuals]
        scores = torch.where(distance.unsqueeze(1) > 0, torch.stack(along, dim=1), math.nan)
        return ReleaseLlrs(log_odds, scores)

    def standard_residuals(self, noise: "Tensor") -> "Tensor":
        """Return the normal quantiles of the probabilities that the distribution gives to the noise."""
        import torch  # noqa: PLC0415

        values = noise.double().cpu().numpy()
        return torch.from_numpy(self.to_normal(values)).to(noise.device)

    def residual_ratio(self, noise_ratio: float) -> float:
        """Return the standard deviation of a residual whose noise has `noise_ratio` times the claimed scale."""
        return _deviation(type(self), noise_ratio)

    def noise_ratio(self, residual_ratio: float) -> float:
        """Return the ratio of scales at which standard residuals have the given standard deviation, at most 1e6."""
        if residual_ratio <= 0 or residual_ratio >= self.residual_ratio(_LARGEST_RATIO):
            return 0.0 if residual_ratio <= 0 else _LARGEST_RATIO
        return math.exp(
            bracketed_root(
                lambda log_ratio: self.residual_ratio(math.exp(log_ratio)) - residual_ratio,
                -60.0,
                math.log(_LARGEST_RATIO),
                xtol=1e-12,
                rtol=1e-12,
            )
        )

    def events_of_each(self, rounds: AccountedRounds) -> tuple[tuple[ReleaseEvent, ...], ...]:
        """Return one event for all rounds in which a unit can take part, for one kind of client."""
        often = rounds.participation.participations(rounds.count)
        return ((self.release(rounds.multiplier, often),),)

    def require_participation(self, participation: "Participation") -> None:
        """Raise `InputError` if units are sampled; cohorts that take turns are accepted, for their order is public."""
        sampled = f"noise is '{self.name}' at sampling rate {participation.rate}"
        unknown = "and amplification by sampling is accounted for Gaussian noise only"
        require(participation.rate == 1, f"{sampled}, {unknown}: accepted are cohorts, or that everybody takes part")

    def require_adaptive_clipping(self) -> None:
        """Raise `InputError` in every case: adaptive clipping follows the L2 norm of updates."""
        followed = f"noise is '{self.name}', whose contributions are clipped in the {self.norm} norm"
        raise InputError(f"clipping is 'adaptive' and {followed}: accepted with it is 'fixed'")

    def source_words(self) -> str:
        """Return a phrase for reports which says that the server adds the noise."""
        return f"central: the server adds {self.distribution} noise to every coordinate of the sum"


@lru_cache(maxsize=256)
def _deviation(kind: type[CoordinateNoise], noise_ratio: float) -> float:
    """Return the standard deviation of the residual of noise with `noise_ratio` times the claimed scale, at least 0.

    By symmetry it is the integral over x > 0 of the squared residual of `noise_ratio` x under the density of sizes.
    """
    nodes, weights = _nodes_of_sizes(kind)
    squares = np.square(kind.to_normal(noise_ratio * nodes))
    return math.sqrt(float(weights @ squares))


@lru_cache(maxsize=8)
def _nodes_of_sizes(kind: type[CoordinateNoise]) -> "tuple[Floats, Floats]":
    """Return nodes x and weights of integrals over x > 0 under the density of the absolute value of the noise."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    # x = t^2 for t from 0 to 8, so that nodes are dense where the residual is steep.
    t = 4.0 * (nodes + 1)
    return t * t, 4.0 * weights * 2 * t * kind.size_density(t * t)
