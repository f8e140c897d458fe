"""Names of the methods that estimate Epsilon* (privacy risk of a model), with the default stability cut of each."""

from collections.abc import Iterable
from enum import StrEnum

PARAMETRIC_CUT = 1e-6
"""Default cut for fitted distributions. The published text has a cut, but its value is illegible (section 3.1)."""
EMPIRICAL_CUT = 0.001
"""Default stability cut for the empirical Epsilon*, from appendix 8.1."""


class StarMethod(StrEnum):
    """The method by which error rates are estimated for Epsilon* (Negoescu et al. 2023).

    PARAMETRIC fits a normal to the scores of each set (section 3.1). EMPIRICAL uses the empirical distribution
    functions of the losses (appendix 8.1). MIXTURE fits a mixture of normals to the scores of each set (appendix 8.2).
    """

    PARAMETRIC = "parametric"
    EMPIRICAL = "empirical"
    MIXTURE = "mixture"


class EpsilonStarLocation(StrEnum):
    """Place where the losses for Epsilon* are collected.

    POOLED: one server collects all of them. FEDERATED: each client evaluates the losses of its own records.
    """

    POOLED = "pooled"
    FEDERATED = "federated"


DEFAULT_CUTS = {
    StarMethod.PARAMETRIC: PARAMETRIC_CUT,
    StarMethod.EMPIRICAL: EMPIRICAL_CUT,
    StarMethod.MIXTURE: PARAMETRIC_CUT,
}
"""Default stability cut of each method: Epsilon* ignores error rates below the cut and above 1 minus the cut."""


def cut_text(cut: float) -> str:
    """Return the range of error rates that a stability cut admits, such as "error rates from 0.01 to 1 - 0.01".

    The text is "all error rates" for a cut of 0.
    """
    return f"error rates from {cut:g} to 1 - {cut:g}" if cut else "all error rates"


def cuts_text(cuts: Iterable[float | None]) -> str:
    """Return a text on the stability cuts of several Epsilon* values; None is ignored.

    Different cuts give a list, such as "cuts 0, 0.01". If all are equal, it is the text of `cut_text`.
    """
    used_cuts = sorted({cut for cut in cuts if cut is not None})
    return cut_text(used_cuts[0]) if len(used_cuts) == 1 else f"cuts {', '.join(f'{cut:g}' for cut in used_cuts)}"
