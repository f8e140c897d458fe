"""Load data sets from NumPy archives (.npz) of the user."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_files import archive_names, read_archive
from fl_audit.array_types import Floats32, Labels, in_one_axis
from fl_audit.data import remedies
from fl_audit.data.column_encoding import check_classes
from fl_audit.data.data_files import resolve
from fl_audit.data.data_setting_enums import PictureOrSequence, Task
from fl_audit.data.encoding import UNKNOWN_OWNERS, Owners, build_records, encode_labels, encode_owners
from fl_audit.data.loaded_dataset import DataWarning, LoadedDataset
from fl_audit.data.multi_array_records import packed
from fl_audit.errors import InputError, require
from fl_audit.value_checks import choice
from fl_audit.words import name_list

_HIGHEST_PIXEL = np.float32(255)
_KEYS = ("x", "y", "x_test", "y_test")
_TEST = "_test"


def load_npz(directory: Path | None, options: Mapping[str, Any]) -> LoadedDataset:
    """Load a data set from a NumPy archive with the arrays `x` and `y` and, for test records, `x_test` and `y_test`.

    In `x`, uint8 values are divided by 255, and other numbers are unchanged. An `x` with three axes holds images, which
    get a channel axis, (n, 1, h, w), unless `axes` says that it holds sequences. Labels have the shape (n,) or (n, 1),
    or are one-hot with the shape (n, c). They are numbered 0..c-1 in sorted order.

    If the archive has no `x`, the labels are the array `labels` or `y`. Every other array, such as `input_ids`, is an
    input that the model takes by this name. Integers become int64. Keys of test records then end in `_test`.

    Raises `InputError` if the file is missing or damaged, if a key is missing, or if an array has another type or
    shape.

    Shapes: `options` (n,).

    `options`: `path` is the path of the archive, in the format of `numpy.savez`, without Python objects. `owner` and
    `user`, if given, are keys of arrays of whole numbers or strings, shape (n,), that name the owner and the person of
    each record; both may be the same key. `axes`, "picture" (the default) or "sequence", is the meaning of a record's
    two axes in `x`.
    """
    file = resolve(directory, options["path"])
    axes = options.get("axes")
    keys_by_role = {role: key for role in ("owner", "user") if (key := options.get(role)) is not None}
    for name, key in keys_by_role.items():
        other_keys = name_list(_KEYS, "or")
        require(key not in _KEYS, f"{name} is {key!r}: accepted is the key of an array other than {other_keys}")
    names = archive_names(file)
    if "x" not in names and (label := next((key for key in ("labels", "y") if key in names), None)):
        return _of_named(read_archive(file, names), label, keys_by_role, file, axes, options.get("task"))
    arrays = read_archive(file, (*_KEYS, *dict.fromkeys(keys_by_role.values())))
    for key in ("x", "y"):
        named_so = "or, for a model of named inputs, labels and those, such as input_ids"
        accepted = f"accepted are x, y and optionally x_test, y_test, {named_so}"
        require(key in arrays, f"{file} has no array {key}: {accepted}")
    alone = f"{file} has only one of the arrays x_test and y_test: accepted are both or neither"
    require(("x_test" in arrays) == ("y_test" in arrays), alone)
    labels = {key: _as_labels(arrays[key], f"{file}: {key}") for key in ("y", "y_test") if key in arrays}
    codes, test_codes, classes = _encoded(labels["y"], labels.get("y_test"), f"{file}: y", file, options.get("task"))
    owners = _persons(arrays, keys_by_role, file)
    is_sequence = (
        choice(PictureOrSequence, "axes in [data]", axes or PictureOrSequence.PICTURE) is PictureOrSequence.SEQUENCE
    )
    shape = arrays["x"].shape
    accepted = "accepted with three axes alone, records first: leave axes out of [data]"
    require(axes is None or len(shape) == 3, f"{file}: axes is {axes!r}, and x has shape {shape}: {accepted}")
    pool = build_records(_as_features(arrays["x"], "x", file, is_sequence), codes, classes, file, *owners)
    test = None
    if test_codes is not None:
        test = build_records(_as_features(arrays["x_test"], "x_test", file, is_sequence), test_codes, classes, file)
    description = f"NumPy archive {file.name}, {len(pool):,} records{_said(shape, is_sequence)}, {_counted(classes)}"
    cautions = _taken_for_pictures(file, arrays["x"]) if axes is None else ()
    return LoadedDataset("npz", pool, test, description, is_sequence=is_sequence, cautions=cautions)


def _encoded(
    labels: NDArray[np.generic], test: NDArray[np.generic] | None, name: str, file: Path, task: str | None
) -> tuple[Labels, Labels | None, int]:
    """Return encoded labels, test labels, and the number of classes; quantities are unchanged, of one class."""
    if task != Task.REGRESSION:
        check_classes(labels, name)
        return encode_labels(labels, test, file)
    for values in (labels, *(() if test is None else (test,))):
        numbers = f"{name} has type {values.dtype}, and task is 'regression'"
        require(values.dtype.kind in "biuf", f"{numbers}: accepted are numbers")
    return labels.astype(np.float32), None if test is None else test.astype(np.float32), 1


def _persons(
    arrays: Mapping[str, NDArray[np.generic]], keys_by_role: Mapping[str, str], file: Path
) -> tuple[Owners, Owners]:
    """Return the owners and the users of the records.

    `keys_by_role` maps "owner" and "user" to the keys of the arrays with the owner or user of each record, if there
    are any.
    """
    owners = {"owner": UNKNOWN_OWNERS, "user": UNKNOWN_OWNERS}
    for name, key in keys_by_role.items():
        require(key in arrays, f"{file} has no array {key!r}: accepted for {name} in [data] is the key of an array")
        owners[name] = encode_owners(in_one_axis(arrays[key]), f"{file}: {key}", name)
    return owners["owner"], owners["user"]


def _of_named(
    arrays: Mapping[str, NDArray[np.generic]],
    label: str,
    keys_by_role: Mapping[str, str],
    file: Path,
    axes: str | None,
    task: str | None,
) -> LoadedDataset:
    """Return the data set of an archive that has no array `x`.

    All arrays except labels and owners are inputs that the model takes by name.
    """
    require(axes is None, f"{file}: axes is {axes!r}, and there is no array x: leave axes out of [data]")
    keys = [key for key in arrays if key not in (label, f"{label}{_TEST}", *keys_by_role.values())]
    trained = [key for key in keys if not key.endswith(_TEST)]
    tested = [f"{key}{_TEST}" for key in trained]
    has_test = f"{label}{_TEST}" in arrays
    wanted_names = {*trained, *(tested if has_test else [])}
    accepted = f"accepted are all of {name_list([*tested, label + _TEST])}, or none of them"
    odd = sorted(wanted_names ^ set(keys))
    require(not odd, f"{file} has, or lacks, the array {', '.join(odd[:3])} of the test records: {accepted}")
    values = {key: _as_labels(arrays[key], f"{file}: {key}") for key in (label, f"{label}{_TEST}") if key in arrays}
    test_labels = values.get(f"{label}{_TEST}")
    codes, test_codes, classes = _encoded(values[label], test_labels, f"{file}: {label}", file, task)
    features, inputs = packed({key: arrays[key] for key in trained}, str(file))
    pool = build_records(features, codes, classes, file, *_persons(arrays, keys_by_role, file), inputs)
    test = None
    if test_codes is not None:
        rows, of_test = packed({key: arrays[f"{key}{_TEST}"] for key in trained}, str(file))
        require(of_test == inputs, f"{file}: test records differ in shape or type: accepted are those of the others")
        test = build_records(rows, test_codes, classes, file, inputs=inputs)
    shapes = ", ".join(
        f"{named_input.name} {'x'.join(map(str, named_input.shape)) or 'of one number'}" for named_input in inputs
    )
    return LoadedDataset(
        "npz", pool, test, f"NumPy archive {file.name}, {len(pool):,} records of {shapes}, {_counted(classes)}"
    )


def _counted(classes: int) -> str:
    return f"{classes} classes" if classes > 1 else "label a quantity"


def _said(shape: tuple[int, ...], is_sequence: bool) -> str:
    if len(shape) != 3:
        return ""
    return f" of {shape[1]:,} steps by {shape[2]:,} features" if is_sequence else f" of {shape[1]}x{shape[2]} pixels"


def _taken_for_pictures(file: Path, values: NDArray[np.generic]) -> tuple[DataWarning, ...]:
    """Return a warning if records may be sequences: they have two axes and are not uint8."""
    if values.ndim != 3 or values.dtype == np.uint8:
        return ()
    sequence, picture = (
        remedies.axes(str(remedy)) for remedy in (PictureOrSequence.SEQUENCE, PictureOrSequence.PICTURE)
    )
    _, steps, features = values.shape
    remark = f"{file.name}: x has three axes and is taken for pictures of one channel, {steps}x{features} pixels"
    return (
        DataWarning(
            f"{remark}; {sequence} keeps {steps} steps of {features} features, {picture} says that all is well",
            (sequence, picture),
        ),
    )


def _as_labels(values: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    """Return labels with shape (n,), from shape (n,), (n, 1) or one-hot rows (n, classes)."""
    if values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf":
        is_one = values == 1
        rows = (is_one.sum(axis=1) == 1) & ((values == 0).sum(axis=1) == values.shape[1] - 1)
        wrong = int(np.argmin(rows))
        accepted = "accepted are one class for each record, as numpy.argmax(y, axis=1) makes of probabilities"
        are_several = bool((is_one | (values == 0)).all() and (is_one.sum(axis=1) > 1).any())
        if are_several:
            remedy = "accepted is one class for each record: learn one answer at a time, such as y[:, 0]"
            raise InputError(f"{name} has shape {values.shape}, 0s and 1s with several 1s in a row: {remedy}")
        if not rows.all():
            raise InputError(f"{name} has shape {values.shape}, and row {wrong + 1} is no 0s and one 1: {accepted}")
        return np.asarray(is_one.argmax(axis=1))
    flat = in_one_axis(values)
    accepted = "accepted are one class for each record, shape (n,), or rows of 0s and one 1, shape (n, classes)"
    require(flat.ndim == 1, f"{name} has shape {values.shape}: {accepted}")
    return flat


def _as_features(values: NDArray[np.generic], key: str, path: Path, is_sequence: bool) -> Floats32:
    require(values.dtype.kind in "biuf", f"{path}: {key} has type {values.dtype}: accepted are real numbers")
    require(values.ndim >= 2, f"{path}: {key} has shape {values.shape}: accepted are at least two axes, records first")
    with np.errstate(over="ignore"):
        features: Floats32 = values.astype(np.float32)
    if values.dtype == np.uint8:
        features /= _HIGHEST_PIXEL
    return features[:, np.newaxis] if features.ndim == 3 and not is_sequence else features
