"""Recognise words for missing values, such as NA; they count as missing only if the setting `missing` names them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data.written_numbers import DECIMAL_MARKS, is_number, rewrite_amounts

USUAL_WORDS = frozenset(
    {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""Strings that pandas reads as missing values by default."""
_FOLDED = frozenset(word.casefold() for word in USUAL_WORDS)
_TRUTH = frozenset({"true", "false"})


def is_usual(word: str) -> bool:
    """Return True if a cell is empty or holds a usual word for a missing value, in upper or lower case.

    Spaces around `word` must have been removed before.

    Examples
    --------
    >>> is_usual("none"), is_usual("nobody")
    (True, False)
    """
    return not word or word.casefold() in _FOLDED


def words_among_numbers(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return the usual words for missing values in columns that otherwise hold only numbers or bools, by column name.

    The words in a column are sorted, and columns without such words are left out. Until the setting `missing` names the
    words, such a column cannot be read as numbers.
    """
    words_by_column = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            continue
        cells = column.dropna().astype(str).str.strip().unique().tolist()
        words = [cell for cell in cells if cell and is_usual(cell)]
        if words and (unusual := [cell for cell in cells if not is_usual(cell)]) and _are_numbers(unusual):
            words_by_column[str(name)] = sorted(words)
    return words_by_column


def _are_numbers(cells: Sequence[str]) -> bool:
    if all(cell.casefold() in _TRUTH for cell in cells):
        return True
    # The first few settle most columns of words at once, however long they are.
    for sample in (cells[:10], cells):
        text = rewrite_amounts(pd.Series(sample, dtype=str))[0].tolist()
        if not any(all(is_number(cell, mark) for cell in text) for mark in DECIMAL_MARKS):
            return False
    return True


def without_words(frame: pd.DataFrame, missing: Sequence[str]) -> pd.DataFrame:
    """Return a table in which the cells with one of the given words are NaN.

    Cells of a numeric column are compared as numbers, so the word "9.0" also removes the number 9.
    """
    gone = [cell for cell in map(_as_number, missing) if cell is not None]

    def kept(column: "pd.Series[Any]") -> "pd.Series[Any]":
        if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            return column
        is_gone = (
            column.isin(gone) if pd.api.types.is_numeric_dtype(column) else column.astype(str).str.strip().isin(missing)
        )
        return column.where(~is_gone) if is_gone.any() else column

    return frame.assign(**{str(name): kept(column) for name, column in frame.items()}) if missing else frame


def missing_value_word_counts(written: pd.DataFrame, read: pd.DataFrame) -> Mapping[str, int]:
    """Return, by word, the number of records in which the word meant a missing value; the key "" counts empty cells."""
    gaps = [written[name][read[name].isna()] for name in read.columns if read[name].isna().any()]
    if not gaps:
        return {}
    words = pd.concat(gaps)
    words = words.where(words.notna(), "").astype(str).str.strip()
    return Counter(words.groupby(level=0).unique().explode().tolist())


def _as_number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
