"""The one function that decides how a measured number stands to what is claimed of it: by its interval."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from fl_audit.evidence.belief.family import READING_LEVEL
from fl_audit.report.wording import Reading
from fl_audit.rounding import side_of

Ends = tuple[float, float]
"""The ends of an interval, each of them infinite where there is none."""


@dataclass(frozen=True)
class Wide:
    """The interval at the level of the readings, where it decided and not the one that is printed."""

    low: float
    high: float
    confidence: float  # the least probability with which it covers


@dataclass(frozen=True)
class Read:
    """How a number stands to its claim."""

    reading: Reading
    wide: Wide | None = None  # the interval that decided, where it is not the one that is printed


def read(
    ends: Ends,
    claim: float,
    *,
    is_least: bool = False,
    origin: float = 0.0,
    wide: Callable[[float], Ends] | None = None,
    level: float = READING_LEVEL,
    sides: int = 2,
    is_violated: bool = False,
) -> Read:
    """Return how a number stands to what is claimed of it; nothing but its interval decides.

    * *kept*: the whole interval is on the right side of the claim, which belongs to that side. Where the verdict is
      `violated`, no number acquits by itself, and such a one *shows no breach by itself*.
    * *broken*: the whole interval is on the wrong side. One interval in 20 at 95 % misses the truth, and a report has
      many. So where the printed interval lies on the wrong side, the wider one at `level` decides, and is printed too.
      A number that a test of the verdict decides about is read at the level of that test, so that both always agree.
      All others share a level of `FAMILY_LEVEL` again, each of them with `READING_LEVEL`.
    * *too few trials to tell*: the claim lies in the interval, and so does half of the claim, or twice the claim. It
      comes before
    * *no contradiction*: the claim lies in the interval.

    Half and twice are counted from where a number says nothing. That is 0 for a ratio of noise, an advantage, a share,
    an epsilon; and 1/2 for an AUC and a balanced accuracy, of which half of 0.7 is 0.6 and twice is 0.9. Twice may lie
    beyond what is possible: then half alone decides. A claim at that point itself has no half, and is never too little
    tried. Nor is a lower bound: its interval has no upper end, with any number of trials, so that it can contradict an
    upper limit and never keep one. A number that was computed, with an interval of no width, is kept or broken.

    Parameters
    ----------
    ends, claim
        The printed interval of the number, and what is claimed of it.
    is_least, origin
        Whether no less is claimed than that, rather than no more; and where the number says nothing.
    wide, level, sides
        The interval at any confidence, None where the printed one is that already; the chance with which a number that
        keeps the claim may be called broken; and on how many sides the interval may miss, 1 for a bound.
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
        return Read(Reading.ALONE if is_violated else Reading.KEPT)
    if stands is Reading.NO_CONTRADICTION:
        return Read(_within(ends, claim, origin))
    if wide is None:
        return Read(Reading.BROKEN)
    confidence = 1 - sides * level
    low, high = wide(confidence)
    decided = Wide(min(low, ends[0]), max(high, ends[1]), confidence)
    ends = decided.low, decided.high
    is_broken = _side_of_interval(ends, claim, is_least) is Reading.BROKEN
    return Read(Reading.BROKEN if is_broken else _within(ends, claim, origin), decided)


def _side_of_interval(ends: Ends, claim: float, is_least: bool) -> Reading:
    """Return kept for an interval on the right side, broken for one on the wrong side, else no contradiction."""
    right = 1 if is_least else -1
    sides = {side_of(end, claim) for end in ends}
    if sides <= {right, 0}:
        return Reading.KEPT
    return Reading.BROKEN if sides == {-right} else Reading.NO_CONTRADICTION


def _within(ends: Ends, claim: float, origin: float) -> Reading:
    """Return whether an interval that holds the claim tells it from half and from twice of it."""
    (low, high), step = ends, claim - origin
    if math.isinf(low) or math.isinf(high) or step == 0:
        return Reading.NO_CONTRADICTION
    half, twice = sorted((origin + step / 2, origin + 2 * step))
    return Reading.TOO_FEW if low <= half or twice <= high else Reading.NO_CONTRADICTION


def widened(value: float, ends: Ends, confidence: float) -> Callable[[float], Ends]:
    """Return an interval at any confidence from that at one, as if its ends were quantiles of a normal law.

    Parameters
    ----------
    value, ends, confidence
        A number with its interval, whose confidence is above 0 and below 1.
    """
    normal = NormalDist()

    def at(wanted: float) -> Ends:
        factor = normal.inv_cdf((1 + wanted) / 2) / normal.inv_cdf((1 + confidence) / 2)
        return value - factor * (value - ends[0]), value + factor * (ends[1] - value)

    return at
