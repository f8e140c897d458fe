"""Search for numbers: the root of a function, or the largest or smallest number with a property."""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable

import scipy

from fl_audit.errors import require

_LARGEST = 1e12


def largest_kept(is_kept: Callable[[float], bool], start: float) -> float:
    """Return the largest positive number for which a condition is true, with relative tolerance 1e-10.

    Raises `InputError` if the number would be below 1e-12.

    `is_kept`: It must be true for all smaller numbers.
    """
    # `low` and `high` are inverses of numbers: the smallest of them that is kept is looked for.
    low = 1 / start
    high = 1 / start
    factor = 1 + 1e-6
    if is_kept(1 / low):
        while is_kept(1 / (low := low / factor)):
            high = low
            factor = min(factor**4, 4.0)
    else:
        while not is_kept(1 / (high := high * factor)):
            low = high
            factor = min(factor**4, 4.0)
            require(high <= _LARGEST, f"no noise multiplier up to {_LARGEST:g} keeps the guarantee")
    while high > low * (1 + 1e-10):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_kept(1 / middle) else (middle, high)
    return 1 / high


def smallest_root(gap: Callable[[float], float], start: float, relative: float, lowest: float) -> float:
    """Return the smallest number, at least `lowest`, at which a decreasing function is at most 0.

    False position in logarithms (Illinois) needs few evaluations of slow functions. The search ends at a number at
    which the computed value of the function is at most 0, so rounding does no harm. Raises `InputError` if there is no
    such number up to 1e12.

    `lowest`: If it is 0, the function must be positive somewhere, or the search does not end.
    """
    low = high = start
    at_low = at_high = gap(start)
    factor = 1 + 64 * relative
    while at_high > 0:
        low = high
        at_low = at_high
        high *= factor
        at_high = gap(high)
        factor = min(factor**3, 4.0)
        require(high <= _LARGEST, f"no noise multiplier up to {_LARGEST:g} keeps the guarantee")
    while at_low <= 0:
        if low == lowest:
            return lowest
        high = low
        at_high = at_low
        low = max(low / factor, lowest)
        at_low = gap(low)
        factor = min(factor**3, 4.0)
    weight_low = at_low
    weight_high = at_high
    while high > low * (1 + relative):
        share = weight_low / (weight_low - weight_high)
        margin = relative / (4 * math.log(high / low))
        share = min(max(share, margin), 1 - margin) if math.isfinite(share) and margin < 0.5 else 0.5
        middle = low * (high / low) ** share
        at_middle = gap(middle)
        if at_middle <= 0:
            weight_low = weight_low / 2 if at_high <= 0 else weight_low
            high = middle
            at_high = at_middle
            weight_high = at_middle
        else:
            weight_high = weight_high / 2
            low = middle
            at_low = at_middle
            weight_low = at_middle
    return high


def bracketed_root(function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float) -> float:
    """Return a root of a continuous function between two points at which it has opposite signs.

    The method of Chandrupatla (1997) is as reliable as bisection and about as fast as `scipy.optimize.brentq`, whose
    import takes longer than most searches.
    """
    newest = low
    other_point = high
    at_newest = function(low)
    at_other = function(high)
    share = 0.5
    while True:
        point = newest + share * (other_point - newest)
        value = function(point)
        if (value > 0) == (at_newest > 0):
            before = newest
            at_before = at_newest
        else:
            before = other_point
            at_before = at_other
            other_point = newest
            at_other = at_newest
        newest = point
        at_newest = value
        best, at_best = min((newest, at_newest), (other_point, at_other), key=lambda pair: abs(pair[1]))
        near = (xtol + rtol * abs(best)) / abs(other_point - newest) if other_point != newest else 1.0
        if at_best == 0 or near > 0.5:
            return best
        along = (newest - other_point) / (before - other_point)
        up = (at_newest - at_other) / (at_before - at_other)
        share = 0.5
        if up * up < along and (1 - up) ** 2 < 1 - along:
            back = before - newest
            ahead = other_point - newest
            share = at_newest / (at_other - at_newest) * at_before / (at_other - at_before)
            share += back / ahead * at_newest / (at_before - at_newest) * at_other / (at_before - at_other)
        share = min(1 - near, max(near, share))


def falling_root(
    gap: Callable[[float], float],
    high: float = 1.0,
    largest: float = math.inf,
    xtol: float = 2e-12,
    rtol: float = 4 * sys.float_info.epsilon,
) -> float:
    """Return the nonnegative root of a decreasing function by Brent's method; 0 if the function is at most 0 at 0.

    `high`: It is doubled until the function is at most 0 there.
    """
    if gap(0.0) <= 0:
        return 0.0
    while high < largest and gap(high) > 0:
        high *= 2
    return float(scipy.optimize.brentq(gap, 0.0, high, xtol=xtol, rtol=rtol))


def smallest_number(holds: Callable[[int], bool], largest: int) -> int | None:
    """Return the smallest positive integer for which a condition holds; None if the search finds none.

    `largest`: It tries powers of two in ascending order. Once the condition holds for a power, the search continues
    below this power by bisection.
    """
    high = 1
    while not holds(high):
        high *= 2
        if high > largest:
            return None
    low = high // 2 + 1
    return low + bisect_left(range(low, high), True, key=holds)


def last_true(holds: Callable[[float], bool], low: float, high: float, bisections: int = 40) -> float:
    """Return the largest number in an interval at which a condition holds, by bisection.

    `low` is returned if the condition does not hold there.
    """
    if not holds(low):
        return low
    for _ in range(bisections):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
