"""Find table columns that look like identifiers of persons, by their names or by how often their values repeat.

A claim that protects single records does not protect a person with several records. A model should learn nothing from a
number that only identifies a person.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from math import gcd, log
from typing import Any

import numpy as np
import pandas as pd
import scipy

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.data.column_encoding import ENOUGH_TO_TELL
from fl_audit.data.identifier_names import (
    MAYBE,
    OF_A_PERSON,
    counts_or_groups,
    is_measured,
    is_named_so,
    plain_name,
    says_a_quantity,
)
from fl_audit.data.label_leaks import SURE, determines
from fl_audit.data.loaded_dataset import IdentifyingColumn

_FEWEST_VALUES = 5  # with fewer it names groups
_MOST_A_VALUE, _FEWEST_A_VALUE = 50, 1.2  # records of a value, on average, where nothing but the shape is known
_COLUMNS_COMPARED = 200
_LONG = 6  # digits of whole numbers that are seldom counts or measurements where they repeat
_SAME_LENGTH = 0.95  # share of numbers with equally many digits, as codes have them

_HEX = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^@\s]+@[^@\s]+\.\w+", re.IGNORECASE)
_FEWEST_DIGITS = 3  # digits of a code in text; W12 is a ward
_FEWEST_NUMBERS = 20  # with fewer different ones, their distribution says nothing
_MOST_OF_ONE = 10  # one part in so many of the records that somebody has at most
_PARTS, _ODD = 10, 27.9  # parts of a range of numbers; chi squared beyond which they are filled unevenly, once in 1,000
_RELATED = 4.9  # standard errors of a rank correlation that chance gives once in a million


def identifiers(
    frame: pd.DataFrame, label: str, owner: str | None, user: str | None = None
) -> tuple[IdentifyingColumn, ...]:
    """Return the columns of a table that look like identifiers, apart from the columns of labels, owners and users.

    A column looks like an identifier if its name says so, if it numbers the records consecutively, or if its values are
    codes that repeat.

    Values repeat if each occurs in 1.2 to 50 records on average, and if most records share their value with another
    record. Codes are long integers of one length, strings of one pattern, or integers that determine another column
    without a monotonic relation. For example, a person's number determines the sex. The result is empty if the table
    has too few records for a decision.
    """
    if len(frame) < ENOUGH_TO_TELL:
        return ()
    found, others = [], [name for name in frame.columns if name not in (label, owner, user)]
    # Other columns are compared with few that repeat, so that their codes are mostly not needed.
    compared = cache(lambda: _codes(frame[others[:_COLUMNS_COMPARED]]))
    for name in others:
        column = frame[name]
        if not _can_name(column):
            continue
        codes, levels = pd.factorize(column)
        counts = np.bincount(codes)
        if len(levels) < _FEWEST_VALUES or not _is_one(str(name), column, codes, counts, compared):
            continue
        within = [one is not None and determines(codes, pd.factorize(frame[one])[0]) for one in (owner, user)]
        found.append(IdentifyingColumn(str(name), len(levels), len(frame), int(counts.max()), *within))
    return tuple(found)


def possible_identifiers(
    frame: pd.DataFrame, label: str, person: str | None, found: Sequence[IdentifyingColumn]
) -> tuple[IdentifyingColumn, ...]:
    """Return columns of integers that may be either identifiers of persons or quantities.

    Their values repeat in most records, with 1.2 to 50 records for each value. They pass three tests that most
    quantities fail: values are spread evenly over their range, the frequency of a value says nothing about that of
    nearby values, and no other column is correlated with them. If `person` is given, the result is empty.
    """
    if len(frame) < ENOUGH_TO_TELL or person is not None:
        return ()
    passed, ranks = {label, *(one.name for one in found)}, cache(lambda: _ranks(frame))
    possible = []
    for name in frame.columns:
        column = frame[name]
        if name in passed or not pd.api.types.is_numeric_dtype(column) or not _can_name(column):
            continue
        levels, codes, counts = np.unique(column.to_numpy(), return_inverse=True, return_counts=True)
        in_between = len(levels) * _MOST_A_VALUE >= len(frame) >= len(levels) * _FEWEST_A_VALUE
        is_common = 2 * (counts[codes] > 1).sum() >= len(frame) >= _MOST_OF_ONE * counts.max()
        if len(levels) < _FEWEST_NUMBERS or not in_between or not is_common:
            continue
        if says_a_quantity(str(name)) or not _are_evenly_spread(levels.astype(np.float64), counts):
            continue
        if not _rises_with_another(name, len(levels), frame, ranks()):
            possible.append(IdentifyingColumn(str(name), len(levels), len(frame), int(counts.max())))
    return tuple(possible)


def likeliest_person_column(found: Sequence[IdentifyingColumn], person: str | None) -> IdentifyingColumn | None:
    """Return the column that most likely tells which person each record belongs to; None if there is no such column.

    Only a column with repeated values can be such a column, because otherwise every record would belong to a different
    person. The result is also None if the user has already named a column of persons.
    """
    repeated = [one for one in found if one.most > 1] if person is None else []
    return min(repeated, key=_distance_from_person, default=None)


def _distance_from_person(one: IdentifyingColumn) -> tuple[int, int]:
    """Return a sort key that is smallest for the column that most likely identifies persons.

    Columns that are named like a person's number come first, then other columns that are named like identifiers, and
    then columns that were recognised by their values. Within each group, columns with fewer different values come
    first.
    """
    if is_named_so(one.name):
        return (0 if OF_A_PERSON.fullmatch(plain_name(one.name)) else 1), one.values
    return 2, one.values


def _can_name(column: "pd.Series[Any]") -> bool:
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return False
    if pd.api.types.is_float_dtype(column):
        values = column.to_numpy()
        with np.errstate(invalid="ignore"):  # the remainder of an infinite number is none
            return bool((values[:1000] % 1 == 0).all() and (values % 1 == 0).all())
    return True


def _codes(frame: pd.DataFrame) -> Integers:
    """Return every column as integer codes of its values, shape (records, columns)."""
    found = [pd.factorize(frame[name])[0] for name in frame.columns]
    return np.stack(found, axis=1) if found else np.empty((len(frame), 0), dtype=np.int64)


def _is_one(
    name: str, column: "pd.Series[Any]", codes: Integers, counts: Integers, others: Callable[[], Integers]
) -> bool:
    values, rows, plain = len(counts), len(codes), plain_name(name)
    if is_named_so(name):
        return True
    if counts_or_groups(plain):
        return False
    if values == rows:
        return pd.api.types.is_numeric_dtype(column) and _counts_up(column)
    in_between = values * _MOST_A_VALUE >= rows
    if MAYBE.fullmatch(plain) and in_between:
        return True
    repeated = counts[codes] > 1
    if not in_between or values * _FEWEST_A_VALUE > rows or 2 * repeated.sum() < rows:
        return False
    if is_measured(plain):
        return False
    if pd.api.types.is_numeric_dtype(column):
        numbers = np.array([int(one) for one in column.unique().tolist()], dtype=object)
        return _are_long_codes(numbers) or _determines_like_identifier(column, codes, others())
    return _are_coded(column.astype(str).str.strip().unique().tolist())


def _are_evenly_spread(levels: Floats, counts: Integers) -> bool:
    """Return True if the ascending values of a column look like identifiers: spread evenly over their range.

    Values in all parts of the range must also be equally frequent. `counts` has the frequency of each value.
    """
    low, high = levels[0], levels[-1]
    # The ends of the range are numbers that occur, so they tell nothing of how the others are spread.
    inner = np.histogram(levels[1:-1], bins=_PARTS, range=(low, high))[0]
    expected = inner.sum() / _PARTS
    if float(((inner - expected) ** 2).sum()) / expected > _ODD:
        return False
    part = np.minimum(((levels - low) / (high - low) * _PARTS).astype(np.int64), _PARTS - 1)
    # By ranks too, so that a few frequent numbers do not hide the order of the others.
    return all(_is_even(often, part) for often in (counts.astype(np.float64), scipy.stats.rankdata(counts)))


def _is_even(often: Floats, part: Integers) -> bool:
    """Return True if values occur equally often in all parts of their range, by a chi-squared test.

    `part` is the number of the part in which each value lies.
    """
    numbers, sums = np.bincount(part, minlength=_PARTS), np.bincount(part, often, minlength=_PARTS)
    variance = max(float(often.var()), 1e-12) * np.maximum(numbers, 1)
    return float(((sums - often.mean() * numbers) ** 2 / variance).sum()) <= _ODD


def _ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the ranks of the values within each numeric column, centred and scaled to L2 norm 1."""
    numbers = frame.select_dtypes("number").iloc[:, :_COLUMNS_COMPARED]
    ranks = numbers.rank() - (len(frame) + 1) / 2
    scaled: pd.DataFrame = ranks / np.sqrt((ranks**2).sum()).replace(0.0, 1.0)
    return scaled


def _rises_with_another(name: str, levels: int, frame: pd.DataFrame, ranks: pd.DataFrame) -> bool:
    """Return True if the column `name` has a significant rank correlation with another numeric column."""
    own = frame[name].rank() - (len(frame) + 1) / 2
    others = ranks.drop(columns=[name], errors="ignore")
    # All records of a person may agree in another column: they count as one.
    related = np.abs((own / np.sqrt((own**2).sum())).to_numpy() @ others.to_numpy()) * np.sqrt(levels)
    return bool((related > _RELATED).any())


def _counts_up(column: "pd.Series[Any]") -> bool:
    return int(column.max()) - int(column.min()) == len(column) - 1


def _are_long_codes(numbers: "np.ndarray[Any, np.dtype[np.object_]]") -> bool:
    """Return True if the given distinct integers are long, of one length, and neither rounded amounts nor dates."""
    digits = np.array([len(str(abs(one))) for one in numbers])
    common = np.bincount(digits).argmax()
    if common < _LONG or (digits == common).mean() < _SAME_LENGTH or numbers.min() < 0:
        return False
    days = all(1900 <= int(str(one)[:4]) <= 2100 and 1 <= int(str(one)[4:6]) <= 12 for one in numbers)
    return gcd(*numbers.tolist()) == 1 and not days


def _are_coded(cells: list[str]) -> bool:
    """Return True if the given distinct strings are hexadecimal, e-mail addresses, or digits in one pattern."""
    if all(_HEX.fullmatch(cell) for cell in cells):
        return True
    forms = {re.sub(r"\d", "0", cell) for cell in cells}
    shortened = {re.sub("0+", "0", form) for form in forms}
    return len(shortened) == 1 and max(form.count("0") for form in forms) >= _FEWEST_DIGITS


def _determines_like_identifier(column: "pd.Series[Any]", codes: Integers, others: Integers) -> bool:
    """Return True if a column determines another column, as a person's number determines the sex.

    Two other relations do not count. A column may determine another one in ascending order, as an age determines the
    age group. Or both columns may have the same values under other names.
    """
    order = np.argsort(column.to_numpy(), kind="stable")
    same = np.diff(codes[order]) == 0
    ranked = others[order]
    pairs = np.flatnonzero(same)
    few = pairs[:64]
    alike = np.flatnonzero((ranked[few] == ranked[few + 1]).all(axis=0))
    return any(_determines_nontrivially(ranked[:, place], pairs, same) for place in alike)


def _determines_nontrivially(other: Integers, pairs: Integers, same: Flags) -> bool:
    """Return True if a column of codes determines the column `other`, as a person's number determines the sex.

    The result is False if this may be chance, if `other` follows the order of the codes, or if it has more than half as
    many values as there are codes. `other` is sorted by code. `same` says for every record but the last whether the
    next record has the same code, and `pairs` holds the positions where it has.
    """
    if not (other[pairs] == other[pairs + 1]).all():
        return False
    shares = np.bincount(other) / len(other)
    levels, changes, values = np.count_nonzero(shares), int((np.diff(other) != 0).sum()), int((~same).sum()) + 1
    by_chance = -len(pairs) * log(max(float((shares**2).sum()), 1e-12))
    # A column that follows the order changes once between its levels; one that renames has as many levels as values.
    return by_chance > SURE and 1 < int(levels) <= values // 2 and changes > 2 * int(levels)
