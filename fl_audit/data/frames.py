"""From tables in memory to records, with what became of each column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.data.columns import (
    DEFAULT_MAX_LEVELS,
    Encoded,
    Origin,
    check_classes,
    check_width,
    describe_label,
    describe_owners,
    drop_remedy,
    encode_column,
)
from fl_audit.data.encoding import UNKNOWN_OWNERS, Owners, build_records, encode_labels, encode_owners
from fl_audit.data.records import ColumnKind, ColumnUse, Source, side_by_side
from fl_audit.errors import InputError, require


@dataclass(frozen=True)
class TableSettings:
    """How a table is read.

    Parameters
    ----------
    drop
        Names of columns that are left out.
    separator
        The character between cells.
    missing
        Words that stand for a missing value, beside empty cells and the usual ones (NA, null, NaN): records with a
        missing value are left out. None: a missing value is refused.
    max_levels
        Largest number of levels of a column of words, and of classes of the label.
    owner
        Name of the column that says whose each record is: whole numbers or words. It becomes no feature. None: that is
        not known.

    Raises
    ------
    InputError
        If the separator is not one character, or the owner is dropped.
    """

    drop: tuple[str, ...] = ()
    separator: str = ","
    missing: tuple[str, ...] | None = None
    max_levels: int = DEFAULT_MAX_LEVELS
    owner: str | None = None

    def __post_init__(self) -> None:
        plain = len(self.separator) == 1 and self.separator.isprintable() and self.separator not in "\"' "
        require(
            plain or self.separator == "\t",
            f"separator is {self.separator!r}: accepted is one character, such as ',' or ';', or the tab '\\t'",
        )

        require(self.owner not in self.drop, f"drop names {self.owner!r}, the owner column: accepted are other columns")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "TableSettings":
        """Return the settings that options name: drop, separator, missing, max-levels, owner."""
        given = {name.replace("-", "_"): value for name, value in options.items()}
        known = ("drop", "separator", "missing", "max_levels", "owner")
        return cls(**{name: given[name] for name in known if name in given})


def chosen_columns(
    frame: pd.DataFrame, path: Path, label: str, settings: TableSettings, hint: str = ""
) -> pd.DataFrame:
    """Return a table without the columns that are to be dropped.

    Parameters
    ----------
    frame
        The table as it was read.
    path
        Where it comes from, for messages.
    label
        Name of the label column.
    settings
        How the table is read.
    hint
        What may help where there is no label column.

    Raises
    ------
    InputError
        If a column that is named is missing, or nothing is left beside label and owner.
    """
    columns = [str(column) for column in frame.columns]
    listed = ", ".join(columns[:20])
    require(label in columns, f"{path} has no label column {label!r}: {_near(label, columns)}{listed}{hint}")
    for name in settings.drop:
        require(name != label, f"drop names {name!r}, the label column: accepted are other columns")
        require(name in columns, f"drop names {name!r}, but {path} has no such column: {_near(name, columns)}{listed}")
    owner = settings.owner
    require(owner != label, f"owner is {owner!r}, the label column: accepted are other columns")
    if owner is not None and owner not in columns:
        raise InputError(f"{path} has no owner column {owner!r}: {_near(owner, columns)}{listed}")
    frame = frame.drop(columns=list(settings.drop))
    beside = f"the label {label!r}" if owner is None else f"the label {label!r} and the owner {owner!r}"
    fewest = 1 if owner is None else 2
    require(len(frame.columns) > fewest, f"{path} has no column beside {beside}: at least 1 is needed")
    require(len(frame) > 0, f"{path} has 0 records: at least 1 is needed")
    return frame


def _near(name: str, columns: Sequence[str]) -> str:
    """Return how a list of columns begins in a message about one that is not among them."""
    lowered = {column.lower(): column for column in columns}
    nearest = get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[nearest[0]]!r}? Its columns are " if nearest else "its columns are "


def source_of_frames(
    frames: Sequence[pd.DataFrame],
    paths: Sequence[Path],
    label: str,
    settings: TableSettings,
    name: str = "csv",
    title: str = "CSV",
) -> Source:
    """Return the records of a table, or of two of which the second has the official test records.

    Parameters
    ----------
    frames
        One table, or two with the same columns; those that are to be dropped are gone.
    paths
        Where each comes from, for messages.
    label
        Name of the label column: whole numbers or strings.
    settings
        How the tables are read.
    name, title
        Name of the source in the catalogue, and the kind of data for people.

    Raises
    ------
    InputError
        If a column cannot be used, or a cell is missing or not finite.
    """
    _check_columns(frames, paths)
    read = sum(map(len, frames))
    frames = [_without_missing(frame, file, label, settings) for frame, file in zip(frames, paths, strict=True)]
    rows = np.concatenate([frame.index.to_numpy() + 1 for frame in frames])
    train = len(frames[0])
    origin = Origin(str(paths[0]), str(paths[-1]), train, rows)
    # One frame, so that a column has one type and one set of levels in both files.
    joint = pd.concat(frames, ignore_index=True).infer_objects()
    labels = _label_values(joint[label], label, origin)
    check_classes(labels, f"{paths[0]}: label column {label}", settings.max_levels)
    codes, test_codes, classes = encode_labels(labels[:train], labels[train:] if len(frames) > 1 else None, paths[0])
    owners, owner_use = _owners(joint, origin, settings)
    encoded = _encode(joint.drop(columns=[label, *owner_use]), origin, settings)
    features = np.concatenate([column.features for column in encoded], axis=1)
    pool = build_records(features[:train], codes, classes, paths[0], owners)
    test = None if test_codes is None else build_records(features[train:], test_codes, classes, paths[-1])
    description = f"{title} {paths[0].name}, {train:,} records, {features.shape[1]} features, {classes} classes"
    if read > len(joint):
        description += f"; {read - len(joint):,} records with a missing value are left out"
    uses = (
        describe_label(label, labels),
        *owner_use.values(),
        *(column.use for column in encoded),
        *_dropped(settings.drop),
    )
    placed = side_by_side((column.use.name, column.features.shape[1]) for column in encoded)
    return Source(name, pool, test, description, uses, placed)


def _owners(joint: pd.DataFrame, origin: Origin, settings: TableSettings) -> tuple[Owners, dict[str, ColumnUse]]:
    """Return whose each record is that is not for the test, and what the owner column, if there is one, became."""
    name = settings.owner
    if name is None:
        return UNKNOWN_OWNERS, {}
    values = _label_values(joint[name], name, origin)[: origin.train]
    owners = encode_owners(values, f"{origin.file}: owner column {name}")
    return owners, {name: describe_owners(name, owners.names)}


def _dropped(names: Sequence[str]) -> list[ColumnUse]:
    return [ColumnUse(name, ColumnKind.DROPPED, "as the configuration says") for name in names]


def _check_columns(frames: Sequence[pd.DataFrame], paths: Sequence[Path]) -> None:
    for frame, path in zip(frames[1:], paths[1:], strict=True):
        odd = sorted(set(frame.columns) ^ set(frames[0].columns))
        require(not odd, f"{path} differs from {paths[0]} in column {', '.join(odd[:5])}: accepted are equal columns")


def _without_missing(frame: pd.DataFrame, path: Path, label: str, settings: TableSettings) -> pd.DataFrame:
    """Return the records without missing cells, if the settings say that these are to be left out."""
    missing: NDArray[np.bool_] = frame.isna().to_numpy(dtype=np.bool_)
    if not missing.any():
        return frame
    row, position = (int(axis[0]) for axis in np.nonzero(missing))
    name = str(frame.columns[position])
    other = "" if name in (label, settings.owner) else f", or the column with {drop_remedy(name)}"
    require(
        settings.missing is not None,
        f"{path} has a missing value in column {name}, row {row + 1}: accepted are values throughout, and "
        f"{missing.any(axis=1).sum():,} of {len(frame):,} records lack one; leave out the records where one is missing "
        f"with missing = [] in [data]{other}",
    )
    kept = frame.take(np.flatnonzero(~missing.any(axis=1)))
    require(len(kept) > 0, f"{path} has a missing value in every record: leave out columns with drop in [data]")
    return kept


def _label_values(column: "pd.Series[Any]", label: str, origin: Origin) -> NDArray[np.generic]:
    """Return labels or owners: numbers as they are and everything else as strings."""
    if not pd.api.types.is_numeric_dtype(column):
        return column.astype(str).str.strip().to_numpy(dtype=np.str_)
    values: NDArray[np.generic] = column.to_numpy()
    _refuse_infinite(column, label, origin)
    return values


def _encode(frame: pd.DataFrame, origin: Origin, settings: TableSettings) -> list[Encoded]:
    encoded, width = [], 0
    for name in frame.columns:
        if pd.api.types.is_numeric_dtype(frame[name]):
            _refuse_infinite(frame[name], str(name), origin)
        encoded.append(encode_column(frame[name], str(name), origin, settings.max_levels, width))
        width += encoded[-1].features.shape[1]
        check_width(width, len(frame), str(name), origin.file)
    return encoded


def _refuse_infinite(column: "pd.Series[Any]", name: str, origin: Origin) -> None:
    finite = np.isfinite(column.to_numpy(dtype=np.float64))
    if not finite.all():
        position = int(np.argmin(finite))
        cell = origin.cell(position, name, str(column.iloc[position]))
        raise InputError(f"{cell}: accepted are finite numbers; {drop_remedy(name)} leaves out the column")
