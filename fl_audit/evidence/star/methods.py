"""The ways to Epsilon* by name."""

from enum import StrEnum


class StarMethod(StrEnum):
    """How error rates are found.

    PARAMETRIC: normals fitted to scores (section 3.1). EMPIRICAL: the losses' own distribution functions, within a cut.
    MIXTURE: mixtures of normals fitted to scores (appendix 8.2).
    """

    PARAMETRIC = "parametric"
    EMPIRICAL = "empirical"
    MIXTURE = "mixture"
