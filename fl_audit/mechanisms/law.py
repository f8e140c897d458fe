"""The release law: what a federation releases in a round, as one value that three parties read.

The server makes the release from it, the accountant promises what follows from it, and the insider weighs what it sees
with it. Noise calibrated to one neighbouring relation and accounted under another cannot be written down. The value is
composed of small closed sets: adjacency, contribution, clipping, participation, noise and optimizer.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError, require
from fl_audit.learning.optimizers import ServerOptimizer
from fl_audit.mechanisms.clipping import Clipping, FixedClipping, NoClipping, norm_bound
from fl_audit.mechanisms.contribution import Contribution, RecordGradients
from fl_audit.mechanisms.noise import CentralGaussian, Noise, NoiseScaling, NoNoise
from fl_audit.mechanisms.participation import Everybody, Participation, PoissonSampling, rate_of
from fl_audit.privacy.events import ReleaseEvent, gaussian_rounds


@dataclass(frozen=True)
class ReleaseLaw:
    """The law of one release: r_i = sum of clipped contributions + N(0, sigma_i^2 I), sigma_i = z Delta_i.

    The sum runs over the units that take part. Whoever else takes part changes the sum by no more than without
    sampling, so the sensitivity is the same and the promise gains (see `SampledGaussianRelease`).

    Parameters
    ----------
    adjacency
        The neighbouring relation that noise and promise refer to.
    clipping
        How large one contribution may be.
    participation
        Which units take part in a round.
    noise
        What is added to the sum.
    denominator
        n, with sampling q n, fixed and public: the sum is divided by it after the noise; positive and finite.
    optimizer
        How the model follows from the release.
    contribution
        What one unit adds.

    Raises
    ------
    InputError
        If the parts do not go together.
    """

    adjacency: Adjacency
    clipping: Clipping
    participation: Participation
    noise: Noise
    denominator: float
    optimizer: ServerOptimizer
    contribution: Contribution = field(default_factory=RecordGradients)

    def __post_init__(self) -> None:
        unit = self.contribution.unit
        require(
            self.adjacency.unit is unit,
            f"adjacency is '{self.adjacency}', and what is clipped are contributions of a {unit}: accepted are "
            f"{' and '.join(one for one in Adjacency if one.unit is unit)}",
        )
        accepted = self.denominator > 0 and math.isfinite(self.denominator)
        require(accepted, f"denominator is {self.denominator}: accepted are positive finite numbers")
        match self.clipping, self.noise, self.participation:
            case NoClipping(), CentralGaussian(multiplier), _:
                raise InputError(f"noise multiplier is {multiplier} without clipping: noise needs a clipping norm")
            case FixedClipping(norm), NoNoise(), _:
                raise InputError(f"clipping norm is {norm} without noise: clipping alone promises nothing")
            case _, CentralGaussian(scaling=NoiseScaling.LOCAL), PoissonSampling(rate):
                raise InputError(f"sensitivity is 'local' at sampling rate {rate}: accepted with sampling is 'global'")
            case _:
                pass

    @property
    def adds_noise(self) -> bool:
        """Whether noise is added: without it nothing is promised."""
        return not isinstance(self.noise, NoNoise)

    @property
    def is_sampled(self) -> bool:
        """Whether a round is made of a sample of the units."""
        return not isinstance(self.participation, Everybody)

    @property
    def sampling_rate(self) -> float:
        """Probability with which a unit takes part in a round."""
        return rate_of(self.participation)

    @property
    def clipping_norm(self) -> float:
        """C, largest L2 norm of one contribution; infinite without clipping."""
        return norm_bound(self.clipping)

    @property
    def noise_multiplier(self) -> float:
        """z, noise standard deviation in units of the sensitivity; 0 without noise."""
        match self.noise:
            case CentralGaussian(multiplier):
                return multiplier
            case NoNoise():
                return 0.0

    @property
    def scaling(self) -> NoiseScaling:
        """What the noise is scaled to; no noise depends on no data, so it counts as global."""
        match self.noise:
            case CentralGaussian(scaling=scaling):
                return scaling
            case NoNoise():
                return NoiseScaling.GLOBAL

    @property
    def global_sensitivity(self) -> float:
        """Largest L2 change of the sum between neighbours; infinite without clipping."""
        return self.adjacency.sensitivity_of_sum(self.clipping_norm)

    @property
    def is_private_release(self) -> bool:
        """Whether there is noise, and it is independent of the data, as a private release needs."""
        return self.adds_noise and self.scaling is NoiseScaling.GLOBAL

    def noise_scale(self, local_sensitivity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sigma_i of every world from the local sensitivities at the current weights; 0 without noise.

        Parameters
        ----------
        local_sensitivity
            ||f_i(D) - f_i(D')||, at least 0, any shape. Under global scaling only its shape matters.
        """
        match self.noise:
            case CentralGaussian():
                return self.noise.scale(local_sensitivity, self.clipping_norm, self.global_sensitivity)
            case NoNoise():
                return np.zeros_like(local_sensitivity, dtype=np.float64)

    def events(self, rounds: int) -> tuple[ReleaseEvent, ...]:
        """Return what the accountant is told of k rounds; nothing where nothing is promised."""
        match self.noise:
            case CentralGaussian(multiplier):
                return gaussian_rounds(multiplier, rounds, self.sampling_rate)
            case NoNoise():
                return ()

    def gaussian_mu(self, rounds: int) -> float:
        """Return mu = sqrt(k) / z, the Gaussian-DP parameter of k rounds (Dong, Roth & Su 2022, corollary 3.3).

        With sampling it is that of an insider who sees who takes part; without noise it is infinite.
        """
        return math.sqrt(rounds) / self.noise_multiplier if self.adds_noise else math.inf


def require_weighable(adds_noise: bool, sampling_rate: float) -> None:
    """Refuse what the insider cannot weigh.

    Raises
    ------
    InputError
        If there is no noise, or the units of a round are sampled.
    """
    if not adds_noise:
        raise InputError("the insider has nothing to weigh where nothing is promised: set insider = false in [audit]")
    require(
        sampling_rate == 1,
        f"sampling rate is {sampling_rate:g}: the insider weighs rounds of all records only; set insider = false in "
        "[audit], or leave the rate at 1",
    )
