"""Which noise a release gets.

Each noise knows three things: how to apply itself to a sum, what it tells the accountant (`ReleaseLaw.events` asks it
for its multiplier), and the log-likelihood ratio of what was seen under two hypotheses (`weighing`).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.errors import require

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


@dataclass(frozen=True)
class CentralGaussian:
    """The server adds N(0, sigma_i^2 I) to the sum, sigma_i = z Delta_i.

    Parameters
    ----------
    multiplier
        z, noise standard deviation in units of the sensitivity; positive and finite.
    scaling
        Whether Delta_i is the local or the global sensitivity.

    Raises
    ------
    InputError
        If the multiplier is out of its range.
    """

    multiplier: float
    scaling: NoiseScaling = NoiseScaling.GLOBAL
    kind: Literal["central"] = "central"

    def __post_init__(self) -> None:
        accepted = self.multiplier > 0 and math.isfinite(self.multiplier)
        require(accepted, f"noise multiplier is {self.multiplier}: accepted are positive finite numbers")

    def scale(self, local_sensitivity: NDArray[np.float64], clipping_norm: float, worst: float) -> NDArray[np.float64]:
        """Return sigma_i of every world.

        Parameters
        ----------
        local_sensitivity
            ||f_i(D) - f_i(D')|| per world, at least 0. Under global scaling only its shape matters.
        clipping_norm
            C, to which the floor of local noise is relative.
        worst
            The global sensitivity.
        """
        match self.scaling:
            case NoiseScaling.LOCAL:
                reference = np.maximum(local_sensitivity, SENSITIVITY_FLOOR * clipping_norm)
            case NoiseScaling.GLOBAL:
                reference = np.full_like(local_sensitivity, worst, dtype=np.float64)
        return np.asarray(self.multiplier * reference, dtype=np.float64)


@dataclass(frozen=True)
class NoNoise:
    """The sum itself is released, and nothing is promised."""

    kind: Literal["none"] = "none"


Noise = CentralGaussian | NoNoise
"""The kinds of noise."""


def add_noise(total: Tensor, standard_normals: Tensor, sigma: NDArray[np.float64]) -> Tensor:
    """Return the noised sums, in the memory of the sums.

    Parameters
    ----------
    total
        Float32 sums (worlds, parameters); they are written over.
    standard_normals
        Float32 draws of the same shape.
    sigma
        Standard deviation of each world (worlds,).
    """
    return total.addcmul_(standard_normals, torch.from_numpy(sigma).float().unsqueeze(1))
