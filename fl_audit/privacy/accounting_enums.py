"""Names of accountants, noise scalings and similar choices, in a module without heavy imports."""

from enum import StrEnum
from typing import assert_never

from fl_audit.adjacency import Adjacency


class Accountant(StrEnum):
    """Accountants, which compute epsilon and delta of a composition of releases.

    RDP_CLASSIC is the accountant of Bernau et al. 2021: Renyi DP at a fixed list of orders, with the conversion of
    Mironov 2017 to (epsilon, delta). RDP is Opacus's accountant: the same orders with the tighter conversion of Balle
    et al. 2020. PLD composes pessimistic privacy loss distributions and supports every event. GDP is exact for Gaussian
    noise without sampling and supports no other event.
    """

    RDP_CLASSIC = "rdp-classic"
    RDP = "rdp"
    PLD = "pld"
    GDP = "gdp"


class SignalToNoiseAdaptivity(StrEnum):
    """Whether the signal-to-noise ratio of a unit in a round is fixed in advance or depends on earlier releases.

    FIXED: the ratio is known in advance, for example because the noise is scaled to the local sensitivity. ADAPTIVE:
    the ratio is bounded and may depend on earlier releases, for example because the noise is scaled to the global
    sensitivity. Every bound for ADAPTIVE also holds for FIXED.
    """

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


class SensitivityKind(StrEnum):
    """Sensitivity to which the noise is scaled.

    LOCAL is the distance between the sums of D and D' at the current model parameters. It depends on the data, so such
    noise serves audits and gives no DP guarantee (Bernau et al. 2021, section 5.1). GLOBAL is the largest distance over
    all neighbours.
    """

    LOCAL = "local"
    GLOBAL = "global"


class NoiseDistribution(StrEnum):
    """Distribution of the noise on a release, by its name in reports."""

    GAUSSIAN = "Gaussian"
    LAPLACE = "Laplace"
    NONE = "none"


class VectorNorm(StrEnum):
    """Norm in which contributions are clipped and sensitivities are measured.

    L2 is that of Gaussian noise, and L1 that of noise with other independent coordinates.
    """

    L1 = "L1"
    L2 = "L2"

    @property
    def order(self) -> int:
        """Order p of the norm: 1 for the sum of absolute values, 2 for the Euclidean length."""
        match self:
            case VectorNorm.L1:
                return 1
            case VectorNorm.L2:
                return 2
            case _:
                assert_never(self)


class StrategyMatrixKind(StrEnum):
    """Kind of strategy matrix, which defines noise that is correlated over rounds (module `strategy_matrices`)."""

    TREE = "tree"
    BANDED = "banded"


class MultiplierReference(StrEnum):
    """Quantity that is multiplied by a noise multiplier to get the standard deviation of the noise.

    SENSITIVITY is the largest change of the sum between neighbours, which is twice the clipping norm for replace.
    CLIPPING_NORM is the convention of Opacus, TensorFlow Privacy and dp-accounting for every adjacency.
    """

    SENSITIVITY = "sensitivity"
    CLIPPING_NORM = "clipping-norm"

    def over_sensitivity(self, multiplier: float, adjacency: Adjacency) -> float:
        """Return a noise multiplier relative to the sensitivity, from one that is relative to this member's quantity.

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


class TrainingCount(StrEnum):
    """Distribution of a random number of trainings, from which the best one is chosen."""

    LOGARITHMIC = "logarithmic"  # truncated negative binomial with shape eta = 0
    GEOMETRIC = "geometric"  # truncated negative binomial with shape eta = 1
    POISSON = "Poisson"  # with no training at all, nothing is released
