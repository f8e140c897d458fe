"""The reading of a measured number relative to its claim, decided in one function by the number's interval."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from fl_audit.rounding import side_of
from fl_audit.statistics.significance_levels import READING_LEVEL


class Reading(StrEnum):
    """The reading of a measured number relative to its claim, which `read` decides."""

    KEPT = "kept"
    NO_CONTRADICTION = "no contradiction"
    BROKEN = "broken"
    TOO_FEW = "too few trials to tell"
    ALONE = "shows no breach by itself"  # it would be kept, but for another number that broke the guarantee


Ends = tuple[float, float]
"""The ends of an interval; a missing end is infinite."""


@dataclass(frozen=True)
class DecidingInterval:
    """The interval at the level of the readings, if it decided instead of the printed interval."""

    low: float
    high: float
    confidence: float  # the least probability with which it covers


@dataclass(frozen=True)
class ClaimComparison:
    """A reading of a number relative to its claim."""

    reading: Reading
    wide: DecidingInterval | None = None  # the interval that decided, where it is not the one that is printed


def read(
    ends: Ends,
    claim: float,
    *,
    is_least: bool = False,
    origin: float = 0.0,
    largest: float = math.inf,
    wide: Callable[[float], Ends] | None = None,
    level: float = READING_LEVEL,
    sides: int = 2,
    is_violated: bool = False,
) -> ClaimComparison:
    """Return the reading of a number relative to its claim; nothing but its interval decides.

    * *kept*: the whole interval is on the right side of the claim, which belongs to that side. Where the verdict is
      `violated`, no number acquits by itself, and such a one *shows no breach by itself*.
    * *broken*: the whole interval is on the wrong side. One interval in 20 at 95 % misses the truth, and a report has
      many. So where the printed interval lies on the wrong side, the wider one at `level` decides, and is printed too.
      A number that a test of the verdict decides about is read at the level of that test, so that both always agree.
      All others share a level of `FAMILY_LEVEL` again, each of them with `READING_LEVEL`.
    * *too few trials to tell*: the claim lies in the interval, and so does a number that breaks it twofold, so that
      not even that could be told from it. It comes before
    * *no contradiction*: the claim lies in the interval.

    Twofold is half of the claim where no less is claimed, as of noise; and twice the claim where no more is claimed, as
    of an advantage, a share or an epsilon. It is counted from where a number says nothing: 0, but 1/2 for an AUC and a
    balanced accuracy, of which twice 0.6 is 0.7. Where twice is more than the number can be, as of an advantage of 0.6,
    half of the claim stands in for it: an interval that holds both is as wide. A claim at the point that says nothing
    has neither half nor twice, and is never too little tried. Nor is a lower bound: with any number of trials its
    interval has no upper end, so that it can contradict an upper limit and never keep one. A number that was computed,
    whose interval has no width, is kept or broken.

    Parameters
    ----------
    ends
        Lower and upper end of the printed interval of the number.
    claim
        Value that is claimed for the number.
    is_least
        Whether the claim is a lower limit of the number, rather than an upper limit.
    origin
        Value at which the number carries no information, such as 0, or 1/2 for an AUC.
    largest
        Largest value that the number can have.
    wide
        Function that returns the interval at any confidence; None where no wider interval than the printed one is
        needed.
    level
        Largest probability with which a number that keeps its claim may be called broken.
    sides
        Number of sides on which the interval may miss the truth: 2, or 1 for a bound.
    is_violated
        Whether the verdict of the run is `violated`.

    Examples
    --------
    >>> str(read((0.9995, 1.0003), 1.0, is_least=True).reading)
    'no contradiction'
    >>> str(read((-0.975, 0.975), 0.2191).reading)
    'too few trials to tell'
    >>> str(read((0.01, 0.2), 0.2191).reading), str(read((0.3, 0.4), 0.2191).reading)
    ('kept', 'broken')
    """
    stands = _side_of_interval(ends, claim, is_least)
    if stands is Reading.KEPT:
        return ClaimComparison(Reading.ALONE if is_violated else Reading.KEPT)
    if stands is Reading.NO_CONTRADICTION:
        return ClaimComparison(_within(ends, claim, _twofold(claim, is_least, origin, largest)))
    if wide is None:
        return ClaimComparison(Reading.BROKEN)
    confidence = 1 - sides * level
    low, high = wide(confidence)
    decided = DecidingInterval(min(low, ends[0]), max(high, ends[1]), confidence)
    ends = decided.low, decided.high
    twofold = _twofold(claim, is_least, origin, largest)
    is_broken = _side_of_interval(ends, claim, is_least) is Reading.BROKEN
    return ClaimComparison(Reading.BROKEN if is_broken else _within(ends, claim, twofold), decided)


def _side_of_interval(ends: Ends, claim: float, is_least: bool) -> Reading:
    """Return kept for an interval on the right side of the claim, broken on the wrong side, else no contradiction."""
    right = 1 if is_least else -1
    sides = {side_of(end, claim) for end in ends}
    if sides <= {right, 0}:
        return Reading.KEPT
    return Reading.BROKEN if sides == {-right} else Reading.NO_CONTRADICTION


def _twofold(claim: float, is_least: bool, origin: float, largest: float) -> float:
    """Return a number that breaks a claim twofold, or half of the claim where none can."""
    half, twice = origin + (claim - origin) / 2, origin + 2 * (claim - origin)
    return half if is_least or twice > largest else twice


def _within(ends: Ends, claim: float, twofold: float) -> Reading:
    """Return the reading of an interval with the claim by whether it excludes a number that breaks it twofold."""
    (low, high), is_bound = ends, any(map(math.isinf, ends))
    if is_bound or twofold == claim:
        return Reading.NO_CONTRADICTION
    return Reading.TOO_FEW if low <= twofold <= high else Reading.NO_CONTRADICTION


def widened(value: float, ends: Ends, confidence: float) -> Callable[[float], Ends]:
    """Return a function that gives the interval at any confidence, as if its ends were normal quantiles.

    Parameters
    ----------
    value
        The number itself.
    ends
        Lower and upper end of the interval of the number.
    confidence
        Confidence of this interval, above 0 and below 1.
    """
    normal = NormalDist()

    def at(wanted: float) -> Ends:
        factor = normal.inv_cdf((1 + wanted) / 2) / normal.inv_cdf((1 + confidence) / 2)
        return value - factor * (value - ends[0]), value + factor * (ends[1] - value)

    return at
