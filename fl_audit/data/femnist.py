"""Load FEMNIST digits: handwritten digits that are already divided among twelve clients."""

from pathlib import Path

import numpy as np

from fl_audit.array_files import read_archive
from fl_audit.data.data_files import locate_any
from fl_audit.data.encoding import build_records, encode_owners
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.errors import require
from fl_audit.words import name_list

FEMNIST_FILE = "femnist_digits_12clients.npz"
_KEYS = ("x", "y", "client")
_CLASSES = 10
_HIGHEST_PIXEL = np.uint8(255)


def find_femnist(directory: Path | None) -> Path:
    """Return the path of the archive `FEMNIST_FILE` in a directory; raise `InputError` if it is missing."""
    return locate_any(directory, "femnist", (FEMNIST_FILE,))


def load_femnist(directory: Path | None) -> LoadedDataset:
    """Return FEMNIST digits: 5,997 images of shape (1, 28, 28) in [0, 1], of 10 classes and 12 owners.

    There is no test set. The archive is in the directory or in its folder `femnist`, with the arrays `x`, `y` and
    `client`. Its pixels, black on white, become 1 - pixel / 255, so paper is 0 and ink up to 1, as in MNIST. Raises
    `InputError` if the archive is missing or damaged, or if an array has another type or shape.
    """
    path = find_femnist(directory)
    arrays = read_archive(path, _KEYS)
    for key in _KEYS:
        require(key in arrays, f"{path} has no array {key}: accepted are {name_list(_KEYS)}")
    images = arrays["x"]
    digits = arrays["y"]
    is_known = digits.dtype.kind in "iu" and bool(np.isin(digits, np.arange(_CLASSES)).all())
    require(is_known, f"{path}: y holds something else than the digits: accepted are whole numbers from 0 to 9")
    owners = encode_owners(arrays["client"], f"{path}: client")
    shape = f"{path}: x has shape {images.shape} of {images.dtype}"
    is_good = images.dtype == np.uint8 and images.shape[1:] == (28, 28)
    require(is_good, f"{shape}: accepted are images (n, 28, 28) of uint8")
    ink = (_HIGHEST_PIXEL - images.astype(np.uint8))[:, np.newaxis].astype(np.float32) / np.float32(_HIGHEST_PIXEL)
    pool = build_records(ink, digits.astype(np.int64), _CLASSES, path, owners)
    description = f"FEMNIST digits, {len(pool):,} images of 28x28, {len(owners.names)} clients, {_CLASSES} classes"
    return LoadedDataset("femnist", pool, None, description)
