"""The release law: what a federation releases in a round, as one value that three parties read.

The server makes the release from it, the accountant promises what follows from it, and the insider weighs what it sees
with it. Noise calibrated to one neighbouring relation and accounted under another cannot be written down.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fl_audit.errors import require
from fl_audit.learning.optimizers import ServerOptimizer

SENSITIVITY_FLOOR = 1e-4
"""Share of the clipping norm under which local noise stops shrinking: below it float32 rounding, not noise, would hide
the record."""


class NeighbouringRelation(StrEnum):
    """How two neighbouring training sets differ."""

    ADD_REMOVE_RECORD = "add-remove-record"
    REPLACE_RECORD = "replace-record"


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

    Parameters
    ----------
    relation
        The neighbouring relation that noise and promise refer to.
    clipping_norm
        C, largest L2 norm of one record's gradient over all parameters together; positive.
    noise_multiplier
        z, noise standard deviation in units of the sensitivity; positive.
    scaling
        Whether Delta_i is the local or the global sensitivity.
    denominator
        n, fixed and public: the sum is divided by it after the noise.
    optimizer
        How the model follows from the release.
    source
        Who adds the noise.

    Raises
    ------
    InputError
        If a number is out of its range.
    """

    relation: NeighbouringRelation
    clipping_norm: float
    noise_multiplier: float
    scaling: NoiseScaling
    denominator: int
    optimizer: ServerOptimizer
    source: NoiseSource = NoiseSource.CENTRAL

    def __post_init__(self) -> None:
        for name in ("clipping_norm", "noise_multiplier", "denominator"):
            value = getattr(self, name)
            label = name.replace("_", " ")
            require(value > 0 and math.isfinite(value), f"{label} is {value}: accepted are positive finite numbers")

    @property
    def global_sensitivity(self) -> float:
        """Largest L2 change of the sum between neighbours: C when a record comes or goes, 2C when one is replaced."""
        match self.relation:
            case NeighbouringRelation.ADD_REMOVE_RECORD:
                return self.clipping_norm
            case NeighbouringRelation.REPLACE_RECORD:
                return 2 * self.clipping_norm

    @property
    def is_private_release(self) -> bool:
        """Whether noise is independent of the data, as a private release needs."""
        return self.scaling is NoiseScaling.GLOBAL

    def noise_scale(self, local_sensitivity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return sigma_i of every world from the local sensitivities at the current weights.

        Parameters
        ----------
        local_sensitivity
            ||f_i(D) - f_i(D')|| per world, shape (worlds,), at least 0. Under global scaling only its shape matters.
        """
        match self.scaling:
            case NoiseScaling.LOCAL:
                reference = np.maximum(local_sensitivity, SENSITIVITY_FLOOR * self.clipping_norm)
            case NoiseScaling.GLOBAL:
                reference = np.full_like(local_sensitivity, self.global_sensitivity, dtype=np.float64)
        return np.asarray(self.noise_multiplier * reference, dtype=np.float64)

    def gaussian_mu(self, rounds: int) -> float:
        """Return mu = sqrt(k) / z, the Gaussian-DP parameter of k rounds (Dong, Roth & Su 2022, corollary 3.3)."""
        return math.sqrt(rounds) / self.noise_multiplier
