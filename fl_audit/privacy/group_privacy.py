"""Group privacy: derive the guarantee for a group of units from the guarantee for one unit."""

import math

from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.value_checks import require_number

_LARGEST = 700.0  # exp of more is no number


def group_epsilon(profile: PrivacyProfile, size: int, delta: float) -> float:
    """Return an epsilon that holds for a group of k units at delta; infinite if no finite one is known.

    For Gaussian noise without sampling, a group has the Gaussian-DP parameter k mu (Dong, Roth & Su 2022, theorem
    2.14). Otherwise, (epsilon, d)-DP for one unit implies (k epsilon, d (e^(k epsilon) - 1) / (e^epsilon - 1))-DP for k
    units (Vadhan 2017, lemma 2.2). The point (epsilon, d) of the profile with the smallest k epsilon is taken.

    Examples
    --------
    >>> from fl_audit.adjacency import Adjacency
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> profile = PrivacyProfile(gaussian_rounds(4.0, 1), Adjacency.ADD_REMOVE_RECORD)
    >>> round(group_epsilon(profile, 1, 1e-5), 3), round(group_epsilon(profile, 4, 1e-5), 3)
    (0.926, 4.377)
    """
    require_number("size of the group is", size, "whole numbers from 1")
    if size == 1:
        return profile.epsilon(delta)
    if profile.gaussian_mu is not None:
        return gdp_epsilon(delta, size * profile.gaussian_mu)

    def is_enough(epsilon: float) -> bool:
        delta_of_one = profile.delta(epsilon)
        # log of (e^(k epsilon) - 1) / (e^epsilon - 1)
        factor = math.log(math.expm1(size * epsilon)) - math.log(math.expm1(epsilon)) if epsilon > 0 else math.log(size)
        return delta_of_one == 0 or math.log(delta_of_one) + factor <= math.log(delta)

    low, high = 0.0, min(profile.epsilon(delta), _LARGEST / size)
    while not is_enough(high):
        if high >= _LARGEST / size:
            return math.inf
        low, high = high, min(1.25 * high + 0.01, _LARGEST / size)
    while high - low > 1e-9 * high:  # the lemma holds for every epsilon found
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return size * high
