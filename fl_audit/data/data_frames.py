"""Convert data frames to records for training, and describe how each column was read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.array_types import Flags
from fl_audit.data.column_encoding import (
    TEXT_HINT,
    EncodedColumn,
    SourceFileRows,
    check_classes,
    described_names,
    drop_remedy,
    encode_column,
)
from fl_audit.data.encoding import UNKNOWN_OWNERS, Owners, build_records, encode_labels, encode_owners
from fl_audit.data.identifier_detection import identifiers, most_personal, possible_identifiers
from fl_audit.data.missing_value_codes import words_among_numbers
from fl_audit.data.records import (
    ColumnReadResult,
    ColumnRole,
    DataWarning,
    IdentifyingColumn,
    LoadedDataset,
    side_by_side,
)
from fl_audit.data.table_settings import TableSettings
from fl_audit.data.texts import EncodedTexts, encode_texts
from fl_audit.data.warnings import cautions, header_warnings, one_spelling
from fl_audit.errors import InputError, Remedy, require

_LEAST_KEPT = 0.5  # share of the records of every class that is left at least where records are left out
_CLASSES_NAMED = 5


def chosen_columns(frame: pd.DataFrame, path: Path, settings: TableSettings) -> pd.DataFrame:
    """Return a table without the columns that the settings drop.

    If the settings name a column of text, only this column and those of label, owner and user are kept.

    Parameters
    ----------
    frame
        Table as read from its file.
    path
        Path of the file, for error messages.
    settings
        Settings of the table: its label, and its columns of owners, users and text, and the columns to drop.

    Raises
    ------
    InputError
        If the table lacks a column that the settings name, a setting other than `label` names the label column, no
        column is left beside label, owner and user, or there is no record.
    """
    columns, label = [str(column) for column in frame.columns], settings.label
    listed = ", ".join(columns[:20])
    # If the file has no line of column names, the label cannot be found, and the message says so.
    unnamed = "".join(f"; {one.text}" for one in header_warnings(columns))
    require(label in columns, f"{path} has no label column {label!r}: {_near(label, columns)}{listed}{unnamed}")
    for name in settings.drop:
        require(name != label, f"drop names {name!r}, the label column: accepted are other columns")
        require(name in columns, f"drop names {name!r}, but {path} has no such column: {_near(name, columns)}{listed}")
    beside = f"the label {label!r}"
    for what, column in (("owner", settings.owner), ("user", settings.user), ("text", settings.text)):
        require(column != label, f"{what} is {column!r}, the label column: accepted are other columns")
        if column is not None and column not in columns:
            raise InputError(f"{path} has no {what} column {column!r}: {_near(column, columns)}{listed}")
        beside += "" if column is None else f" and the {what} {column!r}"
    frame = frame[settings.kept] if settings.text is not None else frame.drop(columns=list(settings.drop))
    is_enough = settings.text is not None or len(frame.columns) > len(settings.kept)
    require(is_enough, f"{path} has no column beside {beside}: at least 1 is needed")
    require(len(frame) > 0, f"{path} has 0 records: at least 1 is needed")
    return frame


def _near(name: str, columns: Sequence[str]) -> str:
    """Return the start of a sentence about columns in an error message: "did you mean 'Age'? Its columns are ".

    It ends where the caller lists all columns. Without a similar name it is "its columns are ".

    Parameters
    ----------
    name
        Column name from the settings, which the table lacks.
    columns
        Columns of the table, among which a similar name is searched.
    """
    lowered = {column.lower(): column for column in columns}
    nearest = get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[nearest[0]]!r}? Its columns are " if nearest else "its columns are "


def source_of_frames(
    frames: Sequence[pd.DataFrame],
    paths: Sequence[Path],
    settings: TableSettings,
    name: str,
    title: str,
    words: Mapping[str, int] | None = None,
) -> LoadedDataset:
    """Convert one table of training records, or two with the official test records last, to a data set.

    Raises `InputError` if a column cannot be used, or if a cell is missing or not finite.

    Parameters
    ----------
    frames
        One table, or two with the same columns, without the columns to drop.
    paths
        Path of the file of each table, for the description and for error messages.
    settings
        Settings of the tables: label, owners, users, missing values and others.
    name
        Name of the data set in the catalogue, such as "csv".
    title
        Beginning of the description, such as the kind of file.
    words
        Number of records in which each word stood for a missing value, for the description. The empty string counts
        empty cells. None leaves the counts out.
    """
    label, read = settings.label, sum(map(len, frames))
    parts, warned = [], []
    for frame, path in zip(frames, paths, strict=True):
        odd = sorted(set(frame.columns) ^ set(frames[0].columns))
        require(not odd, f"{path} differs from {paths[0]} in column {', '.join(odd[:5])}: accepted are equal columns")
    for frame, path in zip(frames, paths, strict=True):
        part, halved = _complete_records(frame, path, settings)
        parts.append(part)
        warned += halved
    complete = sum(map(len, parts))
    repeats = sum(int(part.duplicated().sum()) for part in parts)
    if settings.unique:
        parts, repeats = [part.drop_duplicates() for part in parts], 0
    train, rows = len(parts[0]), np.concatenate([part.index.to_numpy() + 1 for part in parts])
    origin = SourceFileRows(str(paths[0]), str(paths[-1]), train, rows)
    # One frame, so that a column has one type and one set of levels in both files.
    joint = pd.concat(parts, ignore_index=True).infer_objects()
    if settings.ignore_case:
        in_words = [name for name in joint.columns if not pd.api.types.is_numeric_dtype(joint[name])]
        joint = joint.assign(**{name: one_spelling(joint[name]) for name in in_words})
    labels = _label_values(joint[label], label, origin)
    check_classes(labels, f"{paths[0]}: label column {label}", settings.max_levels)
    codes, test_codes, classes = encode_labels(labels[:train], labels[train:] if len(parts) > 1 else None, paths[0])
    users, user_use = _persons(joint, origin, settings.user, ColumnRole.USER)
    owners, owner_use = _persons(joint, origin, settings.owner, ColumnRole.OWNER)
    owner_use = user_use | owner_use
    text = settings.of_text
    table = joint if text is None else joint.drop(columns=[text.column])
    found = identifiers(table, label, settings.owner, settings.user)
    persons = most_personal(found, settings.user or settings.owner)
    encoded: list[EncodedColumn] | list[EncodedTexts]
    if text is None:
        encoded = _encode(table.drop(columns=[label, *owner_use]), origin, settings, persons)
    else:
        encoded = [encode_texts(joint[text.column].astype(str).tolist(), text, str(paths[0]))]
    features = np.concatenate([column.features for column in encoded], axis=1)
    inputs = tuple(one for column in encoded if isinstance(column, EncodedTexts) for one in column.inputs)
    pool = build_records(features[:train], codes, classes, paths[0], owners, users, inputs)
    test = None
    if test_codes is not None:
        test = build_records(features[train:], test_codes, classes, paths[-1], inputs=inputs)
    width = f"{features.shape[1]} features" if text is None else f"text of column {text.column}"
    description = f"{title} {paths[0].name}, {train:,} records, {width}, {classes} classes"
    if settings.unusual:
        description += f"; read with {', '.join(str(one).removesuffix(' in [data]') for one in settings.unusual)}"
    if read > complete:
        description += f"; {read - complete:,} records with a missing value{_counted(words or {})} are left out"
    if complete > len(joint):
        description += f"; {complete - len(joint):,} records that repeat another one are left out"
    uses = (
        described_names(label, ColumnRole.LABEL, np.unique(labels)),
        *owner_use.values(),
        *(column.use for column in encoded),
        *(ColumnReadResult(name, ColumnRole.DROPPED, "as the configuration says") for name in settings.drop),
    )
    placed = side_by_side((column.use.name, column.features.shape[1]) for column in encoded if text is None)
    warned += (caution for column in encoded for caution in column.cautions)
    # Rows that repeat another one are of the same user, of whom other warnings tell.
    repeats = repeats if settings.user is None else 0
    warned += cautions(table, label, features, repeats, [*owner_use, *(one.name for one in found)])
    source = LoadedDataset(name, pool, test, description, uses, placed, cautions=tuple(warned), found=settings.unusual)
    possible = possible_identifiers(table, label, settings.user or settings.owner, found)
    classes_named = tuple(map(str, np.unique(labels)))
    return replace(source, class_names=classes_named, identifiers=found, possible_identifiers=possible)


def _counted(words: Mapping[str, int]) -> str:
    """Return a phrase on the words that stood for a missing value, such as " ('?' in 12, 'NA' in 3, empty in 5)".

    The numbers are those of the records. The phrase is empty if only empty cells meant missing values.

    Parameters
    ----------
    words
        Number of records with each word; the key "" counts empty cells.
    """
    named = [f"{word!r} in {count:,}" for word, count in sorted(words.items(), key=lambda one: -one[1]) if word]
    empty = [f"empty in {words['']:,}"] if words.get("") else []
    return f" ({', '.join(named + empty)})" if named else ""


def _persons(
    joint: pd.DataFrame, origin: SourceFileRows, name: str | None, kind: ColumnRole
) -> tuple[Owners, dict[str, ColumnReadResult]]:
    """Return the owner or user of each training record, and how their column was read, keyed by column name.

    Parameters
    ----------
    joint
        Table with the training records, followed by the test records.
    origin
        File of the table, and its number of training records.
    name
        Column with the owners or users. If it is None, they are unknown and the dictionary is empty.
    kind
        Whether the column holds owners or users.
    """
    if name is None:
        return UNKNOWN_OWNERS, {}
    values = _label_values(joint[name], name, origin)[: origin.train]
    found = encode_owners(values, f"{origin.file}: {kind} column {name}", str(kind))
    return found, {name: described_names(name, kind, found.names)}


def _label_values(column: "pd.Series[Any]", label: str, origin: SourceFileRows) -> NDArray[np.generic]:
    """Return a column of labels, owners or users, shape (records,): numbers unchanged, everything else as strings.

    Raises `InputError` if a number is infinite; the message has the column's name `label` and the file in `origin`.
    """
    if not pd.api.types.is_numeric_dtype(column):
        return column.astype(str).str.strip().to_numpy(dtype=np.str_)
    values: NDArray[np.generic] = column.to_numpy()
    _refuse_infinite(column, label, origin)
    return values


def _encode(
    frame: pd.DataFrame, origin: SourceFileRows, settings: TableSettings, persons: IdentifyingColumn | None
) -> list[EncodedColumn]:
    encoded, width, refused = [], 0, []
    for name, column in frame.items():
        try:
            if pd.api.types.is_numeric_dtype(column):
                _refuse_infinite(column, str(name), origin)
            repeats = persons if persons is not None and persons.name == name else None
            decimal = settings.decimal or "."
            found = encode_column(column, str(name), origin, settings.max_levels, width, decimal, repeats)
        except InputError as error:
            # Columns that a setting fixes are collected, so that the user learns of all of them at once.
            if not error.remedies:
                raise
            refused.append(error)
            continue
        encoded.append(found)
        width += found.features.shape[1]
    if refused:
        raise _together(refused, frame, origin)
    return encoded


def _together(refused: Sequence[InputError], frame: pd.DataFrame, origin: SourceFileRows) -> InputError:
    """Return a single error for all refused columns, with the settings that together fix them.

    Parameters
    ----------
    refused
        One error for each column that cannot be used.
    frame
        Table of all feature columns.
    origin
        Not used.
    """
    if _drops(refused) >= set(frame.columns):
        return _nothing_left(refused)
    if len(frame.columns) == 1:
        # The column is no longer offered to be left out: nothing would be left.
        drop = drop_remedy(str(frame.columns[0]))
        text = str(refused[0]).replace(f", {drop} the column", "")
        return InputError(text, refused[0].remedies, tuple(one for one in refused[0].choices if one != drop))
    if len(refused) == 1:
        return refused[0]
    values: dict[str, dict[str, None]] = {}
    single = []
    for remedy in (remedy for error in refused for remedy in error.remedies):
        if isinstance(remedy.value, tuple):
            values.setdefault(remedy.key, {}).update(dict.fromkeys(remedy.value))
        else:
            single.append(remedy)
    remedies = (*single, *(Remedy(key, tuple(words)) for key, words in values.items()))
    further = f"{len(refused) - 1} further {'column is' if len(refused) == 2 else 'columns are'} refused too"
    message = f"{refused[0]}; {further}, and {' with '.join(map(str, remedies))} fixes all"
    return InputError(message, remedies, (*refused[0].remedies, *refused[0].choices))


def _drops(refused: Sequence[InputError]) -> set[str]:
    """Return the names of all columns that the given errors advise to drop."""
    named = (one.value for error in refused for one in error.remedies if one.key == "drop")
    return {word for words in named if isinstance(words, tuple) for word in words}


def _nothing_left(refused: Sequence[InputError]) -> InputError:
    """Return the error for a table whose columns are all refused, so that dropping them would leave no feature."""
    other = ((error, one) for error in refused for one in error.choices if one.key != "drop")
    error, remedy = next(other, (refused[0], None))
    # The reason of the refusal, without the advice to leave the column out.
    reason = re.split(rf"[:;,] [^:;]*{re.escape(str(error.remedies[0]))}", str(error))[0]
    lacking = "without it no column is left to learn from"
    if remedy is None:
        hint = f"; {TEXT_HINT}" if TEXT_HINT in str(error) else ""
        return InputError(
            f"{reason}, and {lacking}: accepted is a table with a column of numbers, or of few words, beside the label"
            f"{hint}"
        )
    rest = [one for one in refused if one is not error]
    remedies = (remedy, *((Remedy("drop", tuple(sorted(_drops(rest)))),) if rest else ()))
    return InputError(f"{reason}: {' with '.join(map(str, remedies))} keeps it, and {lacking}", remedies)


def _refuse_infinite(column: "pd.Series[Any]", name: str, origin: SourceFileRows) -> None:
    finite = np.isfinite(column.to_numpy(dtype=np.float64))
    if not finite.all():
        position, drop = int(np.argmin(finite)), drop_remedy(name)
        cell = origin.cell(position, name, str(column.iloc[position]))
        raise InputError(f"{cell}: accepted are finite numbers; {drop} leaves out the column", (drop,))


def _complete_records(
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
        raise _refusal(frame, gaps, path, fixed, columns)
    names, totals = np.unique(classes[usable], return_counts=True)
    left = np.array([np.count_nonzero(kept & (classes == name)) for name in names])
    gone = [str(name) for name in names[left == 0]]
    drop = Remedy("drop", tuple(columns))
    if gone and columns:
        what = f"every record of class {', '.join(map(repr, gone[:_CLASSES_NAMED]))}" if gone[0] else "every record"
        without = Remedy("missing", tuple(gone))
        text = f"{path}: {what} lacks a value in some column: {drop} leaves out the columns that lack most"
        raise InputError(f"{text}, {without} such classes" if gone[0] else text, (drop,), (without,))
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


def _refusal(
    frame: pd.DataFrame, gaps: pd.DataFrame, path: Path, fixed: Sequence[str], columns: Sequence[str]
) -> InputError:
    """Return the error for missing values (empty cells, or words among numbers), with the settings that help.

    `gaps` is True at missing cells, and `fixed` names the columns that must stay. `columns` are those to drop so that
    every class keeps half of its records; the list is empty if none has to be dropped.
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
    """Return the columns to drop so that at least half of the records of every class have no missing value.

    The choice is greedy: each step takes the class with the smallest share of complete records, and drops the column
    with most missing values in this class.

    Parameters
    ----------
    gaps
        Table that is True at missing cells.
    classes
        Label of each record, shape (records,).
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
