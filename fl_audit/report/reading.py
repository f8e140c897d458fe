"""How a measured number stands to what was promised: the one place that says it, for every page and every terminal."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from fl_audit.report.wording import number_text, percent


class Reading(StrEnum):
    """How a measured number stands to what was promised."""

    WITHIN = "as promised"
    BY_CHANCE = "not as promised, within chance"
    BEYOND = "not as promised, outside its interval"


def reading_of(
    value: float | None, low: float | None, high: float | None, limit: float | None, is_least: bool = False
) -> Reading | None:
    """Return how a number with its interval stands to a limit; None where number or limit is missing.

    Parameters
    ----------
    value
        The number; None where there is none.
    low
        Lower end of its interval; None where there is none.
    high
        Upper end of its interval; None where there is none.
    limit
        What the promise allows.
    is_least
        Whether the promise allows no less than `limit`, and not no more.

    Examples
    --------
    >>> str(reading_of(0.395, 0.21, 0.58, 0.224))
    'not as promised, within chance'
    """
    if limit is None or value is None:
        return None
    sign = -1.0 if is_least else 1.0
    if sign * (value - limit) <= 0:
        return Reading.WITHIN
    nearest = high if is_least else low
    return Reading.BY_CHANCE if nearest is not None and sign * (nearest - limit) <= 0 else Reading.BEYOND


def aside(reading: Reading | None) -> str:
    """Return what follows a number in a sentence: nothing but where it is not as promised.

    Examples
    --------
    >>> aside(Reading.BY_CHANCE), aside(Reading.WITHIN)
    (' (not as promised, within chance)', '')
    """
    return "" if reading in (None, Reading.WITHIN) else f" ({reading})"


def finding_text(entry: Mapping[str, Any]) -> str:
    """Return an entry of `findings` in `summary.json` with its interval, what is promised, and how the two stand.

    Examples
    --------
    >>> entry = {"name": "Advantage", "value": 0.29, "low": 0.05, "high": 0.48, "confidence": 0.95, "promised": 0.206}
    >>> finding_text(entry | {"is_share": False, "is_least": False, "reading": "not as promised, within chance"})
    '0.29 (0.05 to 0.48), promised at most 0.206: not as promised, within chance'
    """

    def text(value: float | None) -> str:
        return percent(value) if entry["is_share"] else number_text(value, 4)

    told = text(entry["value"])
    if entry["confidence"] is not None and entry["low"] is not None and entry["high"] is not None:
        told += f" ({text(entry['low'])} to {text(entry['high'])})"
    if entry["promised"] is not None and entry["reading"] is not None:
        most = "at least" if entry["is_least"] else "at most"
        told += f", promised {most} {text(entry['promised'])}: {entry['reading']}"
    return told


def interval_beside(value: float, low: float, high: float, limit: float | None) -> str:
    """Return a number with its interval, and how it stands to what is promised where that is not kept.

    Parameters
    ----------
    value
        The number.
    low
        Lower end of its interval.
    high
        Upper end of its interval.
    limit
        What is promised at most; None where nothing is.

    Examples
    --------
    >>> interval_beside(0.29, 0.05, 0.48, 0.206)
    '0.29 (0.05 to 0.48) (not as promised, within chance)'
    """
    # An interval without a width is none.
    interval = "no interval" if low == high else f"{number_text(low, 3)} to {number_text(high, 3)}"
    return f"{number_text(value, 3)} ({interval}){aside(reading_of(value, low, high, limit))}"
