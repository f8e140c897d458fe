"""CSV tables that users bring along."""

import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    describe_label,
    describe_owners,
    drop_remedy,
    encode_column,
)
from fl_audit.data.encoding import UNKNOWN_OWNERS, Owners, build_records, encode_labels, encode_owners
from fl_audit.data.files import read_bytes, resolve
from fl_audit.data.records import ColumnKind, ColumnUse, Source, side_by_side
from fl_audit.errors import InputError, require

_LARGEST_TABLE = 2**30
"""Numbers in the features of all records: 4 GiB."""
_OTHER_SEPARATORS = (";", "\t", "|")


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


def load_csv(
    directory: Path | None,
    path: str,
    label: str,
    test_path: str | None = None,
    settings: TableSettings | None = None,
) -> Source:
    """Return the records of a CSV file with a header line, and what each of its columns became.

    Numeric columns are scaled to [0, 1] by their range in `path`; columns of words are one-hot encoded over the levels
    of both files. Labels become 0..c-1 in sorted order.

    Parameters
    ----------
    directory
        Where relative paths that are not in the working directory are looked for, or None.
    path
        CSV file, plain or gzipped, UTF-8.
    label
        Name of the label column: whole numbers or strings.
    test_path
        CSV file with the same columns, the official test records; or None.
    settings
        How the files are read; None is `TableSettings()`.

    Raises
    ------
    InputError
        If a file is missing or damaged, a column is missing or cannot be used, or a cell is missing or not finite.

    Examples
    --------
    >>> load_csv(None, "patients.csv", label="outcome")  # doctest: +SKIP
    """
    settings = settings or TableSettings()
    paths = [resolve(directory, name) for name in (path, test_path) if name is not None]
    frames = [_read_frame(file, label, settings) for file in paths]
    _check_columns(frames, paths)
    read = sum(map(len, frames))
    frames = [_without_missing(frame, file, label, settings) for frame, file in zip(frames, paths, strict=True)]
    rows = np.concatenate([frame.index.to_numpy() + 1 for frame in frames])
    train = len(frames[0])
    origin = Origin(str(paths[0]), str(paths[-1]), train, rows)
    # One frame, so that a column has one type and one set of levels in both files.
    joint = pd.concat(frames, ignore_index=True).infer_objects()
    names = _label_values(joint[label], label, origin)
    check_classes(names, f"{paths[0]}: label column {label}", settings.max_levels)
    codes, test_codes, classes = encode_labels(names[:train], names[train:] if len(frames) > 1 else None, paths[0])
    owners, owner_use = _owners(joint, origin, settings)
    encoded = _encode(joint.drop(columns=[label, *owner_use]), origin, settings)
    features = np.concatenate([column.features for column in encoded], axis=1)
    pool = build_records(features[:train], codes, classes, paths[0], owners)
    test = None if test_codes is None else build_records(features[train:], test_codes, classes, paths[-1])
    description = f"CSV {paths[0].name}, {train:,} records, {features.shape[1]} features, {classes} classes"
    if read > len(joint):
        description += f"; {read - len(joint):,} records with a missing value are left out"
    uses = (
        describe_label(label, names),
        *owner_use.values(),
        *(column.use for column in encoded),
        *_dropped(settings.drop),
    )
    placed = side_by_side((column.use.name, column.features.shape[1]) for column in encoded)
    return Source("csv", pool, test, description, uses, placed)


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


def _read_frame(path: Path, label: str, settings: TableSettings) -> pd.DataFrame:
    """Read a file and leave out the columns that are to be dropped."""
    content = io.BytesIO(read_bytes(path))
    # Surplus fields would become row names and shift every column; with index_col=False they are at least warned of.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(
                content,
                sep=settings.separator,
                na_values=list(settings.missing or ()),
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
            )
        except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"{path} is no CSV table ({reason}): accepted is UTF-8 text whose cells are separated by "
                f"{settings.separator!r}"
            ) from error
    columns = [str(column) for column in frame.columns]
    listed = ", ".join(columns[:20])
    require(label in columns, f"{path} has no label column {label!r}: its columns are {listed}{_hint(columns)}")
    for name in settings.drop:
        require(name != label, f"drop names {name!r}, the label column: accepted are other columns")
        require(name in columns, f"drop names {name!r}, but {path} has no such column: its columns are {listed}")
    owner = settings.owner
    require(owner != label, f"owner is {owner!r}, the label column: accepted are other columns")
    require(owner is None or owner in columns, f"{path} has no owner column {owner!r}: its columns are {listed}")
    frame = frame.drop(columns=list(settings.drop))
    beside = f"the label {label!r}" if owner is None else f"the label {label!r} and the owner {owner!r}"
    fewest = 1 if owner is None else 2
    require(len(frame.columns) > fewest, f"{path} has no column beside {beside}: at least 1 is needed")
    require(len(frame) > 0, f"{path} has 0 records: at least 1 is needed")
    return frame


def _hint(columns: Sequence[str]) -> str:
    """Return the separator that a header of one column seems to be written with."""
    for separator in _OTHER_SEPARATORS:
        if len(columns) == 1 and separator in columns[0]:
            return f"; set separator = {json.dumps(separator)} in [data] if that is what separates its cells"
    return ""


def _check_columns(frames: list[pd.DataFrame], paths: list[Path]) -> None:
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
        f"{path} has a missing value in column {name}, row {row + 1}: accepted are values throughout; leave out the "
        f"records where one is missing with missing = [] in [data]{other}",
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
        encoded.append(encode_column(frame[name], str(name), origin, settings.max_levels))
        width += encoded[-1].features.shape[1]
        require(
            width * len(frame) <= _LARGEST_TABLE,
            f"{origin.file}: the columns up to {name} become {width:,} features of {len(frame):,} records, more than "
            f"{_LARGEST_TABLE:,} numbers: leave out columns with drop in [data], or lower max-levels",
        )
    return encoded


def _refuse_infinite(column: "pd.Series[Any]", name: str, origin: Origin) -> None:
    finite = np.isfinite(column.to_numpy(dtype=np.float64))
    if not finite.all():
        position = int(np.argmin(finite))
        cell = origin.cell(position, name, str(column.iloc[position]))
        raise InputError(f"{cell}: accepted are finite numbers; {drop_remedy(name)} leaves out the column")
