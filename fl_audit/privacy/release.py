"""The release law: what a federation releases in a round, as one value that three parties read.

The server makes the release from it, the accountant promises what follows from it, and the insider weighs what it sees
with it. Noise calibrated to one neighbouring relation and accounted under another cannot be written down.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError, require
from fl_audit.learning.optimizers import ServerOptimizer
from fl_audit.privacy.events import require_sampling_rate

SENSITIVITY_FLOOR = 1e-4
"""Share of the clipping norm under which local noise stops shrinking: below it float32 rounding, not noise, would hide
the record."""


class NoiseScaling(StrEnum):
    """What the noise is scaled to.

    LOCAL follows the difference that the two training sets make at the current weights; it depends on the data, so it
    is an audit device and no private release (Bernau et al. 2021, section 5.1). GLOBAL is the worst case.
    """

    LOCAL = "local"
    GLOBAL = "global"


class NoiseSource(StrEnum):
    """Who adds the noise."""

    CENTRAL = "central"


@dataclass(frozen=True)
class ReleaseLaw:
    """The law of one release: r_i = sum of clipped gradients + N(0, sigma_i^2 I), sigma_i = z Delta_i.

    The sum runs over a Poisson sample of the records: each takes part on its own with probability q. Whoever takes part
    changes the sum by no more than without sampling, so the sensitivity is the same and the promise gains (see
    `SampledGaussianRelease`).

    Parameters
    ----------
    relation
        The neighbouring relation that noise and promise refer to.
    clipping_norm
        C, largest L2 norm of one record's gradient over all parameters together; positive. None: no clipping, which
        leaves no noise a scale.
    noise_multiplier
        z, noise standard deviation in units of the sensitivity; positive, 0 without clipping.
    scaling
        Whether Delta_i is the local or the global sensitivity.
    denominator
        n, with sampling q n, fixed and public: the sum is divided by it after the noise.
    optimizer
        How the model follows from the release.
    source
        Who adds the noise.
    sampling_rate
        q, probability with which a record takes part in a round; above 0 and up to 1, where all do.

    Raises
    ------
    InputError
        If a number is out of its range, or numbers do not go together.
    """

    relation: Adjacency
    clipping_norm: float | None
    noise_multiplier: float
    scaling: NoiseScaling
    denominator: float
    optimizer: ServerOptimizer
    source: NoiseSource = NoiseSource.CENTRAL
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        if self.clipping_norm is None:
            unscaled = self.noise_multiplier == 0 and self.scaling is NoiseScaling.GLOBAL
            require(unscaled, f"noise multiplier is {self.noise_multiplier} without clipping: accepted is 0")
        for name in ("denominator", *(("clipping_norm", "noise_multiplier") if self.has_noise else ())):
            value = getattr(self, name)
            label = name.replace("_", " ")
            require(value > 0 and math.isfinite(value), f"{label} is {value}: accepted are positive finite numbers")
        require_sampling_rate(self.sampling_rate)
        require(
            self.scaling is NoiseScaling.GLOBAL or not self.is_sampled,
            f"sensitivity is 'local' at sampling rate {self.sampling_rate}: accepted with sampling is 'global'",
        )

    @property
    def has_noise(self) -> bool:
        """Whether anything is promised at all: sums that are neither clipped nor noised promise nothing."""
        return self.clipping_norm is not None

    @property
    def is_sampled(self) -> bool:
        """Whether a round is made of a sample of the records."""
        return self.sampling_rate < 1

    @property
    def global_sensitivity(self) -> float:
        """Largest L2 change of the sum between neighbours: C when a record comes or goes, 2C when one is replaced.

        Infinite without clipping.
        """
        norm = math.inf if self.clipping_norm is None else self.clipping_norm
        return self.relation.sensitivity_of_sum(norm)

    @property
    def is_private_release(self) -> bool:
        """Whether there is noise, and it is independent of the data, as a private release needs."""
        return self.has_noise and self.scaling is NoiseScaling.GLOBAL

    def noise_scale(self, local_sensitivity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sigma_i of every world from the local sensitivities at the current weights; 0 without noise.

        Parameters
        ----------
        local_sensitivity
            ||f_i(D) - f_i(D')|| per world, shape (worlds,), at least 0. Under global scaling only its shape matters.
        """
        if self.clipping_norm is None:
            return np.zeros_like(local_sensitivity, dtype=np.float64)
        match self.scaling:
            case NoiseScaling.LOCAL:
                reference = np.maximum(local_sensitivity, SENSITIVITY_FLOOR * self.clipping_norm)
            case NoiseScaling.GLOBAL:
                reference = np.full_like(local_sensitivity, self.global_sensitivity, dtype=np.float64)
        return np.asarray(self.noise_multiplier * reference, dtype=np.float64)

    def gaussian_mu(self, rounds: int) -> float:
        """Return mu = sqrt(k) / z, the Gaussian-DP parameter of k rounds (Dong, Roth & Su 2022, corollary 3.3).

        With sampling it is that of an insider who sees who takes part; without noise it is infinite.
        """
        return math.sqrt(rounds) / self.noise_multiplier if self.has_noise else math.inf


def require_weighable(has_noise: bool, sampling_rate: float) -> None:
    """Refuse what the insider cannot weigh.

    Raises
    ------
    InputError
        If there is no noise, or the records of a round are sampled.
    """
    if not has_noise:
        raise InputError("the insider has nothing to weigh where nothing is promised: set insider = false in [audit]")
    require(
        sampling_rate == 1,
        f"sampling rate is {sampling_rate:g}: the insider weighs rounds of all records only; set insider = false in "
        "[audit], or leave the rate at 1",
    )
