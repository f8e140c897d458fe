"""Laplace noise: the server adds independent Laplace noise to every coordinate of the sum, clipped in the L1 norm."""

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from fl_audit.errors import InputError, require
from fl_audit.mechanisms.noises.mechanism_noise import (
    AccountedRounds,
    MechanismNoise,
    NoiseOrigin,
    NoiseSettings,
    Normals,
    ServerNoiseDraws,
)
from fl_audit.paper_reference import PaperReference
from fl_audit.privacy.accounting_enums import NoiseDistribution, VectorNorm
from fl_audit.privacy.events import LaplaceRelease, ReleaseEvent
from fl_audit.privacy.gaussian import require_positive
from fl_audit.root_finding import bracketed_root

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.array_types import Floats
    from fl_audit.mechanisms.likelihood_ratio import Hypotheses, ReleaseLlrs, ReleaseUnderHypotheses
    from fl_audit.mechanisms.participations.participation import Participation

_LARGEST_RATIO = 1e6  # largest ratio of real to claimed noise that is told apart from larger ones


@dataclass(frozen=True)
class CentralLaplace(MechanismNoise):
    """Central Laplace noise: the server adds noise with density exp(-|x| / b) / (2 b) to each coordinate of the sum.

    b = z Delta, where z is the noise multiplier and Delta the global sensitivity of the sum in the L1 norm, in which
    contributions are clipped. A round is (1/z, 0)-DP. Whatever the dimension, and however a difference is spread over
    the coordinates, it is no easier to detect than a difference Delta in a single coordinate. So the privacy loss
    distribution of one number with sensitivity Delta accounts for a round, and exactly for a difference in one
    coordinate: `tests/mechanisms/test_laplace.py` has the proof.

    Source: Dwork, McSherry, Nissim & Smith 2006, "Calibrating noise to sensitivity in private data analysis".
    """

    multiplier: float  # z, scale b of the noise in units of the L1 sensitivity; positive and finite
    kind: Literal["laplace"] = "laplace"
    names: ClassVar = ("laplace",)
    origin: ClassVar = NoiseOrigin.SERVER
    weighs_targets: ClassVar = False
    scale_words: ClassVar = "scale"
    norm: ClassVar = VectorNorm.L1
    has_gaussian_llr: ClassVar = False
    distribution: ClassVar = NoiseDistribution.LAPLACE
    paper: ClassVar = PaperReference(
        "C. Dwork, F. McSherry, K. Nissim, A. Smith (2006). Calibrating noise to sensitivity in private data analysis. "
        "TCC",
        "For the guarantee of Laplace noise",
        "10.1007/11681878_14",
    )

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)

    @classmethod
    def of_settings(cls, settings: NoiseSettings) -> "CentralLaplace":
        """Build the noise from the configured multiplier."""
        return cls(settings.multiplier)

    @property
    def residual_shift(self) -> float:
        """Mean of the derivative of a standard residual, sqrt(2 / pi).

        It is the integral of f^2 / phi(Phi^-1(F)), where f and F are the density and distribution function of the
        noise, and phi and Phi those of N(0, 1).
        """
        return math.sqrt(2 / math.pi)

    def server_draws(self) -> ServerNoiseDraws:
        """Return a function that draws noise of scale 1, independently for each round."""
        return self._draw

    def _draw(self, normals: Normals, server_round: int) -> "Tensor":
        import torch  # noqa: PLC0415

        draws = normals(0)
        return draws.copy_(torch.from_numpy(_from_normal(draws.double().numpy())))

    def release_llrs(
        self, release: "ReleaseUnderHypotheses", scale: "Tensor", distance: "Tensor", hypotheses: "Hypotheses"
    ) -> "ReleaseLlrs":
        """Return the sums over coordinates of (|r - f(D')| - |r - f(D)|) / b for each release r.

        The scores are the standard residuals of either hypothesis along f(D) - f(D').
        """
        import torch  # noqa: PLC0415

        from fl_audit.mechanisms.likelihood_ratio import ReleaseLlrs  # noqa: PLC0415

        assert hypotheses.weight == 1, f"units are not sampled with {self.distribution} noise"
        tensor = release.release - release.shared
        noises = [tensor - release.present, tensor - release.absent]
        log_odds = (noises[1].abs() - noises[0].abs()).sum(dim=1) / scale
        residuals = [self.standard_residuals(noise / scale.unsqueeze(1)) for noise in noises]
        along = [(residual * release.difference).sum(dim=1) / distance for residual in residuals]
        scores = torch.where(distance.unsqueeze(1) > 0, torch.stack(along, dim=1), math.nan)
        return ReleaseLlrs(log_odds, scores)

    def standard_residuals(self, noise: "Tensor") -> "Tensor":
        """Return the normal quantiles of the probabilities that the distribution gives to the noise."""
        import torch  # noqa: PLC0415

        values = noise.double().cpu().numpy()
        return torch.from_numpy(_to_normal(values)).to(noise.device)

    def residual_ratio(self, noise_ratio: float) -> float:
        """Return the standard deviation of a residual whose noise has `noise_ratio` times the claimed scale."""
        return _deviation(noise_ratio)

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
        return ((LaplaceRelease(1.0, rounds.multiplier, often),),)

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


def _from_normal(normal: "Floats") -> "Floats":
    """Return numbers with the Laplace distribution of scale 1, by the smaller tail of each N(0, 1) number."""
    tails = math.log(2) + log_ndtr(-np.abs(normal))
    return np.asarray(-np.sign(normal) * tails, dtype=np.float64)


def _to_normal(noise: "Floats") -> "Floats":
    """Return N(0, 1) numbers of numbers with the Laplace distribution of scale 1; the inverse of `_from_normal`."""
    scores = ndtri_exp(-np.abs(noise) - math.log(2))
    return np.asarray(-np.sign(noise) * scores, dtype=np.float64)


@lru_cache(maxsize=256)
def _deviation(noise_ratio: float) -> float:
    """Return the standard deviation of the residual of noise with `noise_ratio` times the claimed scale, at least 0.

    By symmetry it is the integral over x > 0 of the squared residual of `noise_ratio` x under the density exp(-x) of
    sizes.
    """
    nodes, weights = _nodes_of_sizes()
    squares = np.square(_to_normal(noise_ratio * nodes))
    return math.sqrt(float(weights @ squares))


@cache
def _nodes_of_sizes() -> "tuple[Floats, Floats]":
    """Return nodes x and weights of integrals over x > 0 under the density of the absolute value of the noise."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    # x = t^2 for t from 0 to 8, so that nodes are dense where the residual is steep.
    t = 4.0 * (nodes + 1)
    return t * t, 4.0 * weights * 2 * t * np.asarray(np.exp(-(t * t)), dtype=np.float64)
