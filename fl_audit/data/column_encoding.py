"""Encode the columns of a table as numeric or one-hot features; errors name the setting that fixes a column."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats, Floats32, Integers
from fl_audit.data import remedies
from fl_audit.data.encoding import min_max
from fl_audit.data.identifier_names import is_person_name
from fl_audit.data.loaded_dataset import ColumnReadResult, ColumnRole, DataWarning, IdentifyingColumn
from fl_audit.data.table_settings import TableSettings
from fl_audit.data.written_numbers import BOUND, DECIMAL_MARKS, is_number, rewrite_amounts
from fl_audit.errors import InputError, require

LARGEST_TABLE = 2**30  # numbers in the features of all records: 4 GiB
ENOUGH_TO_TELL = 20  # in a table of fewer records, values that are all different say nothing about what the column is
_SHARE_OF_NUMBERS = 0.5
_EXAMPLES = 3
_CLASSES = 10
_MOST_LINES = 20  # columns with a line of their own in a description of a table
_MOST_WORDS = 5  # words among numbers that could each stand for a missing value

_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
_DOTTED_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}")
# With points the day comes first wherever dates are written so; with slashes nobody can tell.
_DATE_FORMS = ((_ISO_DATE, "ISO8601"), (_DOTTED_DATE, "%d.%m.%Y"))
_SLASHED_DATE = re.compile(r"\d{1,2}/\d{1,2}/\d{2}(\d{2})?( \d{1,2}:\d{2}.*)?")


@dataclass(frozen=True)
class EncodedColumn:
    """A table column encoded as features, with a description of how it was read."""

    use: ColumnReadResult  # how the column was read: its name, kind and range or levels
    features: Floats32  # float32, shape (records, 1) for numbers, (records, levels) for levels
    cautions: tuple[DataWarning, ...] = ()  # warnings about the content of the column


@dataclass(frozen=True, eq=False)
class SourceFileRows:
    """Files and rows from which the records of a table come."""

    file: str  # file of the records that training sets are drawn from
    test_file: str  # file of the test records that follow them; the same file if there are none
    train: int  # number of records from `file`, at least 1
    rows: Integers  # row number of every record in its file, shape (records,); the row below the header is 1

    def cell(self, position: int, column: str, value: str) -> str:
        """Return the beginning of a message about a cell, which names its file, content, column and row."""
        file = self.file if position < self.train else self.test_file
        return f"{file} has {value} in column {column}, row {self.rows[position]}"


def encode_column(
    column: "pd.Series[Any]",
    name: str,
    file_rows: SourceFileRows,
    settings: TableSettings,
    before: int,
    identifier: IdentifyingColumn | None,
) -> EncodedColumn:
    """Encode a table column without missing cells as features, and describe how it was read.

    Numbers and dates, also in forms such as `12%`, `1,234` and `31.3.2024`, are scaled to [0, 1] by their range in the
    training file. Words become one-hot features, one for each level.

    Raises `InputError` for features that need too much memory, dates of another form, an identifier, free text, numbers
    without a column name, and numbers mixed with a few words.

    `before`: Number of features of the columns before.

    `identifier`: How the column identifies persons; it only adds advice to an error message.
    """
    numbers, note = numbers_of(column, name, file_rows, settings.decimal or ".")
    if numbers is None:
        return _levels(column.astype(str).str.strip(), name, file_rows.file, settings.most_words, before, identifier)
    train = file_rows.train
    drop = remedies.drop(name)
    nameless = "a column of numbers without a name, such as programs add to number the records"
    remedy = f"give it a name, or leave it out with {drop}"
    require(not re.fullmatch(r"Unnamed: \d+", name), f"{file_rows.file} has {nameless}: {remedy}", drop)
    _check_width(before + 1, len(numbers), name, file_rows.file)
    scaled, test_part = min_max(numbers[:train, np.newaxis], numbers[train:, np.newaxis])
    assert test_part is not None
    low = numbers[:train].min()
    high = numbers[:train].max()
    detail = f"{low:g} to {high:g}{note}, scaled to 0 to 1" if high > low else f"{low:g} in every record, so always 0"
    ordered = np.sort(numbers[:train])
    # Consecutive whole numbers, each once, in any order.
    numbers_records = len(ordered) >= ENOUGH_TO_TELL and bool((np.diff(ordered) == 1).all())
    if numbers_records:
        detail += f"; it numbers the records, which says nothing of them: consider {drop}"
    use = ColumnReadResult(name, ColumnRole.NUMBER, detail, odd=numbers_records or high == low or bool(note))
    return EncodedColumn(use, np.concatenate([scaled, test_part]).astype(np.float32), tuple(_bounds(column, name)))


def _bounds(column: "pd.Series[Any]", name: str) -> Iterator[DataWarning]:
    """Yield a warning if a column has bounds such as `<0.5`, which were read as numbers."""
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return
    cells = column.astype(str).str.strip()
    bounded = cells[cells.str.match(BOUND)]
    if len(bounded):
        words = tuple(sorted(bounded.unique().tolist()))
        share = f"{len(bounded):,} of {len(cells):,} records ({len(bounded) / len(cells):.1%})"
        text = f"column {name} has {_some(words)} in {share}, read as the number behind the sign"
        remedy = remedies.missing(*words)
        yield DataWarning(f"{text}: {remedy} leaves these records out", (remedy,))


def _check_width(width: int, records: int, name: str, file: str) -> None:
    become = f"{width:,} features of {records:,} records, more than {LARGEST_TABLE:,} numbers"
    drop = remedies.drop(name)
    remedy = f"{drop} leaves out the last of them"
    require(width * records <= LARGEST_TABLE, f"{file}: the columns up to {name} become {become}: {remedy}", drop)


def column_lines(columns: Sequence[ColumnReadResult]) -> list[str]:
    """Return lines of text that say how each column of a table was read.

    Each column has one line if there are at most 20 columns. Otherwise only label, owner and unusual columns have a
    line, 20 of them at most. The last line then counts the other columns by kind.

    Examples
    --------
    >>> column_lines([ColumnReadResult("age", ColumnRole.NUMBER, "20 to 40, scaled to 0 to 1")])
    ['age: number, 20 to 40, scaled to 0 to 1']
    """
    if len(columns) <= _MOST_LINES:
        return [str(column) for column in columns]
    odd = [column for column in columns if column.odd or column.kind in (ColumnRole.LABEL, ColumnRole.OWNER)]
    read_results = odd[:_MOST_LINES]
    counter = Counter(column.kind for column in columns if column not in read_results)
    counts = ", ".join(f"{number} as {kind}" for kind, number in counter.items())
    return [*map(str, read_results), *([f"and {counter.total()} further columns: {counts}"] if counter else [])]


def described_names(name: str, role: ColumnRole, levels: NDArray[np.generic] | Sequence[str]) -> ColumnReadResult:
    """Describe how a column of labels, owners or users was read: by the number and the first few of its values."""
    noun, most_shown = ("classes", _CLASSES) if role is ColumnRole.LABEL else ("of them", _EXAMPLES)
    return ColumnReadResult(name, role, f"{len(levels)} {noun}: {_some(levels, most_shown)}")


def check_classes(values: NDArray[np.generic], name: str, most_classes: int | None = None) -> None:
    """Raise `InputError` if labels have so many different values that they look like a quantity to predict.

    Shapes: `values` (n,).

    `most_classes`: Largest number of classes that is accepted; None accepts any. In 20 records or more, classes have
    two records each on average.
    """
    records = len(values)
    classes = len(np.unique(values))
    is_quantity = records >= ENOUGH_TO_TELL and 2 * classes > records
    if not is_quantity and classes <= (most_classes or classes):
        return
    noun = "different values" if values.dtype.kind in "US" else "different numbers"
    problem = f"{name} has {classes:,} {noun} in {records:,} records, which looks like a quantity to predict"
    accepted = "accepted are labels that name a class, so put the values into groups"
    quantity = () if values.dtype.kind in "US" else (remedies.task(),)
    learned = f"; {quantity[0]} learns the quantity" if quantity else ""
    is_whole = values.dtype.kind != "f" or bool((values == np.floor(values.astype(np.float64))).all())
    if is_quantity or not is_whole:
        raise InputError(f"{problem}: {accepted}{learned}", quantity)
    remedy = remedies.max_levels(classes)
    raise InputError(f"{problem}: {accepted}, or {remedy} if these are classes{learned}", choices=(remedy, *quantity))


def numbers_of(
    column: "pd.Series[Any]", name: str, file_rows: SourceFileRows, decimal: str
) -> tuple[Floats | None, str]:
    """Return a column as numbers (dates as days since 1970), with a note on their notation; None for words."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64), ""
    if (days := _days(column)) is not None:
        return days, " (days since 1970)"
    codes, raw = pd.factorize(column.astype(str).str.strip())
    text, notes = rewrite_amounts(pd.Series(raw, dtype=str))
    other_mark = DECIMAL_MARKS[decimal == "."]
    written, otherwise = (np.array([is_number(cell, mark) for cell in text]) for mark in (decimal, other_mark))
    if written.all():
        left_out = [repr(mark) for mark in ("%", other_mark) if text.str.contains(mark, regex=False).any()]
        notes = [*notes, *([f"{' and '.join(left_out)} left out"] if left_out else [])]
        plain = text.str.replace(rf"[{other_mark}%\s]", "", regex=True).str.replace(",", ".", regex=False)
        return plain.to_numpy(dtype=np.float64)[codes], f" ({'; '.join(notes)})" if notes else ""
    cell = file_rows.cell(int(np.argmin(written[codes])), name, _short(str(raw[~written][0])))
    drop = remedies.drop(name)
    remedy = f"the decimals of the other columns have the mark {decimal!r}"
    accepted = f"accepted is one mark throughout, or {drop} to leave the column out"
    require(not otherwise.all(), f"{cell}, and {remedy}: {accepted}", drop)
    _require_one_kind(written[codes], raw[codes], name, file_rows, "numbers")
    _require_one_kind(are_dates(pd.Series(raw, dtype=str))[codes], raw[codes], name, file_rows, "dates")
    return None, ""


def _require_one_kind(fits: Flags, cells: "pd.Index[Any]", name: str, file_rows: SourceFileRows, kind: str) -> None:
    """Raise `InputError` if most cells of a column are of one kind and a few are not; `fits` has a flag for each."""
    # Such a column is a spoilt measurement, and one level for each number or date would hide that.
    if fits.all() or fits.mean() <= _SHARE_OF_NUMBERS:
        return
    words = tuple(dict.fromkeys(str(cell) for cell in cells[~fits]))
    drop = remedies.drop(name)
    cell = file_rows.cell(int(np.argmin(fits)), name, _short(words[0]))
    accepted = f"where most cells are {kind}: accepted are {kind} throughout"
    if len(words) > _MOST_WORDS:
        further = f"and {len(words) - 1:,} further words stand there"
        raise InputError(f"{cell}, {further}, {accepted}; {drop} leaves out the column", (drop,))
    missing = remedies.missing(*words)
    leaves = f"{missing} leaves out the records where a value is missing, {drop} the column"
    raise InputError(f"{cell}, {accepted}; {leaves}", (missing,), (drop,))


def are_dates(cells: "pd.Series[Any]") -> Flags:
    """Return for each cell whether it is a date that exists; with slashes, day and month may have either order."""
    is_date = cells.str.fullmatch(_SLASHED_DATE).to_numpy(dtype=np.bool_, copy=True)
    for pattern, form in _DATE_FORMS:
        of_form = cells.str.fullmatch(pattern).to_numpy(dtype=np.bool_)
        is_date[of_form] = pd.to_datetime(cells[of_form], errors="coerce", format=form, utc=True).notna()
    return is_date


def _days(column: "pd.Series[Any]") -> Floats | None:
    """Return dates as days since 1970; None if a cell has another form than 2024-03-31 or 31.3.2024.

    Dates with slashes are refused, because day and month are ambiguous.
    """
    if not pd.api.types.is_datetime64_any_dtype(column):
        # The first cell settles most columns of text at once, however long they are.
        first = str(column.iloc[0]).strip()
        form, written = next(
            ((form, date_form) for form, date_form in _DATE_FORMS if form.fullmatch(first)), (None, "")
        )
        if form is None:
            return None
        text = column.astype(str).str.strip()
        if not all(form.fullmatch(cell) for cell in text.unique()):
            return None
        column = pd.to_datetime(text, errors="coerce", format=written, utc=True)
        if column.isna().any():
            return None
    seconds: Floats = pd.DatetimeIndex(column).as_unit("s").asi8.astype(np.float64)
    return seconds / 86_400


def _levels(
    text: "pd.Series[Any]", name: str, file: str, most_levels: int, before: int, column: IdentifyingColumn | None
) -> EncodedColumn:
    values = text.to_numpy(dtype=np.str_)
    drop = remedies.drop(name)
    levels, codes = np.unique(values, return_inverse=True)
    first = str(values[0])
    are_all_dates = all(_DATE.fullmatch(level) for level in levels.tolist())
    accepted = "accepted are numbers, words and dates such as 2024-03-31 and 31.3.2024, so write the dates like that"
    dates = f"{file}: column {name} holds dates, such as {first!r}"
    require(not are_all_dates, f"{dates}: {accepted}, or leave the column out with {drop}", drop)
    is_unique = len(values) >= ENOUGH_TO_TELL and len(levels) == len(values)
    if column is not None and column.most > 1 and (is_unique or len(levels) > most_levels):
        refusal = _refused_person_column(column, file, len(levels))
        raise refusal
    problem = f"{file}: column {name} has another text in every record, such as {_short(first)}"
    useless = (
        f"it is an identifier or free text, from which no table can learn: leave it out with {drop}{_hint(values)}"
    )
    require(not is_unique, f"{problem}: {useless}", drop)
    if len(levels) > most_levels:
        more_levels = remedies.max_levels(len(levels))
        excess = f"{len(levels):,} different texts, such as {_short(first)}, and max-levels is {most_levels}"
        remedy = f"leave the column out with {drop}, or allow for them with {more_levels}{_hint(values)}"
        raise InputError(f"{file}: column {name} has {excess}: {remedy}", (drop,), (more_levels,))
    _check_width(before + len(levels), len(values), name, file)
    alone = f"{first[:20]} in every record, so always 1" if len(levels) == 1 else ""
    detail = alone or f"{len(levels)} of them, a feature each: {_some(levels)}"
    features = np.zeros((len(values), len(levels)), dtype=np.float32)
    features[np.arange(len(values)), codes] = 1
    return EncodedColumn(ColumnReadResult(name, ColumnRole.LEVELS, detail, odd=bool(alone)), features)


def _refused_person_column(column: IdentifyingColumn, file: str, levels: int) -> InputError:
    """Return the error for a column of words that says whom each record is about, and can be no feature.

    The advice to leave it out is for columns alone whose name does not say that they identify persons.
    """
    name = column.name
    drop = remedies.drop(column.name)
    repeated = f"in {column.rows:,} records, up to {column.most:,} each"
    if column.beginning:
        problem = f"words that begin in {column.values:,} ways, such as {column.beginning!r}, {repeated}"
        advice = "if the beginning says whom a record is about, give it a column of its own and name that as the user"
        sentence = f"{file}: column {name} has {problem}: {advice}; if it does not, {drop} leaves the column out"
        return InputError(sentence, choices=(drop,))
    user = remedies.user(name)
    remedy = remedies.max_levels(levels)
    problem = f"{file}: column {name} has {levels:,} different texts {repeated}"
    if is_person_name(name):
        text = f"{problem}: it says whom each record is about, so name it with {user}"
        return InputError(text, (user,))
    advice = f"if it says whom each record is about, name it with {user}; else {drop} or {remedy}"
    return InputError(f"{problem}: {advice}", (user,), (drop, remedy))


TEXT_HINT = "text in [data] names a column of text that a model of text learns from"


def _hint(values: NDArray[np.str_]) -> str:
    """Return advice to read the column as text; empty if most cells are one word."""
    return f"; {TEXT_HINT}" if 2 * sum(" " in text for text in values.tolist()) > len(values) else ""


def _some(levels: NDArray[np.generic] | Sequence[str], most_shown: int = _EXAMPLES) -> str:
    names = ", ".join(str(level)[:20] for level in levels[:most_shown])
    return f"{names}, ..." if len(levels) > most_shown else names


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else f"{text[:27]}...")
