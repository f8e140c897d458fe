"""What promises are computed by, and noise is scaled to, by name: modules that only name them need nothing else."""

from enum import StrEnum


class Accountant(StrEnum):
    """How a promise is computed from the noise.

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
    """Who chooses the sensitivity that a unit has in a round.

    FIXED: every round has the same signal-to-noise ratio whatever was released before, as under noise that is scaled
    to the local sensitivity. ADAPTIVE: it may follow from earlier releases and is only bounded, as under noise that is
    scaled to the global sensitivity. What holds for ADAPTIVE holds for FIXED too.
    """

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


class NoiseScaling(StrEnum):
    """What the noise is scaled to.

    LOCAL follows the difference that the two training sets make at the current weights; it depends on the data, so it
    is an audit device and no private release (Bernau et al. 2021, section 5.1). GLOBAL is the worst case.
    """

    LOCAL = "local"
    GLOBAL = "global"
