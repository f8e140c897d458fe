"""Records with a missing value, and how to do without them so that no class is lost."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.arrays import Flags
from fl_audit.data.records import Caution
from fl_audit.errors import InputError, Remedy, require

_LEAST_KEPT = 0.5  # share of the records of every class that is left at least where records are left out
_CLASSES_NAMED = 5


def complete_records(
    frame: pd.DataFrame, path: Path, label: str, owner: str | None, leave_out: bool, max_classes: int
) -> tuple[pd.DataFrame, list[Caution]]:
    """Return the records without a missing cell, and a warning of each class that loses most of its records.

    Parameters
    ----------
    frame
        A table.
    path
        Where it comes from, for messages.
    label
        Name of the label column, which is never left out.
    owner
        Name of the column that says whose a record is, never left out either; None where there is none.
    leave_out
        Whether records may be left out.
    max_classes
        Largest number of classes. With more labels they are taken for quantities, and no class is looked after.

    Raises
    ------
    InputError
        If a cell is missing and records may not be left out, or a class would have no record left. The remedies leave
        out columns, those that lack most first, until every class keeps half of its records.
    """
    gaps = frame.isna()
    missing: Flags = gaps.to_numpy(dtype=np.bool_)
    if not missing.any():
        return frame, []
    kept = ~missing.any(axis=1)
    fixed = [label] if owner is None else [label, owner]
    usable = ~gaps[fixed].any(axis=1).to_numpy(dtype=np.bool_)
    classes = frame[label].astype(str).str.strip().to_numpy(dtype=np.str_)
    if len(np.unique(classes[usable])) > max_classes:
        classes = np.full(len(frame), "")
    beside = gaps.drop(columns=fixed)
    columns = _lacking(beside[usable], classes[usable])
    if not leave_out:
        refusal: InputError = _refusal(gaps, path, fixed, columns)
        raise refusal
    names, totals = np.unique(classes[usable], return_counts=True)
    left = np.array([np.count_nonzero(kept & (classes == name)) for name in names])
    gone = [str(name) for name in names[left == 0]]
    drop = Remedy("drop", tuple(columns))
    if gone and columns:
        what = f"every record of class {', '.join(map(repr, gone[:_CLASSES_NAMED]))}" if gone[0] else "every record"
        without = Remedy("missing", tuple(gone))
        text = f"{path}: {what} lacks a value in some column: {drop} leaves out the columns that lack most"
        raise InputError(f"{text}, {without} such classes" if gone[0] else text, (drop,), (without,))
    require(bool(kept.any()), f"{path} has no label in any record: accepted are labels")
    halved = [
        Caution(
            f"{total - few:,} of the {total:,} records of class {name!r} in {path.name} lack a value and are left out; "
            f"{drop} would keep more",
            (drop,),
        )
        for name, few, total in zip(names.tolist(), left.tolist(), totals.tolist(), strict=True)
        if name and few < _LEAST_KEPT * total
    ]
    return frame.take(np.flatnonzero(kept)), halved


def _refusal(gaps: pd.DataFrame, path: Path, fixed: Sequence[str], columns: Sequence[str]) -> InputError:
    missing = gaps.to_numpy(dtype=np.bool_)
    row, position = (int(axis[0]) for axis in np.nonzero(missing))
    name = str(gaps.columns[position])
    text = (
        f"{path} has a missing value in column {name}, row {row + 1}: accepted are values throughout, and "
        f"{missing.any(axis=1).sum():,} of {len(gaps):,} records lack one; "
    )
    records, first = Remedy("missing", ()), Remedy("drop", (name,))
    if not columns:
        other = "" if name in fixed else f", or the column with {first}"
        return InputError(
            f"{text}leave out the records where one is missing with {records}{other}", (records,), (first,)
        )
    rest = gaps.drop(columns=list(columns)).to_numpy(dtype=np.bool_).any(axis=1)
    drop = Remedy("drop", tuple(columns))
    most = ", ".join(f"{column} ({gaps[column].mean():.0%})" for column in columns[:_CLASSES_NAMED])
    text += (
        f"without them a class would lose most of its records, so leave out the columns that lack most, {most}, with "
        f"{drop}"
    )
    if not rest.any():
        return InputError(text, (drop,))
    return InputError(f"{text}, and the {rest.sum():,} records that then lack a value with {records}", (drop, records))


def _lacking(gaps: pd.DataFrame, classes: NDArray[np.str_]) -> list[str]:
    """Return the columns without which every class keeps half of its records, those that lack most first."""
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
