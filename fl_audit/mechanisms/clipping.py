"""How large one contribution may be."""

import math
from dataclasses import dataclass
from typing import Literal

from fl_audit.errors import require


@dataclass(frozen=True)
class FixedClipping:
    """A contribution longer than C is shortened to it: g min(1, C / ||g||), over all parameters together.

    Parameters
    ----------
    norm
        C, largest L2 norm of one contribution; positive and finite.

    Raises
    ------
    InputError
        If the norm is out of its range.
    """

    norm: float
    kind: Literal["fixed"] = "fixed"

    def __post_init__(self) -> None:
        accepted = self.norm > 0 and math.isfinite(self.norm)
        require(accepted, f"clipping norm is {self.norm}: accepted are positive finite numbers")


@dataclass(frozen=True)
class NoClipping:
    """Contributions of any length, which leave noise no scale and promise nothing."""

    kind: Literal["none"] = "none"


Clipping = FixedClipping | NoClipping
"""The ways to clip."""


def norm_bound(clipping: Clipping) -> float:
    """Return the largest L2 norm that one contribution can have; infinite without clipping."""
    match clipping:
        case FixedClipping(norm):
            return norm
        case NoClipping():
            return math.inf
