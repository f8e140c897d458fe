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
