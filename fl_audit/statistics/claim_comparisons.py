"""Decide from a measured number's confidence interval whether its claim is kept, broken or open, and at which level."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

from fl_audit.words import interval_text, is_unlimited, percent, rounded, side_of

FAMILY_LEVEL = 0.001
"""Largest probability with which a federation that keeps its guarantee is called violated."""

READING_LEVEL = FAMILY_LEVEL / 200
"""Largest probability of calling a number that keeps its claim broken, if no test of the family decides about it.

Among 200 such numbers of a run, one is therefore called broken as rarely as an honest run is called violated.
"""


class Reading(StrEnum):
    """Result of comparing a measured number with its claim, as the function `compare_with_claim` decides it."""

    KEPT = "kept"
    NO_CONTRADICTION = "no contradiction"
    BROKEN = "broken"
    TOO_FEW = "too few trials to tell"
    ALONE = "shows no breach by itself"  # as `KEPT`, in a run in which another number broke the guarantee
    NO_LIMIT = "the claim excludes nothing"  # the claimed upper limit is as large as the number can be


_NEGLIGIBLE = 1e-9  # share of the range below the largest number within which a claim limits nothing
Ends = tuple[float, float]
"""The ends of an interval; a missing end is infinite."""


@dataclass(frozen=True)
class DecidingInterval:
    """A wider confidence interval that decided whether a claim is broken, instead of the printed interval."""

    low: float
    high: float
    confidence: float  # smallest probability with which the interval covers the true number


@dataclass(frozen=True)
class ClaimComparison:
    """Result of comparing a number with its claim, with the interval that decided it."""

    reading: Reading
    wide: DecidingInterval | None = None  # the interval that decided, if it is not the printed one


def compare_with_claim(
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
    """Compare a measured number with its claim, and return whether the claim is kept, broken or open.

    The number's confidence interval alone decides:

    * *kept*: the whole interval is on the right side of the claim; the claim itself counts as right. In a run whose
      verdict is `violated`, the result is *shows no breach by itself* instead.
    * *broken*: the whole interval is on the wrong side, and so is the wider interval at `level`, which is then printed
      as well. If the wider interval contains the claim, it leads to one of the next two results. The wider interval is
      needed because a report has many intervals: at 95 %, one in 20 misses the truth.
    * *too few trials to tell*: the interval contains the claim and also a value that breaks it twofold.
    * *no contradiction*: the interval contains the claim, but no value that breaks it twofold.
    * *the claim excludes nothing*: an upper limit reaches `largest`, but for less than a billionth. No number can break
      such a limit, so the interval does not decide.

    A lower limit, such as for noise, is broken twofold by half of the limit. An upper limit, such as for an advantage
    or an epsilon, is broken twofold by twice the limit. Half and twice refer to the distance from `origin`: with the
    origin 1/2, as for an AUC, twice 0.6 is 0.7. If twice the claim exceeds `largest`, half of the claim is used.

    Two kinds of numbers never give *too few trials to tell*: those whose claim equals `origin`, and lower bounds, whose
    interval has no upper end. A lower bound can break an upper limit, but never keep it.

    `wide`: If it is None, the printed interval decides.

    `level`: If the verdict has a test of this number, the test's level is passed.

    Examples
    --------
    >>> str(compare_with_claim((0.9995, 1.0003), 1.0, is_least=True).reading)
    'no contradiction'
    >>> str(compare_with_claim((-0.975, 0.975), 0.2191).reading)
    'too few trials to tell'
    >>> str(compare_with_claim((0.01, 0.2), 0.2191).reading), str(compare_with_claim((0.3, 0.4), 0.2191).reading)
    ('kept', 'broken')
    >>> str(compare_with_claim((-1.0, 1.0), 1.0, largest=1.0).reading)
    'the claim excludes nothing'
    """
    if not is_least and _reaches(claim, largest, origin):
        return ClaimComparison(Reading.NO_LIMIT)
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


def _reaches(claim: float, largest: float, origin: float) -> bool:
    """Return whether a claimed upper limit is as large as its number can be, so that nothing exceeds it."""
    if not math.isfinite(largest):
        return claim == math.inf
    return claim >= largest - _NEGLIGIBLE * (largest - origin)


def _side_of_interval(ends: Ends, claim: float, is_least: bool) -> Reading:
    """Return `KEPT` if the whole interval agrees with a claim, `BROKEN` if the whole interval contradicts it.

    In all other cases, return `NO_CONTRADICTION`. `is_least` says whether the claim is a lower limit.
    """
    right = 1 if is_least else -1
    sides = {side_of(end, claim) for end in ends}
    if sides <= {right, 0}:
        return Reading.KEPT
    return Reading.BROKEN if sides == {-right} else Reading.NO_CONTRADICTION


def _twofold(claim: float, is_least: bool, origin: float, largest: float) -> float:
    """Return the value that breaks a claimed limit twofold: half of a lower limit, or twice an upper limit.

    Both are counted as distances from `origin`. If twice an upper limit exceeds `largest`, half of the limit is
    returned.
    """
    half = origin + (claim - origin) / 2
    twice = origin + 2 * (claim - origin)
    return half if is_least or twice > largest else twice


def _within(ends: Ends, claim: float, twofold: float) -> Reading:
    """Return `TOO_FEW` if an interval that contains the claim also contains `twofold`, else `NO_CONTRADICTION`.

    `twofold` is the value that breaks the claim twofold, such as twice the claimed advantage.
    """
    low, high = ends
    is_bound = any(map(math.isinf, ends))
    if is_bound or twofold == claim:
        return Reading.NO_CONTRADICTION
    return Reading.TOO_FEW if low <= twofold <= high else Reading.NO_CONTRADICTION


def interval_by_confidence(value: float, ends: Ends, confidence: float) -> Callable[[float], Ends]:
    """Return a function that takes a confidence and returns the interval of a number at this confidence.

    The distance from the number to each end is scaled in proportion to the two-sided normal quantile of the confidence.
    """
    normal = NormalDist()

    def at(probability: float) -> Ends:
        factor = normal.inv_cdf((1 + probability) / 2) / normal.inv_cdf((1 + confidence) / 2)
        return value - factor * (value - ends[0]), value + factor * (ends[1] - value)

    return at


def reading_text(
    reading: Reading, wide: Mapping[str, Any] | None = None, claim: float | None = None, is_share: bool = False
) -> str:
    """Return the result of a comparison with a claim as text, with the deciding interval if that is not printed anyway.

    `claim`: None without a claim.

    Examples
    --------
    >>> from fl_audit.words import SPACE
    >>> wide = {"low": 0.1, "high": 0.55, "confidence": 0.99999}
    >>> reading_text(Reading.NO_CONTRADICTION, wide, 0.2).replace(SPACE, " ")
    'no contradiction (0.1 to 0.55 at 99.999 %)'
    """
    if wide is None:
        return str(reading)
    low = wide["low"]
    high = wide["high"]
    if is_unlimited(high):
        ends = f"at least {rounded(low, None, None, claim, is_share).value}"
    else:
        ends = interval_text(low, high, claim, is_share)
    return f"{reading} ({ends} at {percent(wide['confidence'])})"


def finding_text(entry: Mapping[str, Any]) -> str:
    """Return an entry of the list `findings` in `summary.json` as text: number, interval, claim, and how they compare.

    `entry`: If its `reading` is no value of `Reading`, claim and comparison are left out.

    Examples
    --------
    >>> entry = {"name": "Advantage", "value": 0.29, "low": 0.15, "high": 0.42, "confidence": 0.95, "claimed": 0.206}
    >>> finding_text(entry | {"is_share": False, "is_least": False, "reading": "no contradiction"})
    '0.29 (0.15 to 0.42), claimed at most 0.206: no contradiction'
    >>> finding_text(entry | {"is_share": False, "is_least": False, "reading": "the claim excludes nothing"})
    '0.29 (0.15 to 0.42): the claim excludes nothing'
    """
    is_share = entry["is_share"]
    claimed = entry["claimed"]
    low, high = (entry["low"], entry["high"]) if entry["confidence"] is not None else (None, None)
    has_interval = low is not None or high is not None
    interval = rounded(entry["value"], low, high, claimed, is_share)
    finding_words = f"{interval.value} ({interval.interval})" if has_interval else interval.value
    if entry["reading"] == Reading.NO_LIMIT:
        finding_words += f": {Reading.NO_LIMIT}"
    elif claimed is not None and entry["reading"] in set(Reading):
        reading_words = reading_text(Reading(entry["reading"]), entry.get("wide"), claimed, is_share)
        finding_words += f", claimed {'at least' if entry['is_least'] else 'at most'} {interval.claim}: {reading_words}"
    return f"{finding_words}: {note}" if (note := entry.get("note")) else finding_words
