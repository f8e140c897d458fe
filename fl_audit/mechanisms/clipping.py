"""How large one contribution may be; numbers out of their range raise `InputError`."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fl_audit.errors import require
from fl_audit.privacy.gaussian import require_positive


@dataclass(frozen=True)
class FixedClipping:
    """A contribution longer than C is shortened to it: g min(1, C / ||g||), over all parameters together."""

    norm: float  # C, largest L2 norm of one contribution; positive and finite
    kind: Literal["fixed"] = "fixed"

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm)


@dataclass(frozen=True)
class AdaptiveClipping:
    """The norm follows a quantile of the lengths of contributions, which is estimated with noise.

    Beside its contribution a unit tells whether it is at most C long. The sum of these bits, each less one half, is
    released with noise, and the next round's norm is C exp(-eta (share - gamma)). The noise of a round is scaled to the
    norm at which that round clipped.

    Source: Andrew, Thakkar, McMahan & Ramaswamy 2021, "Differentially private learning with adaptive clipping",
    algorithm 1.
    """

    norm: float  # C of the first round, positive and finite
    quantile: float = 0.5  # gamma, the share of contributions that are to stay unclipped; above 0 and below 1
    learning_rate: float = 0.2  # eta, how fast the norm follows; positive and finite
    bit_noise: float = 5.0  # noise multiplier of the bits' sum over that of the contributions' sum, positive and finite
    kind: Literal["adaptive"] = "adaptive"

    def __post_init__(self) -> None:
        require_positive(clipping_norm=self.norm, clipping_learning_rate=self.learning_rate)
        require_positive(quantile_noise=self.bit_noise)
        require(0 < self.quantile < 1, f"quantile is {self.quantile}: accepted are numbers above 0 and below 1")

    def moved(self, norms: Tensor, share: Tensor) -> Tensor:
        """Return the norms of the next round.

        Parameters
        ----------
        norms, share
            C of this round, and the noised share of contributions that were at most C long; float64 (worlds,).
        """
        return norms * (-self.learning_rate * (share - self.quantile)).exp()


@dataclass(frozen=True)
class NoClipping:
    """Contributions of any length, which leave noise no scale and promise nothing."""

    norm: ClassVar[float] = math.inf
    kind: Literal["none"] = "none"


Clipping = FixedClipping | AdaptiveClipping | NoClipping
"""The ways to clip; `norm` is the largest L2 norm that one contribution can have, in the first round."""
