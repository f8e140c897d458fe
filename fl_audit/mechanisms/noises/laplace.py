"""Laplace noise: the server adds independent Laplace noise to every coordinate of the sum, clipped in the L1 norm."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from fl_audit.mechanisms.noises.coordinate_noise import CoordinateNoise
from fl_audit.paper_reference import PaperReference
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.events import LaplaceRelease, ReleaseEvent

if TYPE_CHECKING:
    from torch import Tensor

    from fl_audit.array_types import Floats


@dataclass(frozen=True)
class CentralLaplace(CoordinateNoise):
    """Central Laplace noise: the server adds noise with density exp(-|x| / b) / (2 b) to each coordinate of the sum.

    b = z Delta, where z is the noise multiplier and Delta the global sensitivity of the sum in the L1 norm, in which
    contributions are clipped. A round is (1/z, 0)-DP. Whatever the dimension, and however a difference is spread over
    the coordinates, it is no easier to detect than a difference Delta in a single coordinate. So the privacy loss
    distribution of one number with sensitivity Delta accounts for a round, and exactly for a difference in one
    coordinate: `tests/mechanisms/test_laplace.py` has the proof.

    Source: Dwork, McSherry, Nissim & Smith 2006, "Calibrating noise to sensitivity in private data analysis".
    """

    kind: Literal["laplace"] = "laplace"
    names: ClassVar = ("laplace",)
    distribution: ClassVar = NoiseDistribution.LAPLACE
    paper: ClassVar = PaperReference(
        "C. Dwork, F. McSherry, K. Nissim, A. Smith (2006). Calibrating noise to sensitivity in private data analysis. "
        "TCC",
        "For the guarantee of Laplace noise",
        "10.1007/11681878_14",
    )

    @staticmethod
    def release(multiplier: float, count: int) -> ReleaseEvent:
        """Return a Laplace event."""
        return LaplaceRelease(1.0, multiplier, count)

    @staticmethod
    def log_density_ratios(first: "Tensor", second: "Tensor", scale: "Tensor") -> "Tensor":
        """Return the sums over coordinates of (|second| - |first|) / b."""
        return (second.abs() - first.abs()).sum(dim=1) / scale

    @staticmethod
    def from_normal(normal: "Floats") -> "Floats":
        """Return numbers with the Laplace distribution of scale 1, by the smaller tail of each number."""
        tails = math.log(2) + log_ndtr(-np.abs(normal))
        return np.asarray(-np.sign(normal) * tails, dtype=np.float64)

    @staticmethod
    def to_normal(noise: "Floats") -> "Floats":
        """Return N(0, 1) numbers of numbers with the Laplace distribution of scale 1."""
        scores = ndtri_exp(-np.abs(noise) - math.log(2))
        return np.asarray(-np.sign(noise) * scores, dtype=np.float64)

    @staticmethod
    def size_density(size: "Floats") -> "Floats":
        """Return exp(-size)."""
        return np.asarray(np.exp(-size), dtype=np.float64)

    @property
    def residual_shift(self) -> float:
        """sqrt(2 / pi)."""
        return math.sqrt(2 / math.pi)
