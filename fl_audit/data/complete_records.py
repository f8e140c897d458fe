"""Leave out records with missing values, or refuse a table with such records and name the setting that helps."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.array_types import Flags
from fl_audit.data import remedies
from fl_audit.data.loaded_dataset import DataWarning
from fl_audit.data.missing_value_words import words_among_numbers
from fl_audit.data.table_settings import TableSettings
from fl_audit.errors import InputError, require

_CLASSES_NAMED = 5
_COLUMNS_NAMED = 5
_MOSTLY_EMPTY = 0.5  # share of missing values from which a column, and not its records, is left out
_LEAST_KEPT = 0.5  # share of the records of a class; if fewer are left, a warning says so


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
