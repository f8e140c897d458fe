"""Find table columns that identify persons or records: by their names, by uniqueness, or by how their values repeat.

A claim that protects single records does not protect a person with several records. A model should learn nothing from a
number that only identifies a person.
"""

import re
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.array_types import Flags, Integers
from fl_audit.data.column_encoding import ENOUGH_TO_TELL, are_dates
from fl_audit.data.identifier_names import (
    counts_or_groups,
    is_identifier_name,
    is_measured,
    is_person_name,
    may_be_identifier_name,
    plain_name,
)
from fl_audit.data.label_leaks import SURE, determines
from fl_audit.data.loaded_dataset import IdentifyingColumn

_FEWEST_VALUES = 5  # a column with fewer values names groups
_MOST_ROWS, _FEWEST_ROWS = 50, 1.2  # records of a person, on average, where the name of the column does not say it
_COLUMNS_COMPARED = 200
_ROWS_COMPARED = 64  # pairs of neighbouring records that rule out most columns

_WORD_CODE = re.compile(
    r"[0-9a-f]{12,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^@\s]+@[^@\s]+\.\w+", re.IGNORECASE
)
_FEWEST_DIGITS = 3  # digits of a code in text; W12 is a ward
_PART = re.compile(r"[_\-./: ]+[A-Za-z]*\d+")
"""A separator with a numbered part behind it, such as `_S01` in `phon_R01_S01_1`."""


def identifiers(
    frame: pd.DataFrame, label: str, owner: str | None, user: str | None = None
) -> tuple[IdentifyingColumn, ...]:
    """Return the columns of a table that identify persons or records; not those of labels, owners and users.

    A column is an identifier if its name says so, if it numbers the records consecutively, or if its values repeat as
    those of a person do: most records share their value with another record, a value has 50 records at most on average,
    and records of one value agree in another column, as those of a person agree in the sex. In a column of words that
    ends in numbers, such as `phon_R01_S01_1`, the beginnings of the words can repeat so.

    The result is empty if the table has too few records for a decision.
    """
    if len(frame) < ENOUGH_TO_TELL:
        return ()
    names = [name for name in frame.columns if name not in (label, owner, user)]
    compared = frame[names[:_COLUMNS_COMPARED]]
    columns_found = []
    for name in names:
        keys, beginning = _keys(frame[name], compared) if _can_identify(frame[name]) else (None, "")
        if keys is None:
            continue
        counts = np.bincount(keys)
        of_owner, of_user = (
            role is not None and determines(keys, pd.factorize(frame[role])[0]) for role in (owner, user)
        )
        largest = int(counts.max())
        columns_found.append(
            IdentifyingColumn(str(name), len(counts), len(frame), largest, of_owner, of_user, beginning)
        )
    return tuple(columns_found)


def likeliest_person_column(
    identifying_columns: Sequence[IdentifyingColumn], person: str | None
) -> IdentifyingColumn | None:
    """Return the column that most likely tells which person each record belongs to; None if there is no such column.

    Only a column with repeated values can be such a column, because otherwise every record would belong to a different
    person. The result is also None if the user has already named a column of persons.
    """
    repeated = [column for column in identifying_columns if column.most > 1] if person is None else []
    return min(repeated, key=_distance_from_person, default=None)


def _distance_from_person(column: IdentifyingColumn) -> tuple[int, int]:
    """Return a sort key that is smallest for the column that most likely identifies persons.

    Columns that are named like a person's number come first, then other columns that are named like identifiers, and
    then columns that were recognised by their values. Within each group, columns with fewer different values come
    first.
    """
    if is_person_name(column.name):
        return 0, column.values
    return (1 if is_identifier_name(column.name) else 2), column.values


def _can_identify(column: "pd.Series[Any]") -> bool:
    """Return True if a column has whole numbers or words that are no dates."""
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return False
    if pd.api.types.is_float_dtype(column):
        values = column.to_numpy()
        with np.errstate(invalid="ignore"):  # the remainder of an infinite number is none
            return bool((values[:1000] % 1 == 0).all() and (values % 1 == 0).all())
    if pd.api.types.is_integer_dtype(column):
        return not _are_written_days(column)
    return not bool(are_dates(pd.Series(column.astype(str).str.strip().unique())).all())


def _are_written_days(column: "pd.Series[Any]") -> bool:
    """Return True if all whole numbers are days of the years 1900 to 2100, such as 20240331."""
    if not column.between(1900_01_01, 2100_12_31).all():
        return False
    days = pd.to_datetime(pd.Series(column.unique()).astype(str), format="%Y%m%d", errors="coerce")
    return bool(days.notna().all())


def _keys(column: "pd.Series[Any]", compared: pd.DataFrame) -> tuple[Integers | None, str]:
    """Return the number of the key of each record, or None if a column is no identifier.

    The second result is an example of the beginnings of words that are the keys; empty if whole values are.
    """
    name = str(column.name)
    in_words = not pd.api.types.is_numeric_dtype(column)
    values = column.nunique()
    if values < _FEWEST_VALUES:
        return None, ""
    if in_words and not is_identifier_name(name) and (beginnings := _beginnings(column)) is not None:
        return beginnings
    codes = pd.factorize(column, sort=True)[0].astype(np.int64)
    return (codes if _is_key(column, codes, values, compared) else None), ""


def _is_key(column: "pd.Series[Any]", codes: Integers, values: int, compared: pd.DataFrame) -> bool:
    """Return True if whole values of a column identify persons or records; `codes` numbers them in their order."""
    name = str(column.name)
    rows = len(column)
    in_words = not pd.api.types.is_numeric_dtype(column)
    few_rows = values * _MOST_ROWS >= rows
    if is_identifier_name(name) or (is_person_name(name) and (few_rows or not in_words or _have_digits(column))):
        return True
    plain = plain_name(name)
    if counts_or_groups(plain):
        return False
    if values == rows:
        return not in_words and _counts_up(column)
    if may_be_identifier_name(name):
        return few_rows or _describes_persons(codes, compared.drop(columns=[column.name], errors="ignore"))
    repeats = 2 * (np.bincount(codes)[codes] > 1).sum() >= rows >= values * _FEWEST_ROWS
    if not (repeats and few_rows) or is_measured(plain) or (in_words and not _are_codes(column)):
        return False
    return _describes_persons(codes, compared.drop(columns=[column.name], errors="ignore"))


def _have_digits(column: "pd.Series[Any]") -> bool:
    return bool(pd.Series(column.astype(str).unique()).str.contains(r"\d").all())


def _beginnings(column: "pd.Series[Any]") -> tuple[Integers, str] | None:
    """Return the number of the beginning of each word and an example, if the beginnings repeat as persons do.

    Beginnings end before a separator and a number, as `phon_R01_S01` in `phon_R01_S01_1`. Of several the shortest that
    repeat in that way are taken. The result is None if there are none, or if many records have the same word.
    """
    words = column.astype(str).str.strip()
    if words.nunique() * _FEWEST_ROWS < len(words):
        return None
    digit_positions = [[match.start() for match in _PART.finditer(word)] for word in words]
    depth = min(map(len, digit_positions))
    if any(len(positions) != depth for positions in digit_positions) or not all(word[-1:].isdigit() for word in words):
        return None
    for level in range(depth):
        cut = pd.Series([word[: positions[level]] for word, positions in zip(words, digit_positions, strict=True)])
        codes, levels = pd.factorize(cut)
        repeats = len(levels) * _FEWEST_ROWS <= len(words) <= len(levels) * _MOST_ROWS
        if repeats and len(levels) >= _FEWEST_VALUES:
            return codes.astype(np.int64), str(cut.iloc[0])
    return None


def _counts_up(column: "pd.Series[Any]") -> bool:
    return int(column.max()) - int(column.min()) == len(column) - 1


def _are_codes(column: "pd.Series[Any]") -> bool:
    """Return True if all words are hexadecimal, e-mail addresses, or of one pattern with three digits or more."""
    cells = column.astype(str).str.strip().unique().tolist()
    if all(_WORD_CODE.fullmatch(cell) for cell in cells):
        return True
    forms = {re.sub(r"\d", "0", cell) for cell in cells}
    shortened = {re.sub("0+", "0", form) for form in forms}
    return len(shortened) == 1 and max(form.count("0") for form in forms) >= _FEWEST_DIGITS


def _describes_persons(codes: Integers, frame: pd.DataFrame) -> bool:
    """Return True if a column of codes determines another column, as a person's number determines the sex.

    Two other relations do not count. A column may determine another one in ascending order, as an age determines the
    age group. Or both columns may have the same values under other names.
    """
    order = np.argsort(codes, kind="stable")
    same = np.diff(codes[order]) == 0
    pairs = np.flatnonzero(same)
    few_pairs = pairs[:_ROWS_COMPARED]
    for name in frame.columns:
        cells = frame[name].to_numpy()[order]
        if (cells[few_pairs] == cells[few_pairs + 1]).all() and _determines_nontrivially(
            pd.factorize(cells)[0], pairs, same
        ):
            return True
    return False


def _determines_nontrivially(other_codes: Integers, pairs: Integers, same: Flags) -> bool:
    """Return True if a column of codes determines the column `other_codes`, as a person's number determines the sex.

    The result is False if this may be chance, if `other_codes` follows the order of the codes, or if it has more than
    half as many values as there are codes. `other_codes` is sorted by code. `same` says for every record but the last
    whether the next record has the same code, and `pairs` holds the positions where it has.
    """
    if not (other_codes[pairs] == other_codes[pairs + 1]).all():
        return False
    shares = np.bincount(other_codes) / len(other_codes)
    levels = np.count_nonzero(shares)
    changes = int((np.diff(other_codes) != 0).sum())
    values = int((~same).sum()) + 1
    by_chance = -len(pairs) * log(max(float((shares**2).sum()), 1e-12))
    # A column that follows the order changes once between its levels; one that renames has as many levels as values.
    return by_chance > SURE and 1 < int(levels) <= values // 2 and changes > 2 * int(levels)
