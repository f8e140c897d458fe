"""Write numbers and interval ends as text, rounded so that they stay on the same side of a claim and of 0."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

NO_LIMIT = "no limit"
"""Text for an end of an interval that is infinite or not known."""
_UNKNOWN = "not determined"
_SPACE = "\N{NO-BREAK SPACE}"
_MOST_DECIMALS = 340  # more than any 64-bit number has that is not told apart from another
_EQUAL = 1e-12  # numbers that differ by a smaller share of themselves are one number
_DIGITS, _DIGITS_OF_SHARE = 4, 3  # significant digits of a claim, and of a number without an interval


@dataclass(frozen=True)
class RoundedInterval:
    """A number, the two ends of its interval, and the claimed value, all as text."""

    value: str
    low: str
    high: str
    claim: str

    @property
    def interval(self) -> str:
        """The interval as text, such as "0.9 to 1.1"."""
        return f"{self.low} to {self.high}"


def rounded_up(number: float) -> int:
    """Return a number from 1, rounded up to a whole number with two significant digits.

    Examples
    --------
    >>> rounded_up(1605.0)
    1700
    """
    step = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(step * math.ceil(number / step))


def rounded(
    value: float | None, low: float | None, high: float | None, claim: float | None = None, is_share: bool = False
) -> RoundedInterval:
    """Return a number, its interval and its claimed value as text, rounded together.

    Numbers get the decimals that show two significant digits of the interval's width, or three if its first digit is a
    one. A number gets more decimals if rounding would change whether it is below, equal to or above the claim. The same
    holds for comparisons with 0 and, for shares, with 1.

    Examples
    --------
    >>> rounded(0.99990, 0.99950, 1.00030, 1.0)
    RoundedInterval(value='0.9999', low='0.9995', high='1.0003', claim='1')
    >>> rounded(0.06667, -0.2001, 0.3266, 0.2191).interval
    '-0.2 to 0.33'
    """
    numbers = [_snapped(number, claim) for number in (value, low, high)]
    scale = _Scale.of([*numbers, claim], is_share)
    exact_claim, (exact, low_end, high_end) = scale.exact(claim), map(scale.exact, numbers)
    decimals = _decimals_of_width(low_end, high_end, exact, scale.digits)
    for claimed in _written(exact_claim, None if exact_claim is None else _decimals_of(exact_claim, scale.digits)):
        told = [scale.rounded_text(number, decimals, exact_claim, claimed) for number in numbers]
        if all(text is not None for text in told):
            break
    texts = [text or _UNKNOWN for text in told]
    if is_unlimited(low):
        texts[1] = NO_LIMIT
    if is_unlimited(high):
        texts[2] = NO_LIMIT
    return RoundedInterval(texts[0], texts[1], texts[2], scale.text(claim, claimed))


def interval_text(low: float | None, high: float | None, claim: float | None = None, is_share: bool = False) -> str:
    """Return an interval as text, such as "0.9995 to 1.0003", rounded by the rules of `rounded`."""
    return rounded(None, low, high, claim, is_share).interval


def side_of(number: float, claim: float) -> int:
    """Return 1 if a number is above a claim, -1 if it is below, and 0 if they differ by rounding errors only."""
    if math.isclose(number, claim, rel_tol=_EQUAL, abs_tol=0.0):
        return 0
    return 1 if number > claim else -1


def _snapped(number: float | None, claim: float | None) -> float | None:
    """Return the claim in place of a number that equals it up to rounding errors."""
    if number is None or claim is None or side_of(number, claim) != 0:
        return number
    return claim


def is_unlimited(end: float | None) -> bool:
    """Return True if the end of an interval is None, NaN or infinite."""
    return end is None or not math.isfinite(end)


@dataclass(frozen=True)
class _Scale:
    """Unit in which numbers are written: 1, percent, or a power of ten if the largest is tiny or huge."""

    exponent: int
    unit: str
    digits: int  # significant digits of a claim, and of a number without an interval
    marks: tuple[Decimal, ...]  # 0, and 100 for percentages: every text is on the same side of them as its number

    @classmethod
    def of(cls, numbers: list[float | None], is_share: bool) -> "_Scale":
        """Return the unit in which all the numbers are written: percent for shares, otherwise 1 or a power of ten."""
        if is_share:
            return cls(-2, f"{_SPACE}%", _DIGITS_OF_SHARE, (Decimal(0), Decimal(100)))
        largest = max((abs(number) for number in numbers if number is not None and math.isfinite(number)), default=0.0)
        if largest == 0 or 1e-4 <= largest < 1e6:
            return cls(0, "", _DIGITS, (Decimal(0),))
        exponent = math.floor(math.log10(largest))
        return cls(exponent, f"e{exponent}", _DIGITS, (Decimal(0),))

    def exact(self, number: float | None) -> Decimal | None:
        """Return a number in this unit; None if it is None, NaN or infinite."""
        if number is None or not math.isfinite(number):
            return None
        return Decimal(repr(float(number))).scaleb(-self.exponent)

    def rounded_text(
        self, number: float | None, decimals: int, claim: Decimal | None, claimed: Decimal | None
    ) -> str | None:
        """Return a number as text, rounded so that no comparison turns around; None if no rounding achieves this.

        The text has as few decimals as possible, but at least `decimals`. The rounded number must be on the same side
        of each limit as the number itself. The limits are 0, 100 % for shares, and the claim. The number is compared
        with `claim`, and the rounded number with the rounded claim, `claimed`.
        """
        exact = self.exact(number)
        if exact is None:
            return self.text(number, None)
        for shown in _written(exact, decimals):
            assert shown is not None
            beside = [(mark, mark) for mark in self.marks]
            if claim is not None and claimed is not None:
                beside.append((claim, claimed))
            if all(_side(exact, truth) == _side(shown, text) for truth, text in beside):
                return self.text(number, shown)
        return None

    def text(self, number: float | None, shown: Decimal | None) -> str:
        """Return the text of a number with its unit, or "not determined" or "unbounded".

        `shown` is the number after rounding; None if it is unknown or infinite.
        """
        if shown is None:
            if number is None or math.isnan(number):
                return _UNKNOWN
            return "unbounded" if number > 0 else "minus unbounded"
        digits = f"{shown:,f}"
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        plain = digits.lstrip("-") == "0"
        if plain:
            digits = "0"
        return digits if plain and not self.unit.startswith(_SPACE) else f"{digits}{self.unit}"


def _side(number: Decimal, mark: Decimal) -> int:
    return (number > mark) - (number < mark)


def _written(exact: Decimal | None, decimals: int | None) -> Iterator[Decimal | None]:
    """Yield a number rounded to `decimals` decimals, then with ever more decimals, and at last unrounded.

    Only None is yielded if the number, or the number of decimals, is None.
    """
    if exact is None or decimals is None:
        yield None
        return
    own = -int(exact.as_tuple().exponent)
    for places in range(decimals, min(own, _MOST_DECIMALS)):
        yield round(exact, places)
    yield exact


def _decimals_of(number: Decimal, digits: int) -> int:
    """Return the number of decimals that shows `digits` significant digits of a number."""
    return max(0, digits - 1 - number.adjusted()) if number else 0


def _decimals_of_width(low: Decimal | None, high: Decimal | None, value: Decimal | None, digits: int) -> int:
    """Return the number of decimals at which the width of the interval from `low` to `high` has two significant digits.

    If the first digit of the width is 1, the width has three significant digits. If an end is missing or the ends are
    equal, the decimals show `digits` significant digits of the value and of each end.
    """
    if low is not None and high is not None and low < high:
        width = high - low
        return max(0, (2 if width.as_tuple().digits[0] == 1 else 1) - width.adjusted())
    return max((_decimals_of(one, digits) for one in (value, low, high) if one is not None), default=0)
