"""Names of accountants, of noise scalings and of similar choices, for modules that need only the names."""

from enum import StrEnum
from typing import assert_never

from fl_audit.adjacency import Adjacency


class Accountant(StrEnum):
    """The accountant, which computes a guarantee from the noise.

    RDP_CLASSIC is the accountant of Bernau et al. 2021: Renyi DP at a fixed list of orders, with Mironov's first
    conversion to (epsilon, delta). RDP is that of opacus: the same orders, the tighter conversion of Balle et al. 2020.
    PLD composes pessimistic privacy loss distributions and handles every event. GDP is exact for Gaussian noise without
    sampling and handles nothing else.
    """

    RDP_CLASSIC = "rdp-classic"
    RDP = "rdp"
    PLD = "pld"
    GDP = "gdp"


class Sensitivities(StrEnum):
    """The party that chooses the sensitivity of a unit in a round.

    FIXED: every round has the same signal-to-noise ratio whatever was released before, as under noise that is scaled
    to the local sensitivity. ADAPTIVE: it may follow from earlier releases and is only bounded, as under noise that is
    scaled to the global sensitivity. What holds for ADAPTIVE holds for FIXED too.
    """

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


class NoiseScaling(StrEnum):
    """The quantity to which the noise is scaled.

    LOCAL follows the difference that the two training sets make at the current weights; it depends on the data, so it
    is an audit device and no private release (Bernau et al. 2021, section 5.1). GLOBAL is the worst case.
    """

    LOCAL = "local"
    GLOBAL = "global"


class StrategyKind(StrEnum):
    """Strategy matrix that correlates noise over rounds; `fl_audit.privacy.matrices` has the matrices."""

    TREE = "tree"
    BANDED = "banded"


class MultiplierReference(StrEnum):
    """The quantity that a noise multiplier multiplies.

    SENSITIVITY is the largest change of the sum between neighbours, which is twice the clipping norm where a unit is
    replaced. CLIPPING_NORM is what Opacus, TensorFlow Privacy and dp-accounting quote noise over, whoever neighbours
    are.
    """

    SENSITIVITY = "sensitivity"
    CLIPPING_NORM = "clipping-norm"

    def over_sensitivity(self, multiplier: float, adjacency: Adjacency) -> float:
        """Return the noise multiplier over the sensitivity that equals a noise multiplier over this quantity.

        Parameters
        ----------
        multiplier
            The quoted noise multiplier, over this quantity.
        adjacency
            The relation between neighbours.

        Examples
        --------
        >>> MultiplierReference.CLIPPING_NORM.over_sensitivity(1.0, Adjacency.REPLACE_RECORD)
        0.5
        """
        match self:
            case MultiplierReference.SENSITIVITY:
                return multiplier
            case MultiplierReference.CLIPPING_NORM:
                return multiplier / adjacency.sensitivity_of_sum(1.0)
            case _:
                assert_never(self)
