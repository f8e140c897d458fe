"""Text for reports: numbers, durations, and readings (comparisons of a number with its claim)."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from fl_audit.learning.metric_names import is_share
from fl_audit.plurals import plural
from fl_audit.rounding import NO_LIMIT, interval_text, is_unlimited, rounded
from fl_audit.statistics.claim_comparisons import Reading as Reading

MISSING = "not determined"
DASH = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"


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


def metric_text(metric: str, value: float | None) -> str:
    """Return a metric of a model as text: as a percentage if it is a share of records, else with three digits."""
    return percent(value) if is_share(metric) else number_text(value, 3)


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
    many, exponent = f"{chance:.1e}".split("e")
    digits = many.rstrip("0").rstrip(".")
    count, power = int(digits.replace(".", "")), len(digits.partition(".")[2]) - int(exponent)
    about = "" if math.isclose(chance, count / 10**power, rel_tol=1e-9) else "about "
    return f"{about}{count} in {10**power:,}"


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


def capital(text: str) -> str:
    """Return a text with its first letter in upper case; other letters are unchanged."""
    return text[:1].upper() + text[1:]


def uncapital(text: str) -> str:
    """Return a text with its first letter in lower case; other letters are unchanged."""
    return text[:1].lower() + text[1:]


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


def reading_text(
    reading: Reading, wide: Mapping[str, Any] | None = None, claim: float | None = None, is_share: bool = False
) -> str:
    """Return the result of a comparison with a claim as text, with the deciding interval if that is not printed anyway.

    `claim`: None without a claim.

    Examples
    --------
    >>> wide = {"low": 0.1, "high": 0.55, "confidence": 0.99999}
    >>> reading_text(Reading.NO_CONTRADICTION, wide, 0.2).replace(SPACE, " ")
    'no contradiction (0.1 to 0.55 at 99.999 %)'
    """
    if wide is None:
        return str(reading)
    low, high = wide["low"], wide["high"]
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
    is_share, claimed = entry["is_share"], entry["claimed"]
    low, high = (entry["low"], entry["high"]) if entry["confidence"] is not None else (None, None)
    has_interval = low is not None or high is not None
    shown = rounded(entry["value"], low, high, claimed, is_share)
    told = f"{shown.value} ({shown.interval})" if has_interval else shown.value
    if entry["reading"] == Reading.NO_LIMIT:
        told += f": {Reading.NO_LIMIT}"
    elif claimed is not None and entry["reading"] in set(Reading):
        said = reading_text(Reading(entry["reading"]), entry.get("wide"), claimed, is_share)
        told += f", claimed {'at least' if entry['is_least'] else 'at most'} {shown.claim}: {said}"
    return f"{told}: {note}" if (note := entry.get("note")) else told
