"""What noise is scaled to, by name."""

from enum import StrEnum


class NoiseScaling(StrEnum):
    """What the noise is scaled to.

    LOCAL follows the difference that the two training sets make at the current weights; it depends on the data, so it
    is an audit device and no private release (Bernau et al. 2021, section 5.1). GLOBAL is the worst case.
    """

    LOCAL = "local"
    GLOBAL = "global"
