"""Write numbers, ratios, percentages, durations, plurals and lists as text for messages and reports.

An interval is rounded together with its claim, so that every number stays on its side of the claim and of 0.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Integral, Real

MISSING = "not determined"
NO_LIMIT = "no limit"
"""Text for an end of an interval that is infinite or not known."""
DASH = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"
_MOST_DECIMALS = 340  # more than any 64-bit number has that is not told apart from another
_EQUAL = 1e-12  # numbers that differ by a smaller share of themselves are one number
_DIGITS, _DIGITS_OF_SHARE = 4, 3  # significant digits of a claim, and of a number without an interval


def plural(count: int, singular: str, plural_form: str | None = None) -> str:
    """Return a count with its noun, such as "1 trial" or "2,000 trials".

    `count`: The noun is singular if it is 1.
    """
    return f"{count:,} {singular if count == 1 else plural_form or singular + 's'}"


def phrase_list(phrases: Iterable[str], last: str = "and") -> str:
    """Return phrases as a list in a sentence, such as "a, b and c"."""
    *first, end = [*phrases] or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def name_list(names: Iterable[object], last: str = "and") -> str:
    """Return names as a list in a sentence; all are quoted if one of them has a space or a comma.

    Examples
    --------
    >>> name_list(["rdp", "pld", "gdp"])
    'rdp, pld and gdp'
    >>> name_list(["own", "own, rounded"], "or")
    "'own' or 'own, rounded'"
    """
    texts = [str(name) for name in names]
    is_clear = not any(mark in name for name in texts for mark in (" ", ","))
    return phrase_list(texts if is_clear else [f"'{name}'" for name in texts], last)


def capital(text: str) -> str:
    """Return a text with its first letter in upper case; other letters are unchanged."""
    return text[:1].upper() + text[1:]


def uncapital(text: str) -> str:
    """Return a text with its first letter in lower case; other letters are unchanged."""
    return text[:1].lower() + text[1:]


def number_text(value: object, digits: int = 4) -> str:
    """Return a number as text with `digits` significant digits, a bool as "yes" or "no", and a string unchanged."""
    match value:
        case None:
            return MISSING
        case bool():
            return "yes" if value else "no"
        case Integral():
            return f"{int(value):,}"
        case Real():
            number = float(value)
        case _:
            return str(value)
    if math.isnan(number):
        return MISSING
    if math.isinf(number):
        return "unbounded" if number > 0 else "minus unbounded"
    if number != 0 and not 1e-4 <= abs(number) < 1e6:
        mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{number:.{digits}g}" if abs(number) < 10 ** (digits - 1) else f"{number:,.1f}".removesuffix(".0")


def percent(share: float | None) -> str:
    """Return a share as a percentage in text; only the shares 0 and 1 are written as 0 % and 100 %.

    A share below 1 that is a certainty (see `is_certainty`) is written as "almost 100 %", without its nines.
    """
    if share is None or not math.isfinite(share):
        return number_text(share)
    if share < 1 and is_certainty(share):
        return f"almost 100{SPACE}%"
    tail = 100 * min(abs(share), abs(1 - share))
    decimals = 1 if tail >= 1 or tail == 0 else min(12, 1 - math.floor(math.log10(tail)))
    text = f"{100 * share:.{decimals}f}"
    about = "almost " if share not in (0, 1) and float(text) in (0, 100) else ""
    return f"{about}{text.rstrip('0').rstrip('.') if '.' in text else text}{SPACE}%"


def limit_text(share: float | None) -> str:
    """Return an upper limit of a share as a percentage, or "no limit" if it is a certainty and excludes nothing."""
    if share is not None and math.isfinite(share) and is_certainty(share):
        return NO_LIMIT
    return percent(share)


def is_certainty(belief: float) -> bool:
    """Return whether an upper bound on a belief is above 1 - 1e-9, i.e. excludes nothing."""
    return belief > 1 - 1e-9


def one_in(chance: float) -> str:
    """Return a probability up to 1 as text, such as "1 in 20" or "3 in 10,000"; 0 is "zero".

    Examples
    --------
    >>> one_in(0.001), one_in(0.05), one_in(0.0003), one_in(1 / 3333)
    ('1 in 1,000', '1 in 20', '3 in 10,000', 'about 3 in 10,000')
    """
    if chance <= 0:
        return "zero"
    inverse = round(1 / chance)
    if math.isclose(1 / chance, inverse, rel_tol=1e-9) and float(f"{inverse:.1e}") == inverse:
        return f"1 in {inverse:,}"
    mantissa, exponent = f"{chance:.1e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".")
    count = int(digits.replace(".", ""))
    power = len(digits.partition(".")[2]) - int(exponent)
    about = "" if math.isclose(chance, count / 10**power, rel_tol=1e-9) else "about "
    return f"{about}{count} in {10**power:,}"


def ratio_text(ratio: float) -> str:
    """Return a ratio as text, with enough digits to distinguish a ratio near 1 from 1.

    Examples
    --------
    >>> ratio_text(1.00036), ratio_text(0.5), ratio_text(3.14159)
    ('1.00036', '0.50', '3.1')
    """
    if ratio >= 2:
        return f"{ratio:.2g}" if ratio < 1e4 else f"{ratio:.2e}"
    gap = abs(ratio - 1)
    decimals = 4 if gap == 0 else min(8, max(2, 1 - math.floor(math.log10(gap))))
    text = f"{ratio:.{decimals}f}"
    return text[:-1] if decimals > 2 and text.endswith("0") else text


def duration(seconds: float) -> str:
    """Return an approximate duration as text, in whole minutes, or in whole hours for two hours and more.

    Examples
    --------
    >>> duration(20), duration(100), duration(40 * 60), duration(7200)
    ('less than 1 minute', 'about 2 minutes', 'about 40 minutes', 'about 2 hours')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return "less than 1 minute"
    return f"about {plural(minutes, 'minute') if minutes < 120 else plural(round(seconds / 3600), 'hour')}"


def day_text(moment: str) -> str:
    """Return the date of an ISO 8601 time, in words.

    Examples
    --------
    >>> day_text("2026-11-05T10:00:00+00:00").replace(SPACE, " ")
    '5 November 2026'
    """
    day = date.fromisoformat(moment[:10])
    return f"{day.day}{SPACE}{day:%B}{SPACE}{day.year}"


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
    exact_claim = scale.exact(claim)
    exact, low_end, high_end = map(scale.exact, numbers)
    decimals = _decimals_of_width(low_end, high_end, exact, scale.digits)
    for claimed in _written(exact_claim, None if exact_claim is None else _decimals_of(exact_claim, scale.digits)):
        texts_written = [scale.rounded_text(number, decimals, exact_claim, claimed) for number in numbers]
        if all(text is not None for text in texts_written):
            break
    texts = [text or MISSING for text in texts_written]
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
            return cls(-2, f"{SPACE}%", _DIGITS_OF_SHARE, (Decimal(0), Decimal(100)))
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
        for decimal in _written(exact, decimals):
            assert decimal is not None
            beside = [(mark, mark) for mark in self.marks]
            if claim is not None and claimed is not None:
                beside.append((claim, claimed))
            if all(_side(exact, truth) == _side(decimal, text) for truth, text in beside):
                return self.text(number, decimal)
        return None

    def text(self, number: float | None, decimal: Decimal | None) -> str:
        """Return the text of a number with its unit, or "not determined" or "unbounded".

        `decimal` is the number after rounding; None if it is unknown or infinite.
        """
        if decimal is None:
            if number is None or math.isnan(number):
                return MISSING
            return "unbounded" if number > 0 else "minus unbounded"
        digits = f"{decimal:,f}"
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        plain = digits.lstrip("-") == "0"
        if plain:
            digits = "0"
        return digits if plain and not self.unit.startswith(SPACE) else f"{digits}{self.unit}"


def _side(number: Decimal, mark: Decimal) -> int:
    return (number > mark) - (number < mark)


def _written(exact: Decimal | None, decimals: int | None) -> Iterator[Decimal | None]:
    """Yield a number rounded to `decimals` decimals, then with ever more decimals, and at last unrounded.

    Only None is yielded if the number, or the number of decimals, is None.
    """
    if exact is None or decimals is None:
        yield None
        return
    own_decimals = -int(exact.as_tuple().exponent)
    for index in range(decimals, min(own_decimals, _MOST_DECIMALS)):
        yield round(exact, index)
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
    return max((_decimals_of(end, digits) for end in (value, low, high) if end is not None), default=0)
