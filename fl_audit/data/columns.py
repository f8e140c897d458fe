"""What each column of a table becomes: a number, levels, or a refusal that names the remedy."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.data.encoding import min_max
from fl_audit.data.records import ColumnKind, ColumnUse
from fl_audit.errors import InputError, require

DEFAULT_MAX_LEVELS = 100
"""Levels of a column, and classes of a label, that are accepted unless the user says otherwise."""
LARGEST_TABLE = 2**30
"""Numbers in the features of all records: 4 GiB."""
ENOUGH_TO_TELL = 20
"""In a table of fewer records, values that are all different say nothing about what the column is."""
_SHARE_OF_NUMBERS = 0.5
_EXAMPLES = 3

_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
_WRITTEN_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d*)?\s*%?")


@dataclass(frozen=True)
class Encoded:
    """A column as features.

    Parameters
    ----------
    use
        What it became.
    features
        Float32, shape (records, 1) for numbers, (records, levels) for levels.
    """

    use: ColumnUse
    features: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Origin:
    """Where the records of a table come from.

    Parameters
    ----------
    file
        File of the records that training sets are drawn from.
    test_file
        File of the test records that follow them; the same file if there are none.
    train
        Number of records from `file`, at least 1.
    rows
        Row of every record in its file, from 1 below the header, shape (records,).
    """

    file: str
    test_file: str
    train: int
    rows: NDArray[np.int64]

    def cell(self, position: int, column: str, value: str) -> str:
        """Return the beginning of a message about a cell."""
        file = self.file if position < self.train else self.test_file
        return f"{file} has {value} in column {column}, row {self.rows[position]}"


def encode_column(column: "pd.Series[Any]", name: str, origin: Origin, max_levels: int, before: int = 0) -> Encoded:
    """Turn a column without missing cells into features.

    Numbers, also such as `12%` and `1,234`, and dates such as `2024-03-31` are scaled to [0, 1] by their range in the
    file that is not for the test; true and false become 1 and 0; words become one feature for each level.

    Parameters
    ----------
    column
        Cells of all records, those of the test file last.
    name
        Name of the column.
    origin
        Where the records come from.
    max_levels
        Largest number of levels.
    before
        Number of features that the columns before it became.

    Raises
    ------
    InputError
        If the features are too many to be held, or the column holds dates of another form, is an identifier or free
        text, has no name and counts the records, or mixes numbers with a few words.
    """
    numbers, note = _numbers(column, name, origin)
    if numbers is None:
        return _levels(column.astype(str).str.strip(), name, origin.file, max_levels, before)
    train = origin.train
    require(
        re.fullmatch(r"Unnamed: \d+", name) is None,
        f"{origin.file} has a column of numbers without a name, such as programs add to number the records: give it a "
        f"name, or leave it out with {drop_remedy(name)}",
    )
    scaled, rest = min_max(numbers[:train, np.newaxis], numbers[train:, np.newaxis])
    assert rest is not None
    low, high = numbers[:train].min(), numbers[:train].max()
    detail = f"{low:g} to {high:g}{note}, scaled to 0 to 1" if high > low else f"{low:g} in every record, so always 0"
    if _counts(numbers[:train]):
        detail += f"; it numbers the records, which says nothing of them: consider {drop_remedy(name)}"
    return Encoded(ColumnUse(name, ColumnKind.NUMBER, detail), np.concatenate([scaled, rest]).astype(np.float32))


def check_width(width: int, records: int, name: str, file: str) -> None:
    """Refuse more features than can be held, before they are made.

    Parameters
    ----------
    width, records
        Number of features of each record, and of records.
    name, file
        The last of the columns, and where they stand, for the message.

    Raises
    ------
    InputError
        If they are too many.
    """
    require(
        width * records <= LARGEST_TABLE,
        f"{file}: the columns up to {name} become {width:,} features of {records:,} records, more than "
        f"{LARGEST_TABLE:,} numbers: leave out columns with drop in [data], or lower max-levels",
    )


def column_lines(columns: Sequence[ColumnUse], most: int = 20) -> list[str]:
    """Return what the columns of a table became, a line for each; of more than `most`, the rest is counted.

    Examples
    --------
    >>> column_lines([ColumnUse("age", ColumnKind.NUMBER, "20 to 40, scaled to 0 to 1")])
    ['age: number, 20 to 40, scaled to 0 to 1']
    """
    lines = [str(column) for column in columns[:most]]
    rest = Counter(column.kind for column in columns[most:])
    if rest:
        counted = ", ".join(f"{number} as {kind}" for kind, number in rest.items())
        lines.append(f"and {rest.total()} further columns: {counted}")
    return lines


def describe_label(name: str, values: NDArray[np.generic]) -> ColumnUse:
    """Return what the label column became: its classes in order, the first few by name."""
    levels = np.unique(values)
    return ColumnUse(name, ColumnKind.LABEL, f"{len(levels)} classes: {_some(levels)}")


def describe_owners(name: str, owners: Sequence[str]) -> ColumnUse:
    """Return what the owner column became: how many owners, the first few by name."""
    return ColumnUse(name, ColumnKind.OWNER, f"{len(owners)} of them: {_some(owners)}")


def check_classes(values: NDArray[np.generic], what: str, max_classes: int | None = None) -> None:
    """Refuse labels with so many classes that they are a quantity to predict, not a class.

    Parameters
    ----------
    values
        Labels of all records, shape (n,).
    what
        Where the labels stand, for the message.
    max_classes
        Largest number of classes; None sets no limit but half the records.

    Raises
    ------
    InputError
        If there are more.
    """
    records, classes = len(values), len(np.unique(values))
    many = records >= ENOUGH_TO_TELL and 2 * classes > records
    remedy = "" if max_classes is None or many else f", or max-levels = {classes} in [data] if these are classes"
    require(
        not many and classes <= (max_classes or classes),
        f"{what} has {classes} different values in {records} records, which looks like a quantity to predict: accepted "
        f"are labels that name a class, so put the values into groups{remedy}",
    )


def drop_remedy(name: str) -> str:
    """Return the setting that leaves a column out, as it is written in a configuration."""
    return f"drop = [{json.dumps(name, ensure_ascii=False)}] in [data]"


def _numbers(column: "pd.Series[Any]", name: str, origin: Origin) -> tuple[NDArray[np.float64] | None, str]:
    """Return a column of numbers, and in which way they were written; None if it has words."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64), ""
    if (days := _days(column)) is not None:
        return days, " (days since 1970)"
    text = column.astype(str).str.strip()
    plain = pd.to_numeric(text, errors="coerce").notna()
    written = plain | text.map(lambda cell: _WRITTEN_NUMBER.fullmatch(cell) is not None)
    if written.all():
        marks = [mark for mark in ("%", ",") if text.str.contains(mark, regex=False).any()]
        cleaned: NDArray[np.float64] = text.str.replace(r"[,%\s]", "", regex=True).to_numpy(dtype=np.float64)
        return cleaned, f" ({' and '.join(repr(mark) for mark in marks)} left out)" if marks else ""
    # Mostly numbers and a few words is a spoilt measurement, and one level for each number would hide that.
    if written.mean() > _SHARE_OF_NUMBERS:
        odd = int(np.argmin(written.to_numpy()))
        word = text.iloc[odd]
        raise InputError(
            f"{origin.cell(odd, name, _short(word))}, where most cells are numbers: accepted are numbers throughout; "
            f"missing = [{json.dumps(word, ensure_ascii=False)}] in [data] leaves out the "
            f"records where a value is missing, {drop_remedy(name)} the column"
        )
    return None, ""


def _days(column: "pd.Series[Any]") -> NDArray[np.float64] | None:
    """Return dates as days since 1970; None of what is no date, or a date whose day and month could be exchanged."""
    if not pd.api.types.is_datetime64_any_dtype(column):
        # The first cell settles most columns of text at once, however long they are.
        if _ISO_DATE.fullmatch(str(column.iloc[0]).strip()) is None:
            return None
        text = column.astype(str).str.strip()
        if not text.map(lambda cell: _ISO_DATE.fullmatch(cell) is not None).all():
            return None
        column = pd.to_datetime(text, errors="coerce", format="ISO8601", utc=True)
        if column.isna().any():
            return None
    seconds: NDArray[np.float64] = pd.DatetimeIndex(column).as_unit("s").asi8.astype(np.float64)
    return seconds / 86_400


def _levels(text: "pd.Series[Any]", name: str, file: str, max_levels: int, before: int) -> Encoded:
    values = text.to_numpy(dtype=np.str_)
    levels, codes = np.unique(values, return_inverse=True)
    first = str(values[0])
    require(
        not all(_DATE.fullmatch(level) for level in levels.tolist()),
        f"{file}: column {name} holds dates, such as {first!r}: accepted are numbers, words and dates such as "
        f"2024-03-31, so write the dates like that, or leave the column out with {drop_remedy(name)}",
    )
    own = len(values) >= ENOUGH_TO_TELL and len(levels) == len(values)
    require(
        not own,
        f"{file}: column {name} has another text in every record, such as {_short(first)}: it is an identifier or free "
        f"text, from which nothing can be learned: leave it out with {drop_remedy(name)}",
    )
    require(
        len(levels) <= max_levels,
        f"{file}: column {name} has {len(levels):,} different texts, such as {_short(first)}, and max-levels is "
        f"{max_levels}: leave the column out with {drop_remedy(name)}, or set max-levels = {len(levels)} there",
    )
    check_width(before + len(levels), len(values), name, file)
    detail = f"{len(levels)} of them, a feature each: {_some(levels)}"
    features = np.zeros((len(values), len(levels)), dtype=np.float32)
    features[np.arange(len(values)), codes] = 1
    return Encoded(ColumnUse(name, ColumnKind.LEVELS, detail), features)


def _counts(numbers: NDArray[np.float64]) -> bool:
    """Return whether the numbers are consecutive whole ones, each once: what numbers records, in any order."""
    return len(numbers) >= ENOUGH_TO_TELL and bool((np.diff(np.sort(numbers)) == 1).all())


def _some(levels: NDArray[np.generic] | Sequence[str]) -> str:
    names = ", ".join(str(level)[:20] for level in levels[:_EXAMPLES])
    return f"{names}, ..." if len(levels) > _EXAMPLES else names


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else f"{text[:27]}...")
