"""Recognise numbers as people write them: with decimal and thousands marks, currencies, units and bounds."""

import re
from typing import Any

import pandas as pd

DECIMAL_MARKS = (".", ",")
_GROUPS = r"[1-9]\d{0,2}(?:%s\d{3})+"
# Marks that stand between thousands and nowhere else.
_SPACES = re.compile(r"(?<=\d)['\u2019\u00a0\u202f ](?=\d{3}(?!\d))")
_NUMBER = {
    ".": re.compile(rf"[+-]?(?:\d*|{_GROUPS % ','})(?:(?<=\d)\.|\.?\d+)?(?:[eE][+-]?\d+)?\s*%?"),
    ",": re.compile(rf"[+-]?(?:\d*|{_GROUPS % '[.]'})(?:(?<=\d),|,?\d+)?(?:[eE][+-]?\d+)?\s*%?"),
}
# Amounts below 0 as accountants write them. A minus behind needs decimals before it: "2-" is a grade.
_BELOW_ZERO = (
    (re.compile(r"^[\u2212\u2013](?=\d)"), "-"),
    (re.compile(r"^(\d[\d.,]*[.,]\d+)-$"), r"-\1"),
    (re.compile(r"^\(([^()]*\d[^()]*)\)$"), r"-\1"),
)
BOUND = re.compile(r"^[<>≤≥]=? ?(?=[+-]?[\d.,]*\d[\d.,]*$)")  # a measurement below or above what can be told
# A currency before the digits, or words and signs behind them.
_UNIT = re.compile(r"[+-]?((?:[$€£¥]|[A-Z]{3} ) ?)?\d[\d.,]*( ?[^\W\d_][^\d()+:/-]*| ?[$€£¥°])?")


def rewrite_amounts(cells: "pd.Series[Any]") -> tuple["pd.Series[Any]", list[str]]:
    """Rewrite amounts such as "1'000 EUR" as plain numbers; return the cells and notes on what was changed.

    Spaces, apostrophes between thousands, and a unit that all amounts share are removed. The sign of bounds such as
    `<5` is removed if at most half of the cells have one. A minus sign is moved to the front.

    Examples
    --------
    >>> text, notes = rewrite_amounts(pd.Series(["1'000,50 EUR", "(20,00 EUR)"]))
    >>> text.tolist(), notes
    (['1000,50', '-20,00'], ["'(20,00 EUR)' is below 0", "'EUR' left out"])
    """
    stripped = cells.astype(str).str.strip()
    text = stripped.str.replace(_SPACES, "", regex=True)
    notes = list[str]()
    for pattern, plain in _BELOW_ZERO:
        before = text
        text = text.str.replace(pattern, plain, regex=True)
        notes += [f"{cell!r} is below 0" for cell in stripped[text != before].iloc[:1]]
    if 2 * (bounded := text.str.match(BOUND)).sum() <= len(text):
        text = text.str.replace(BOUND, "", regex=True)
        notes += [f"{cell!r} is read as the number behind the sign" for cell in stripped[bounded].iloc[:1]]
    first = next((unit_match for cell in text if (unit_match := _UNIT.fullmatch(cell))), None)
    front, behind = (first[1] or "", first[2] or "") if first else ("", "")
    if front or behind:
        of_unit = re.compile(rf"^([+-]?){re.escape(front)}(\d[\d.,]*){re.escape(behind)}$")
        # In "1 apple" and "2 pears" the words matter, and "5k" beside "5000" is no 5; "0" needs no unit.
        if all(of_unit.match(cell) for cell in text if any(map("123456789".__contains__, cell))):
            text = text.str.replace(of_unit, r"\1\2", regex=True)
            notes.append(f"{(front or behind).strip()!r} left out")
    return text, notes


def is_number(cell: str, decimal: str) -> bool:
    """Return True if a cell is a number with the given decimal mark.

    If the decimal mark is ",", points may separate thousands, and vice versa.

    Examples
    --------
    >>> is_number("1.234,5", ","), is_number("1.234,5", "."), is_number("12 %", ".")
    (True, False, True)
    """
    return _NUMBER[decimal].fullmatch(cell) is not None and any(map(str.isdigit, cell))
