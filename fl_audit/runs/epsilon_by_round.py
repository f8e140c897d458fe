"""Epsilon after every round of a training, and the rounds that fit into a budget of epsilon."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from fl_audit.errors import require
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.accounting import Accountant

EPSILON = "epsilon"
"""Column of the table of releases: epsilon of the training up to a release; NaN where it was not computed."""
_MOST_CURVES = 50
_MOST_CURVES_OF_AN_AUDIT = 5
"""Numbers of releases whose epsilon is computed from loss distributions, each of which takes up to a second."""


def with_epsilon(plan: RunPlan, releases: pd.DataFrame) -> pd.DataFrame:
    """Return the table of releases with the epsilon of the training up to each release; unchanged without a guarantee.

    Loss distributions (accountant `pld`) take time, and are computed for at most 50 releases, or 5 in an audit.
    """
    if plan.guarantee is None:
        return releases
    spent = {number: plan.epsilon_after(number) for number in accounted_releases(plan)}
    return releases.assign(**{EPSILON: releases["round"].map(spent).astype(np.float64)})


def accounted_releases(plan: RunPlan) -> tuple[int, ...]:
    """Return the numbers of the evaluated releases whose epsilon is computed, ascending; the last is always one.

    They are none without a guarantee.
    """
    releases = plan.evaluated_releases
    if plan.guarantee is None:
        return ()
    if plan.guarantee.accountant is not Accountant.PLD:
        return releases
    most_curves = _MOST_CURVES if plan.is_ordinary_training else _MOST_CURVES_OF_AN_AUDIT
    positions = np.linspace(0, len(releases) - 1, min(most_curves, len(releases))).round().astype(int)
    return tuple(releases[position] for position in np.unique(positions))


def rounds_within(budget: float, rounds: int, epsilon_of: Callable[[int], float]) -> int:
    """Return the largest number of rounds, at most `rounds`, whose epsilon is at most a budget.

    `epsilon_of` returns the epsilon of a number of rounds, which does not fall with this number. Raises `InputError` if
    the first round alone exceeds the budget.

    Examples
    --------
    >>> rounds_within(2.5, 10, lambda rounds: 1.0 * rounds)
    2
    """
    first = epsilon_of(1)
    refused = f"stop-at-epsilon is {budget:g}, and the first round alone spends epsilon {first:.4g}"
    require(first <= budget, f"{refused}: accepted is more than that, or more noise")
    affordable = 1
    exceeded = rounds + 1
    while exceeded - affordable > 1:
        tried = (affordable + exceeded) // 2
        if epsilon_of(tried) <= budget:
            affordable = tried
        else:
            exceeded = tried
    return affordable
