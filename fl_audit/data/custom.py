"""Files that users bring along: CSV tables and NumPy archives."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_audit.data.encoding import build_records, encode_labels, min_max
from fl_audit.data.files import read_archive, read_bytes, resolve
from fl_audit.data.records import Source
from fl_audit.errors import InputError, require

_HIGHEST_PIXEL = np.float32(255)


def load_csv(directory: Path | None, path: str, label: str, test_path: str | None = None) -> Source:
    """Return the records of a CSV file with a header line.

    Numeric columns are scaled to [0, 1] by their range in `path`; other columns are one-hot encoded over the levels of
    both files. Labels become 0..c-1 in sorted order.

    Parameters
    ----------
    directory
        Where relative paths that are not in the working directory are looked for, or None.
    path
        CSV file, plain or gzipped, comma-separated, UTF-8.
    label
        Name of the label column: whole numbers or strings.
    test_path
        CSV file with the same columns, the official test records; or None.

    Raises
    ------
    InputError
        If a file is missing or damaged, a column is missing, or a cell is empty, not finite, or text among numbers.

    Examples
    --------
    >>> load_csv(None, "patients.csv", label="outcome")  # doctest: +SKIP
    """
    paths = [resolve(directory, name) for name in (path, test_path) if name is not None]
    frames = [_read_frame(file, label) for file in paths]
    _check_columns(frames, paths)
    train = len(frames[0])
    # One frame, so that a column has one type and one set of levels in both files.
    joint = pd.concat(frames, ignore_index=True)
    features = _encode_columns(joint.drop(columns=label), train, paths)
    names = _column_values(joint[label], f"label column {label}", train, paths)
    codes, test_codes, classes = encode_labels(names[:train], names[train:] if len(frames) > 1 else None, paths[0])
    pool = build_records(features[:train], codes, classes, paths[0])
    test = None if test_codes is None else build_records(features[train:], test_codes, classes, paths[-1])
    description = f"CSV {paths[0].name}, {train:,} records, {features.shape[1]} features, {classes} classes"
    return Source("csv", pool, test, description)


def load_npz(directory: Path | None, path: str) -> Source:
    """Return the records of a NumPy archive with the keys `x`, `y` and, for official test records, `x_test`, `y_test`.

    Bytes (uint8) are divided by 255, other numbers are used as they are; three axes get a channel axis, (n, 1, h, w).
    Labels become 0..c-1 in sorted order.

    Parameters
    ----------
    directory
        Where a relative path that is not in the working directory is looked for, or None.
    path
        Archive as `numpy.savez` or `numpy.savez_compressed` writes it, without Python objects.

    Raises
    ------
    InputError
        If the file is missing or damaged, a key is missing, or an array has another type or shape.
    """
    file = resolve(directory, path)
    arrays = read_archive(file, ("x", "y", "x_test", "y_test"))
    for key in ("x", "y"):
        require(key in arrays, f"{file} has no array {key}: accepted are x, y and optionally x_test, y_test")
    require(
        ("x_test" in arrays) == ("y_test" in arrays),
        f"{file} has only one of the arrays x_test and y_test: accepted are both or neither",
    )
    codes, test_codes, classes = encode_labels(arrays["y"], arrays.get("y_test"), file)
    pool = build_records(_as_features(arrays["x"], "x", file), codes, classes, file)
    test = None
    if test_codes is not None:
        test = build_records(_as_features(arrays["x_test"], "x_test", file), test_codes, classes, file)
    return Source("npz", pool, test, f"NumPy archive {file.name}, {len(pool):,} records, {classes} classes")


def _read_frame(path: Path, label: str) -> pd.DataFrame:
    content = io.BytesIO(read_bytes(path))
    # Surplus fields would become row names and shift every column; with index_col=False they are at least warned of.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(content, index_col=False, skipinitialspace=True, low_memory=False)
        except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(f"{path} is no CSV table ({reason}): accepted is comma-separated UTF-8 text") from error
    columns = ", ".join(str(column) for column in frame.columns[:20])
    require(label in frame.columns, f"{path} has no label column {label!r}: its columns are {columns}")
    require(len(frame.columns) > 1, f"{path} has no column beside the label {label!r}: at least 1 is needed")
    require(len(frame) > 0, f"{path} has 0 records: at least 1 is needed")
    return frame


def _check_columns(frames: list[pd.DataFrame], paths: list[Path]) -> None:
    for frame, path in zip(frames[1:], paths[1:], strict=True):
        odd = sorted(set(frame.columns) ^ set(frames[0].columns))
        require(not odd, f"{path} differs from {paths[0]} in column {', '.join(odd[:5])}: accepted are equal columns")


def _encode_columns(frame: pd.DataFrame, train: int, paths: list[Path]) -> NDArray[np.float32]:
    parts: list[NDArray[np.float32]] = []
    for name in frame.columns:
        values = _column_values(frame[name], f"column {name}", train, paths)
        if values.dtype.kind == "U":
            levels, codes = np.unique(values, return_inverse=True)
            parts.append(np.eye(len(levels), dtype=np.float32)[codes])
            continue
        numbers = values.astype(np.float64).reshape(-1, 1)
        scaled, rest = min_max(numbers[:train], numbers[train:])
        assert rest is not None
        parts.append(np.concatenate([scaled, rest]).astype(np.float32))
    return np.concatenate(parts, axis=1)


def _column_values(column: "pd.Series[Any]", what: str, train: int, paths: list[Path]) -> NDArray[np.generic]:
    """Return numbers as they are and everything else as strings, without missing or infinite cells."""
    missing = column.isna().to_numpy()
    is_number = pd.api.types.is_numeric_dtype(column)
    if is_number:
        missing = missing | ~np.isfinite(column.to_numpy(dtype=np.float64))
    if missing.any():
        _refuse_cell(int(np.argmax(missing)), str(column[int(np.argmax(missing))]), what, train, paths)
    if is_number:
        return column.to_numpy()
    text = column.astype(str)
    # Mostly numbers and a few words is a spoilt measurement, and one level for each number would hide that.
    odd = pd.to_numeric(text, errors="coerce").isna().to_numpy()
    if 0 < odd.mean() < 0.5:
        _refuse_cell(int(np.argmax(odd)), repr(text[int(np.argmax(odd))]), what, train, paths)
    return text.to_numpy(dtype=np.str_)


def _refuse_cell(position: int, value: str, what: str, train: int, paths: list[Path]) -> None:
    path, row = (paths[0], position) if position < train else (paths[1], position - train)
    raise InputError(f"{path} has {value} in {what}, row {row + 1}: accepted are finite numbers, or text throughout")


def _as_features(values: NDArray[np.generic], key: str, path: Path) -> NDArray[np.float32]:
    require(values.dtype.kind in "biuf", f"{path}: {key} has type {values.dtype}: accepted are real numbers")
    require(values.ndim >= 2, f"{path}: {key} has shape {values.shape}: accepted are at least two axes, records first")
    with np.errstate(over="ignore"):
        features: NDArray[np.float32] = values.astype(np.float32)
    if values.dtype == np.uint8:
        features /= _HIGHEST_PIXEL
    return features[:, np.newaxis] if features.ndim == 3 else features
