"""Warnings about a guarantee that its numbers alone justify: a large delta, and a guarantee that excludes nothing."""

from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.formatting import is_certainty, number_text, one_in
from fl_audit.report.unit_words import unit_words

LARGE_DELTA = 0.5
"""Smallest delta times number of units for the warning that publishing random units would keep the guarantee."""


def delta_warning(guarantee: Guarantee, units: int) -> str | None:
    """Return a warning if delta is large for so many units; None if it is small enough.

    Parameters
    ----------
    guarantee
        The guarantee with its delta and adjacency.
    units
        Number of records, users or clients that the guarantee protects.
    """
    if guarantee.delta * units < LARGE_DELTA:
        return None
    large = f"Delta {number_text(guarantee.delta, 3)} is large for {units:,} {unit_words(guarantee.adjacency).many}"
    some = f"{number_text(guarantee.delta * units, 2)} of them on average"
    return f"{large}: to publish each with a chance of {one_in(guarantee.delta)}, {some}, would keep the guarantee"


def weakness_warning(guarantee: Guarantee) -> str | None:
    """Return a warning if the bound on beliefs excludes nothing; None if it excludes something."""
    if not is_certainty(guarantee.belief_bound):
        return None
    weak = f"This guarantee assures next to nothing: with epsilon {number_text(guarantee.epsilon, 3)}"
    sure = f"somebody may become sure {unit_words(guarantee.adjacency).whether}, even where the guarantee is kept"
    return f"{weak} {sure}; a smaller epsilon, or belief = 0.9, limits that"
