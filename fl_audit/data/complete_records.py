"""Leave out records with missing values, or refuse a table with such records and name the settings that help."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.array_types import Flags
from fl_audit.data.loaded_dataset import DataWarning
from fl_audit.data.missing_value_words import words_among_numbers
from fl_audit.data.table_settings import TableSettings
from fl_audit.errors import InputError, Remedy, require

_CLASSES_NAMED = 5
_LEAST_KEPT = 0.5  # share of the records of every class that is left at least where records are left out


def complete_records(
    frame: pd.DataFrame, path: Path, settings: TableSettings
) -> tuple[pd.DataFrame, list[DataWarning]]:
    """Return the records without missing values, and a warning for each class that loses over half of its records."""
    # If no record may be left out, or a class would have no record left, remedies leave out columns, first those that
    # lack most, until every class keeps half of its records. With more than `max_levels` labels, classes are ignored.
    words = words_among_numbers(frame)
    gaps = frame.isna()
    for name, own in words.items():
        gaps[name] |= frame[name].astype(str).str.strip().isin(own)
    missing: Flags = gaps.to_numpy(dtype=np.bool_)
    if not missing.any():
        return frame, []
    kept, fixed = ~missing.any(axis=1), settings.kept
    usable = ~gaps[fixed].any(axis=1).to_numpy(dtype=np.bool_)
    classes = frame[settings.label].astype(str).str.strip().to_numpy(dtype=np.str_)
    if len(np.unique(classes[usable])) > settings.max_levels:
        classes = np.full(len(frame), "")
    beside = gaps.drop(columns=fixed)
    columns = _lacking(beside[usable], classes[usable])
    if set(columns) >= set(beside.columns):
        columns = []  # nothing would be left to learn from
    if settings.missing is None or words:
        refusal = _refusal(frame, gaps, path, fixed, columns)
        raise refusal
    names, totals = np.unique(classes[usable], return_counts=True)
    left = np.array([np.count_nonzero(kept & (classes == name)) for name in names])
    gone = [str(name) for name in names[left == 0]]
    drop = Remedy("drop", tuple(columns))
    if gone and columns:
        lost = _lost_classes(gone, drop, path)
        raise lost
    require(bool(usable.any()), f"{path} has no label in any record: accepted are labels")
    filled = "accepted are tables with a column that is filled in some records of every class"
    require(
        bool(kept.any()) and not any(gone), f"{path}: every record of a class lacks a value in every column: {filled}"
    )
    lack = f"in {path.name} lack a value and are left out; {drop} would keep more"
    halved = [
        DataWarning(f"{total - few:,} of the {total:,} records of class {name!r} {lack}", (drop,))
        for name, few, total in zip(names.tolist(), left.tolist(), totals.tolist(), strict=True)
        if name and few < _LEAST_KEPT * total
    ]
    return frame.take(np.flatnonzero(kept)), halved


def _lost_classes(gone: Sequence[str], drop: Remedy, path: Path) -> InputError:
    """Return the error for classes without a complete record.

    `gone` has the names of these classes. The name "" at the first place stands for all classes together.
    """
    what = f"every record of class {', '.join(map(repr, gone[:_CLASSES_NAMED]))}" if gone[0] else "every record"
    without = Remedy("missing", tuple(gone))
    text = f"{path}: {what} lacks a value in some column: {drop} leaves out the columns that lack most"
    return InputError(f"{text}, {without} such classes" if gone[0] else text, (drop,), (without,))


def _refusal(
    frame: pd.DataFrame, gaps: pd.DataFrame, path: Path, fixed: Sequence[str], columns: Sequence[str]
) -> InputError:
    """Return the error for missing values, with the settings that leave out the records or columns concerned.

    `gaps` says of each cell of the features whether it is missing. `columns` are those that should be dropped, because
    without their incomplete records a class would lose most of its records. `fixed` are columns that cannot be dropped.
    """
    missing = gaps.to_numpy(dtype=np.bool_)
    row, position = (int(axis[0]) for axis in np.nonzero(missing))
    name = str(gaps.columns[position])
    word = "" if frame[name].isna().iloc[row] else f"the word {str(frame.iloc[row, position]).strip()!r} for "
    text = f"{path} has {word}a missing value in column {name}, row {row + 1}: accepted are values throughout, and "
    text += f"{missing.any(axis=1).sum():,} of {len(gaps):,} records lack one; "
    among = words_among_numbers(frame.drop(columns=list(columns)))
    records = Remedy("missing", tuple(sorted({one for own in among.values() for one in own})))
    first = Remedy("drop", (name,))
    if not columns:
        text += f"leave out the records where one is missing with {records}"
        if name in fixed or len(gaps.columns) == len(fixed) + 1:
            return InputError(text, (records,))
        return InputError(f"{text}, or the column with {first}", (records,), (first,))
    rest = gaps.drop(columns=list(columns)).to_numpy(dtype=np.bool_).any(axis=1)
    drop = Remedy("drop", tuple(columns))
    most = ", ".join(f"{column} ({gaps[column].mean():.0%})" for column in columns[:_CLASSES_NAMED])
    text += "without them a class would lose most of its records, so leave out the columns that lack most, "
    text += f"{most}, with {drop}"
    if not rest.any():
        return InputError(text, (drop,))
    return InputError(f"{text}, and the {rest.sum():,} records that then lack a value with {records}", (drop, records))


def _lacking(gaps: pd.DataFrame, classes: NDArray[np.str_]) -> list[str]:
    """Return the columns to drop so that at least half of the records of every class are complete.

    Each step drops the column with most gaps in the class with the fewest complete records.
    """
    missing = gaps.to_numpy(dtype=np.bool_)
    _, codes = np.unique(classes, return_inverse=True)
    totals = np.bincount(codes)
    of_class = np.zeros((len(totals), missing.shape[1]), dtype=np.int64)
    np.add.at(of_class, codes, missing)
    per_record, columns = missing.sum(axis=1), []
    while len(totals):
        share = np.bincount(codes[per_record == 0], minlength=len(totals)) / totals
        worst = int(np.argmin(share))
        if share[worst] >= _LEAST_KEPT:
            break
        most = int(np.argmax(of_class[worst]))
        columns.append(str(gaps.columns[most]))
        per_record = per_record - missing[:, most]
        of_class[:, most] = -1
    return columns
