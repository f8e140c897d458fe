"""The methods of Epsilon* by name, and the cut of each."""

from collections.abc import Iterable
from enum import StrEnum

PARAMETRIC_CUT = 1e-6
"""The cut of fitted distributions. The published text mentions a cut, but its number is lost (section 3.1)."""
EMPIRICAL_CUT = 0.001
"""The stability cut of appendix 8.1 for the empirical form."""


class StarMethod(StrEnum):
    """The method by which error rates are found.

    PARAMETRIC: normals fitted to scores (section 3.1). EMPIRICAL: the losses' own distribution functions, within a cut.
    MIXTURE: mixtures of normals fitted to scores (appendix 8.2).
    """

    PARAMETRIC = "parametric"
    EMPIRICAL = "empirical"
    MIXTURE = "mixture"


DEFAULT_CUTS = {
    StarMethod.PARAMETRIC: PARAMETRIC_CUT,
    StarMethod.EMPIRICAL: EMPIRICAL_CUT,
    StarMethod.MIXTURE: PARAMETRIC_CUT,
}
"""Default cuts: error rates below the cut, and above 1 minus the cut, are left out of Epsilon*."""


def cut_text(cut: float) -> str:
    """Return in words the error rates that count with a cut, from 0, which excludes none, to below 0.5."""
    return f"error rates from {cut:g} to 1 - {cut:g}" if cut else "all error rates"


def cuts_text(cuts: Iterable[float | None]) -> str:
    """Return the cuts of error rates of several numbers in words; None, for a number without Epsilon*, is left out."""
    known = sorted({cut for cut in cuts if cut is not None})
    return cut_text(known[0]) if len(known) == 1 else f"cuts {', '.join(f'{cut:g}' for cut in known)}"
