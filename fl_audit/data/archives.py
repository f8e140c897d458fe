"""NumPy archives that users bring along."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_audit.arrays import Floats32
from fl_audit.data.columns import check_classes
from fl_audit.data.encoding import UNKNOWN_OWNERS, build_records, encode_labels, encode_owners
from fl_audit.data.files import read_archive, resolve
from fl_audit.data.records import Source
from fl_audit.errors import require

_HIGHEST_PIXEL = np.float32(255)
_KEYS = ("x", "y", "x_test", "y_test")


def load_npz(directory: Path | None, path: str, owner: str | None = None) -> Source:
    """Return the records of a NumPy archive with the keys `x`, `y` and, for official test records, `x_test`, `y_test`.

    Bytes (uint8) are divided by 255, other numbers are used as they are; three axes get a channel axis, (n, 1, h, w).
    Labels become 0..c-1 in sorted order. `InputError` if the file is missing or damaged, a key is missing, or an array
    has another type or shape.

    Parameters
    ----------
    directory, path
        As for `resolve`: an archive as `numpy.savez` or `numpy.savez_compressed` writes it, without Python objects.
    owner
        Key of the array that says whose each record of `x` is, such as `client`: whole numbers or text, shape (n,).
        None: that is not known.
    """
    file = resolve(directory, path)
    require(owner not in _KEYS, f"owner is {owner!r}: accepted is the key of an array other than {', '.join(_KEYS)}")
    arrays = read_archive(file, _KEYS if owner is None else (*_KEYS, owner))
    for key in ("x", "y"):
        require(key in arrays, f"{file} has no array {key}: accepted are x, y and optionally x_test, y_test")
    alone = f"{file} has only one of the arrays x_test and y_test: accepted are both or neither"
    require(("x_test" in arrays) == ("y_test" in arrays), alone)
    if arrays["y"].ndim == 1:
        check_classes(arrays["y"], f"{file}: y")
    codes, test_codes, classes = encode_labels(arrays["y"], arrays.get("y_test"), file)
    owners = UNKNOWN_OWNERS
    if owner is not None:
        require(owner in arrays, f"{file} has no array {owner!r}: accepted for owner in [data] is the key of an array")
        owners = encode_owners(arrays[owner], f"{file}: {owner}")
    pool = build_records(_as_features(arrays["x"], "x", file), codes, classes, file, owners)
    test = None
    if test_codes is not None:
        test = build_records(_as_features(arrays["x_test"], "x_test", file), test_codes, classes, file)
    return Source("npz", pool, test, f"NumPy archive {file.name}, {len(pool):,} records, {classes} classes")


def _as_features(values: NDArray[np.generic], key: str, path: Path) -> Floats32:
    require(values.dtype.kind in "biuf", f"{path}: {key} has type {values.dtype}: accepted are real numbers")
    require(values.ndim >= 2, f"{path}: {key} has shape {values.shape}: accepted are at least two axes, records first")
    with np.errstate(over="ignore"):
        features: Floats32 = values.astype(np.float32)
    if values.dtype == np.uint8:
        features /= _HIGHEST_PIXEL
    return features[:, np.newaxis] if features.ndim == 3 else features
