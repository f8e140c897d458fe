"""Find words for missing values, and leave out or impute the records that lack values."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.array_types import Flags
from fl_audit.data import remedies
from fl_audit.data.column_encoding import SourceFileRows, numbers_of
from fl_audit.data.loaded_dataset import DataWarning, first_names_text
from fl_audit.data.table_settings import TableSettings
from fl_audit.data.written_numbers import DECIMAL_MARKS, is_number, rewrite_amounts
from fl_audit.errors import InputError, require

USUAL_WORDS = frozenset(
    {"#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""Strings that pandas reads as missing values by default."""
_FOLDED = frozenset(word.casefold() for word in USUAL_WORDS)
_TRUTH = frozenset({"true", "false"})
_CLASSES_NAMED = 5
_COLUMNS_NAMED = 5
_MOSTLY_EMPTY = 0.5  # share of missing values from which a column, and not its records, is left out
_LEAST_KEPT = 0.5  # share of the records of a class; if fewer are left, a warning says so
INDICATOR = "{} is missing"
"""Name of the column that says where a column had no value."""


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


def complete_records(
    frame: pd.DataFrame, path: Path, settings: TableSettings
) -> tuple[pd.DataFrame, list[DataWarning]]:
    """Return the records without missing values, and a warning for each class that loses over half of its records.

    If missing values are filled later, only records without a label, an owner or a user are left out, and the words
    for missing values among numbers become gaps.

    Raises `InputError` if a value is missing and the settings do not say that such records are left out, or if every
    record of a class lacks a value.
    """
    words = words_among_numbers(frame)
    gaps = frame.isna()
    for name, column_words in words.items():
        gaps[name] |= frame[name].astype(str).str.strip().isin(column_words)
    if not gaps.to_numpy().any():
        return frame, []
    if settings.imputes:
        usable = _require_labels(gaps, path, settings)
        return frame.mask(gaps).take(np.flatnonzero(usable)), []
    if settings.missing is None or words:
        refusal = _refusal(frame, gaps, path, settings.kept, words)
        raise refusal
    complete = ~_any_of_record(gaps)
    usable = _require_labels(gaps, path, settings)
    classes = frame[settings.label].astype(str).str.strip().to_numpy(dtype=np.str_)
    if settings.is_regression or len(np.unique(classes[usable])) > settings.most_words:
        classes = np.full(len(frame), "")  # those of a quantity, which is refused later, are no classes
    _require_classes(classes, usable, complete, gaps.drop(columns=settings.kept), path)
    warnings = list(_halved(classes, usable, complete, gaps.drop(columns=settings.kept), path))
    return frame.take(np.flatnonzero(complete)), warnings


def _require_labels(gaps: pd.DataFrame, path: Path, settings: TableSettings) -> Flags:
    """Return whether each record has a label, an owner and a user, as far as these are named; refuse if none has."""
    usable: Flags = ~_any_of_record(gaps[settings.kept])
    require(bool(usable.any()), f"{path} has no label in any record: accepted are labels")
    return usable


def _any_of_record(gaps: pd.DataFrame) -> Flags:
    return np.asarray(gaps.to_numpy().any(axis=1), dtype=np.bool_)


def _refusal(
    frame: pd.DataFrame, gaps: pd.DataFrame, path: Path, kept_columns: Sequence[str], words: Mapping[str, Sequence[str]]
) -> InputError:
    """Return the error for missing values: it leaves out mostly empty columns first, and then records.

    `kept_columns` are columns that cannot be left out.
    """
    missing = gaps.to_numpy(dtype=np.bool_)
    row, position = (int(axis[0]) for axis in np.nonzero(missing))
    name = str(gaps.columns[position])
    word = "" if frame[name].isna().iloc[row] else f"the word {str(frame.iloc[row, position]).strip()!r} for "
    text = f"{path} has {word}a missing value in column {name}, row {row + 1}: accepted are values throughout, and "
    text += f"{missing.any(axis=1).sum():,} of {len(gaps):,} records lack one; "
    shares = gaps.drop(columns=kept_columns).mean()
    empty = [str(column) for column in shares.index[shares >= _MOSTLY_EMPTY]]
    if empty and len(empty) < len(shares):
        drop = remedies.drop(*empty)
        listed = ", ".join(f"{column} ({shares[column]:.0%})" for column in empty[:_COLUMNS_NAMED])
        suffix = ", ..." if len(empty) > _COLUMNS_NAMED else ""
        return InputError(f"{text}{drop} leaves out what is mostly empty, {listed}{suffix}", (drop,))
    records = remedies.missing(*sorted({word for column_words in words.values() for word in column_words}))
    text += f"leave out the records where one is missing with {records}"
    if name in kept_columns:
        return InputError(text, (records,))
    impute = remedies.impute()
    if len(shares) == 1:
        return InputError(f"{text}, or fill them with {impute}", (records,), (impute,))
    drop = remedies.drop(name)
    return InputError(f"{text}, the column with {drop}, or fill them with {impute}", (records,), (drop, impute))


def _require_classes(classes: NDArray[np.str_], usable: Flags, complete: Flags, gaps: pd.DataFrame, path: Path) -> None:
    """Raise `InputError` if a class would have no record left; the name "" stands for all classes together."""
    lost = [str(name) for name in np.unique(classes[usable]) if not (complete & (classes == name)).any()]
    if not lost:
        return
    classes_text = ", ".join(map(repr, lost[:_CLASSES_NAMED])) + (", ..." if len(lost) > _CLASSES_NAMED else "")
    subject = f"every record of class {classes_text}" if lost[0] else "every record"
    emptiest = _emptiest_column(gaps[usable & np.isin(classes, lost)])
    ways = [] if len(gaps.columns) == 1 else [remedies.drop(emptiest)]
    leaves = [f"{ways[0]} leaves out the column that they lack most"] if ways else []
    without = remedies.missing(*lost)
    if lost[0]:
        ways.append(without)
        leaves.append(f"{without} leaves out such classes")
    helps = ", or ".join(leaves) if leaves else "accepted is a column that is filled in some records"
    raise InputError(f"{path}: {subject} lacks a value in some column: {helps}", tuple(ways[:1]), tuple(ways[1:]))


def _halved(
    classes: NDArray[np.str_], usable: Flags, complete: Flags, gaps: pd.DataFrame, path: Path
) -> Iterator[DataWarning]:
    """Yield a warning for each class of which more than half of the records lack a value."""
    for name in np.unique(classes[usable]).tolist():
        is_of_class = usable & (classes == name)
        total = int(is_of_class.sum())
        remaining = int((is_of_class & complete).sum())
        if name and remaining < _LEAST_KEPT * total:
            drop = remedies.drop(_emptiest_column(gaps[is_of_class]))
            lack = f"in {path.name} lack a value and are left out; {drop} would keep more"
            yield DataWarning(f"{total - remaining:,} of the {total:,} records of class {name!r} {lack}", (drop,))


def _emptiest_column(gaps: pd.DataFrame) -> str:
    return str(gaps.mean().idxmax())


def imputed(
    joint: pd.DataFrame, file_rows: SourceFileRows, settings: TableSettings
) -> tuple[pd.DataFrame, list[DataWarning]]:
    """Return a table without gaps in its features, and a warning that the fillings are not private.

    A gap in a column of numbers or dates gets the median, one in a column of words the most frequent word, and of ties
    the first in the order of words; both of the training records. For each column with a gap there, a further column is
    1 where the value was missing, and 0 elsewhere.

    Raises `InputError` if a column has no value in any training record.

    Shapes: `joint` has the training records first, then the test records.
    """
    filled = dict[str, Any]()
    names = list[str]()
    gaps = joint.drop(columns=settings.kept).isna()
    for name in map(str, gaps.columns[gaps.any()]):
        missing = gaps[name]
        in_training = missing.iloc[: file_rows.train]
        drop = remedies.drop(name)
        empty = f"{file_rows.file} has no value in column {name}, so there is none to fill in"
        require(not in_training.all(), f"{empty}: leave it out with {drop}", drop)
        filled[name] = _filled(joint[name], missing, file_rows, settings)
        names.append(name)
        if in_training.any():
            indicator = INDICATOR.format(name)
            problem = f"{file_rows.file} has a column {indicator!r}, which would say where {name} is missing"
            require(indicator not in joint, f"{problem}: accepted is another name")
            filled[indicator] = missing.astype(float)
    if not names:
        return joint, []
    count = int(gaps.to_numpy().sum())
    text = (
        f"{count:,} missing values in column {first_names_text(names)} are filled with the median or the most frequent "
        "word of the training file, which the guarantee does not cover: both are computed from the records as they are"
    )
    return joint.assign(**filled), [DataWarning(text, in_report=True)]


def _filled(
    column: "pd.Series[Any]", missing: "pd.Series[bool]", file_rows: SourceFileRows, settings: TableSettings
) -> "pd.Series[Any]":
    """Return a column whose gaps are filled; its numbers and dates become float64."""
    series = column[~missing]
    in_training = int((~missing).iloc[: file_rows.train].sum())
    rows = SourceFileRows(file_rows.file, file_rows.test_file, in_training, file_rows.rows[(~missing).to_numpy()])
    numbers, _ = numbers_of(series, str(column.name), rows, settings.decimal or ".")
    if numbers is not None:
        values = pd.Series(numbers, index=series.index)
        return values.reindex(column.index).fillna(values.iloc[: rows.train].median())
    words = series.astype(str).str.strip()
    most_frequent = words.iloc[: rows.train].mode().iloc[0]
    return words.reindex(column.index).fillna(most_frequent)
