"""What a promise leaves to a membership adversary: bounds on its advantage, loose ones and the tight one.

A membership adversary is asked about one unit (a record or a client) that was drawn from D or from the population. Both
answers belong to data sets of the same size, so what counts is D against D with that unit replaced. A promise for units
that are replaced is used as it is; one for units that come and go is converted to a replacement, which is one of each.

The adversary is told the average training loss, which is no part of the release. That threshold moves by one record's
share of a mean; the bounds leave this out. Numbers out of their range raise `InputError`.
"""

import math
from dataclasses import dataclass
from typing import assert_never

from scipy.special import expit

from fl_audit.adjacency import Relation
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.scores import gaussian_advantage

_LARGEST_EXPONENT = 709.0  # above it the exponential is no float64


@dataclass(frozen=True)
class MembershipBounds:
    """Upper bounds on the advantage of a membership adversary, from the loosest to the tightest."""

    yeom: float  # e^epsilon - 1, for a promise with delta = 0; above 1 it says nothing, and it may be infinite
    tradeoff: float  # (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), up to 1
    exact: float  # the total variation delta(0): what the best adversary achieves against the worst pair of neighbours


def yeom_bound(epsilon: float) -> float:
    """Return e^epsilon - 1, the bound on the membership advantage under epsilon-DP (Yeom et al. 2018, theorem 1).

    It needs delta = 0 and a promise for records that are replaced; under (epsilon, delta)-DP the advantage may pass it
    by up to delta. Above 1 (epsilon above ln 2) it says nothing. Bernau et al. 2021 draw it in figures 7d, 8d and 9d.
    Epsilon is at least 0 and finite; where the exponential overflows the bound is infinite.
    """
    require_epsilon(epsilon)
    return math.expm1(epsilon) if epsilon < _LARGEST_EXPONENT else math.inf


def _tradeoff_advantage_bound(epsilon: float, delta: float) -> float:
    """Return (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), the best advantage that (epsilon, delta)-DP alone allows.

    The largest TPR - FPR in the region of error rates of Kairouz, Oh & Viswanath 2015, theorem 2.1; for membership
    Humphries et al. 2023. It holds for every adversary that tells two neighbours apart, the insider included.
    """
    return 1 - 2 * (1 - delta) * float(expit(-epsilon))


def membership_bounds(promise: Guarantee) -> MembershipBounds:
    """Return what a promise leaves to an adversary who is asked about members and others of the population.

    All three hold on average over data sets drawn from the population, and only where every unit has the promise: noise
    scaled to the local sensitivity of one pair promises nothing to other units.

    Parameters
    ----------
    promise
        What is promised over all rounds. Where its units come and go, a replacement has (2 epsilon,
        (1 + e^epsilon) delta)-DP and Gaussian parameter 2 mu by group privacy (Dong, Roth & Su 2022), and at most twice
        the total variation.
    """
    match promise.adjacency.relation:
        case Relation.REPLACE:
            epsilon, delta, exact = promise.epsilon, promise.delta, promise.advantage_bound_exact
        case Relation.ADD_REMOVE:
            epsilon = 2 * promise.epsilon
            delta = promise.delta * (2 + yeom_bound(promise.epsilon))
            gaussian = gaussian_advantage(2 * promise.mu) if math.isfinite(promise.mu) else 1.0
            exact = min(gaussian, 2 * promise.advantage_bound_exact)
        case _:
            assert_never(promise.adjacency.relation)
    tradeoff = _tradeoff_advantage_bound(epsilon, delta) if delta < 1 else 1.0
    return MembershipBounds(yeom_bound(epsilon), tradeoff, exact)
