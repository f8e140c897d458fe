"""Warnings about a guarantee that its numbers alone justify: a large delta, and a guarantee that excludes nothing."""

import math

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.gaussian import gdp_delta, gdp_mu
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.unit_words import unit_words
from fl_audit.words import is_certainty, number_text, percent

WEAK_ODDS, WEAK_ADVANTAGE = 99 * (1 + 1e-9), 0.9  # see `is_weak`
_LEAST_DELTA = 1e-12  # no Gaussian noise keeps delta 0
LARGE_DELTA = 0.5
"""Smallest delta times number of units for the warning that publishing random units would keep the guarantee."""


def delta_warning(guarantee: Guarantee, units: int) -> str | None:
    """Return a warning if delta is large for so many units; None if it is small enough."""
    if guarantee.delta * units < LARGE_DELTA:
        return None
    large = f"Delta {number_text(guarantee.delta, 3)} is large for {units:,} {unit_words(guarantee.adjacency).many}"
    expected = f"{number_text(guarantee.delta * units, 2)} of them on average"
    return f"{large}: publishing {expected}, drawn at random, would keep the guarantee"


def is_weak(belief_bound: float, advantage_bound: float, prior: float = 0.5) -> bool:
    """Return whether bounds exclude nothing that a person could object to.

    A bound on beliefs of 0.99 at even odds lets the odds of membership grow 99 times, which pure differential privacy
    does at epsilon log(99) = 4.6. At any other prior the same growth of the odds counts, so that a sure guess
    beforehand does not make a guarantee weak. An advantage a = TPR - FPR lets the best attacker be right in (1 + a) / 2
    of even guesses: above 0.9, in more than 19 of 20.

    Examples
    --------
    >>> is_weak(0.99, 0.9), is_weak(0.991, 0.1), is_weak(0.9, 0.91), is_weak(0.991, 0.1, prior=0.9)
    (False, True, True, False)
    """
    odds = math.inf if belief_bound >= 1 else belief_bound / (1 - belief_bound) * (1 - prior) / prior
    return odds > WEAK_ODDS or advantage_bound > WEAK_ADVANTAGE


def is_weak_guarantee(guarantee: Guarantee) -> bool:
    """Return whether the bounds of a guarantee exclude nothing that a person could object to (see `is_weak`)."""
    return is_weak(guarantee.belief_bound, guarantee.advantage_bound_exact, guarantee.prior)


def weakness_warning(guarantee: Guarantee) -> str | None:
    """Return a warning if a guarantee excludes nothing that a person could object to; otherwise None."""
    if not is_weak_guarantee(guarantee):
        return None
    belief_bound = guarantee.belief_bound
    advantage = guarantee.advantage_bound_exact
    weak = _weakness("guarantee", guarantee.epsilon, belief_bound, advantage, guarantee.adjacency)
    return f"{weak}; a smaller epsilon limits that"


def weak_claim_warning(epsilon: float, delta: float, adjacency: Adjacency) -> str | None:
    """Return a warning if a claim of other people's code excludes nothing that a person could object to, else None.

    Bounds are those of Gaussian noise that just keeps the claim. A delta below 1e-12 counts as 1e-12.
    """
    belief = 1 / (1 + math.exp(-epsilon))
    advantage = 1.0 if math.isinf(epsilon) else gdp_delta(0.0, gdp_mu(epsilon, max(delta, _LEAST_DELTA)))
    if not is_weak(belief, advantage):
        return None
    return f"{_weakness('claim', epsilon, belief, advantage, adjacency)}; a smaller epsilon limits that"


def _weakness(subject: str, epsilon: float, belief_bound: float, advantage_bound: float, adjacency: Adjacency) -> str:
    surer = f"{percent(belief_bound)} sure" if not is_certainty(belief_bound) else "sure"
    right = percent((1 + advantage_bound) / 2)
    return (
        f"This {subject} assures next to nothing: with epsilon {number_text(epsilon, 3)} somebody may become {surer} "
        f"{unit_words(adjacency).whether}, or guess right in {right} of cases at even odds, even "
        f"where the {subject} is kept"
    )
