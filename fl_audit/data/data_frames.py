"""Convert data frames to records for training, and describe how each column was read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.array_types import Labels
from fl_audit.data.column_encoding import EncodedColumn, SourceFileRows, check_classes, described_names, numbers_of
from fl_audit.data.encoding import UNKNOWN_OWNERS, Owners, build_records, encode_labels, encode_owners
from fl_audit.data.feature_columns import encode_columns, refuse_infinite
from fl_audit.data.identifier_detection import identifiers, likeliest_person_column
from fl_audit.data.loaded_dataset import (
    ColumnReadResult,
    ColumnRole,
    DataWarning,
    IdentifyingColumn,
    LoadedDataset,
    side_by_side,
)
from fl_audit.data.missing_values import complete_records, imputed
from fl_audit.data.table_settings import TableSettings
from fl_audit.data.texts import EncodedTexts, encode_texts
from fl_audit.data.warnings import ReadTable, header_warnings, one_spelling, table_warnings
from fl_audit.errors import InputError, require


def chosen_columns(frame: pd.DataFrame, path: Path, settings: TableSettings) -> pd.DataFrame:
    """Return a table without the columns that the settings drop.

    If the settings name a column of text, only this column and the columns of label, owner and user are kept.
    """
    columns = [str(column) for column in frame.columns]
    label = settings.label
    listed = ", ".join(columns[:20])
    # If the file has no line of column names, the label cannot be found, and the message says so.
    unnamed = "".join(f"; {warning.text}" for warning in header_warnings(columns))
    require(label in columns, f"{path} has no label column {label!r}: {_near(label, columns)}{listed}{unnamed}")
    for name in settings.drop:
        require(name != label, f"drop names {name!r}, the label column: accepted are other columns")
        require(name in columns, f"drop names {name!r}, but {path} has no such column: {_near(name, columns)}{listed}")
    beside = f"the label {label!r}"
    for role, column in (("owner", settings.owner), ("user", settings.user), ("text", settings.text)):
        require(column != label, f"{role} is {column!r}, the label column: accepted are other columns")
        if column is not None and column not in columns:
            raise InputError(f"{path} has no {role} column {column!r}: {_near(column, columns)}{listed}")
        beside += "" if column is None else f" and the {role} {column!r}"
    frame = frame[settings.kept] if settings.text is not None else frame.drop(columns=list(settings.drop))
    is_enough = settings.text is not None or len(frame.columns) > len(settings.kept)
    require(is_enough, f"{path} has no column beside {beside}: at least 1 is needed")
    require(len(frame) > 0, f"{path} has 0 records: at least 1 is needed")
    return frame


def _near(name: str, columns: Sequence[str]) -> str:
    """Return the part of an error message on an unknown column that comes before the list of columns.

    It asks "did you mean 'Age'?" if a column has a similar name.
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
    words: Mapping[str, int] | None,
) -> LoadedDataset:
    """Convert one table of training records, or two with the official test records last, to a data set.

    Raises `InputError` if a column cannot be used, or if a cell is missing or not finite.

    `words`: None leaves the counts out.
    """
    complete, warned = _complete_parts(frames, paths, settings)
    parts = [frame.drop_duplicates() for frame in complete] if settings.unique else complete
    train = len(parts[0])
    rows = np.concatenate([frame.index.to_numpy() + 1 for frame in parts])
    origin = SourceFileRows(str(paths[0]), str(paths[-1]), train, rows)
    joint = _joint(parts, settings)
    label = settings.label
    text = settings.of_text
    if settings.imputes:
        joint, imputations = imputed(joint, origin, settings)
        warned += imputations
    labels = _labels(joint[label], origin, settings)
    users, user_use = _persons(joint, origin, settings.user, ColumnRole.USER)
    owners, owner_use = _persons(joint, origin, settings.owner, ColumnRole.OWNER)
    owner_use = user_use | owner_use
    table = joint if text is None else joint.drop(columns=[text.column])
    identifying_columns = identifiers(table, label, settings.owner, settings.user)
    person = settings.user or settings.owner
    encoded = _encoded(
        joint.drop(columns=[label, *owner_use]), origin, settings, likeliest_person_column(identifying_columns, person)
    )
    features = np.concatenate([column.features for column in encoded], axis=1)
    inputs = tuple(
        named_input for column in encoded if isinstance(column, EncodedTexts) for named_input in column.inputs
    )
    pool = build_records(features[:train], labels.train, labels.classes, paths[0], owners, users, inputs)
    pool = replace(pool, label_range=labels.range)
    test = None
    if len(parts) > 1:
        test = build_records(features[train:], labels.test, labels.classes, paths[-1], inputs=inputs)
        test = replace(test, label_range=labels.range)
    width = f"{features.shape[1]} features" if text is None else f"text of column {text.column}"
    description = f"{title} {paths[0].name}, {train:,} records, {width}, {labels.counted}{_said_of(settings)}"
    description += _left_out(sum(map(len, frames)), sum(map(len, complete)), len(joint), words or {})
    dropped = [ColumnReadResult(name, ColumnRole.DROPPED, "as the configuration says") for name in settings.drop]
    warned += (caution for column in encoded for caution in column.cautions)
    # Rows that repeat another one are of the same user, of whom other warnings tell.
    counts_repeats = not settings.unique and settings.user is None
    repeats = sum(int(frame.duplicated().sum()) for frame in parts) if counts_repeats else 0
    identifying = (*owner_use, *(column.name for column in identifying_columns))
    warned += table_warnings(ReadTable(table, label, features, repeats, identifying, settings.is_regression))
    return LoadedDataset(
        name,
        pool,
        test,
        description,
        (labels.use, *owner_use.values(), *(column.use for column in encoded), *dropped),
        placed=side_by_side((column.use.name, column.features.shape[1]) for column in encoded if text is None),
        cautions=tuple(warned),
        class_names=labels.names,
        found=settings.unusual,
        identifiers=identifying_columns,
    )


@dataclass(frozen=True, eq=False)
class _EncodedLabels:
    """The encoded labels of a table, with a description of how they were read."""

    train: Labels  # labels of the training records: classes as int64, or quantities scaled to 0 to 1
    test: Labels  # labels of the test records, encoded alike; no record if there are none
    classes: int  # number of classes; 1 for quantities
    use: ColumnReadResult  # how the column was read
    names: tuple[str, ...] = ()  # what each class stands for; empty for quantities
    range: tuple[float, float] = (0.0, 1.0)  # quantities that the labels 0 and 1 stand for

    @property
    def counted(self) -> str:
        """Words for the labels, such as "2 classes"."""
        return f"{self.classes} classes" if self.names else "label a quantity"


def _labels(column: "pd.Series[Any]", file_rows: SourceFileRows, settings: TableSettings) -> _EncodedLabels:
    """Return the labels of all records, as classes or, with `task` REGRESSION, as quantities."""
    label = settings.label
    train = file_rows.train
    if settings.is_regression:
        return _quantities(column, file_rows, settings)
    values = _label_values(column, label, file_rows)
    most_levels = settings.most_words if values.dtype.kind == "U" else settings.most_numbers
    check_classes(values, f"{file_rows.file}: label column {label}", most_levels)
    has_test = train < len(values)
    codes, test_codes, classes = encode_labels(
        values[:train], values[train:] if has_test else None, Path(file_rows.file)
    )
    use = described_names(label, ColumnRole.LABEL, np.unique(values))
    test = codes[:0] if test_codes is None else test_codes
    return _EncodedLabels(codes, test, classes, use, tuple(map(str, np.unique(values))))


def _quantities(column: "pd.Series[Any]", file_rows: SourceFileRows, settings: TableSettings) -> _EncodedLabels:
    """Return labels that are quantities, scaled to [0, 1] by the range of the training records."""
    label = settings.label
    if pd.api.types.is_numeric_dtype(column):
        refuse_infinite(column, label, file_rows)
    numbers, note = numbers_of(column, label, file_rows, settings.decimal or ".")
    words = f"{file_rows.file}: label column {label} has words, and task is 'regression'"
    if numbers is None:
        raise InputError(f"{words}: accepted are numbers, or task = 'classification' in [data]")
    low = float(numbers[: file_rows.train].min())
    high = float(numbers[: file_rows.train].max())
    same = f"{file_rows.file}: label column {label} is {low:g} in every record"
    require(high > low, f"{same}: accepted are quantities that differ")
    reach = f"{file_rows.file}: label column {label} reaches from {low:g} to {high:g}"
    require(math.isfinite(high - low), f"{reach}: accepted are ranges below 1.7e308")
    scaled = ((numbers - low) / (high - low)).astype(np.float32)
    detail = f"a quantity, {low:g} to {high:g}{note}, scaled to 0 to 1"
    use = ColumnReadResult(label, ColumnRole.LABEL, detail)
    return _EncodedLabels(scaled[: file_rows.train], scaled[file_rows.train :], 1, use, range=(low, high))


def _complete_parts(
    frames: Sequence[pd.DataFrame], paths: Sequence[Path], settings: TableSettings
) -> tuple[list[pd.DataFrame], list[DataWarning]]:
    """Return the tables without incomplete records, and warnings about classes that lose many records."""
    for frame, path in zip(frames, paths, strict=True):
        odd = sorted(set(frame.columns) ^ set(frames[0].columns))
        require(not odd, f"{path} differs from {paths[0]} in column {', '.join(odd[:5])}: accepted are equal columns")
    encoded_parts = []
    warned = list[DataWarning]()
    for frame, path in zip(frames, paths, strict=True):
        complete, warnings = complete_records(frame, path, settings)
        encoded_parts.append(complete)
        warned += warnings
    return encoded_parts, warned


def _joint(frames: Sequence[pd.DataFrame], settings: TableSettings) -> pd.DataFrame:
    """Return the rows of all files as one table.

    With the setting `ignore_case`, words of a column that differ only in case and spaces get the same spelling.
    """
    joint = pd.concat(frames, ignore_index=True).infer_objects()
    if not settings.ignore_case:
        return joint
    in_words = [name for name in joint.columns if not pd.api.types.is_numeric_dtype(joint[name])]
    return joint.assign(**{name: one_spelling(joint[name]) for name in in_words})


def _encoded(
    frame: pd.DataFrame, file_rows: SourceFileRows, settings: TableSettings, column: IdentifyingColumn | None
) -> Sequence[EncodedColumn | EncodedTexts]:
    """Return the encoded columns of a table: all of them, or the one column of text."""
    if (text := settings.of_text) is None:
        return encode_columns(frame, file_rows, settings, column)
    return [encode_texts(frame[text.column].astype(str).tolist(), text, file_rows.file)]


def _said_of(settings: TableSettings) -> str:
    settings_text = ", ".join(str(remedy).removesuffix(" in [data]") for remedy in settings.unusual)
    return f"; read with {settings_text}" if settings_text else ""


def _left_out(read: int, complete: int, kept_records: int, words: Mapping[str, int]) -> str:
    """Return a phrase that says how many records are left out because they are incomplete or repeat another record.

    The numbers of records are `read` in all, `complete` of these, and `kept_records` after repeated ones are removed.
    """
    words_text = ""
    if read > complete:
        words_text += f"; {read - complete:,} records with a missing value{_counted(words)} are left out"
    if complete > kept_records:
        words_text += f"; {complete - kept_records:,} records that repeat another one are left out"
    return words_text


def _counted(words: Mapping[str, int]) -> str:
    """Return the words for a missing value, such as " ('?' in 12, empty in 5)"; empty without such words."""
    word_counts = [
        f"{word!r} in {count:,}" for word, count in sorted(words.items(), key=lambda entry: -entry[1]) if word
    ]
    empty = [f"empty in {words['']:,}"] if words.get("") else []
    return f" ({', '.join(word_counts + empty)})" if word_counts else ""


def _persons(
    joint: pd.DataFrame, file_rows: SourceFileRows, name: str | None, role: ColumnRole
) -> tuple[Owners, dict[str, ColumnReadResult]]:
    """Return the owner (or user) of each training record, and how the column `name` of owners (or users) was read.

    The second result is a dict with the column's name as its only key. With `name` None, owners are unknown and the
    dict is empty.
    """
    if name is None:
        return UNKNOWN_OWNERS, {}
    values = _label_values(joint[name], name, file_rows)[: file_rows.train]
    owners = encode_owners(values, f"{file_rows.file}: {role} column {name}", str(role))
    return owners, {name: described_names(name, role, owners.names)}


def _label_values(column: "pd.Series[Any]", label: str, file_rows: SourceFileRows) -> NDArray[np.generic]:
    """Return the labels, owners or users in a column, shape (records,): numbers unchanged, all else as strings."""
    if not pd.api.types.is_numeric_dtype(column):
        return column.astype(str).str.strip().to_numpy(dtype=np.str_)
    values: NDArray[np.generic] = column.to_numpy()
    refuse_infinite(column, label, file_rows)
    return values
