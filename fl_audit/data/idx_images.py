"""Load MNIST from its IDX files (http://yann.lecun.com/exdb/mnist)."""

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats32, Integers
from fl_audit.data.data_files import locate, read_bytes
from fl_audit.data.encoding import UNKNOWN_OWNERS, Owners, build_records, encode_owners
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.errors import require

# Third byte of an IDX file: type of the values, most significant byte first.
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MNIST_FILES = tuple(
    f"{subset_name}-{kind}-ubyte" for subset_name in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
_HIGHEST_PIXEL = np.float32(255)
WRITER = "writer"
"""Value of the setting `user` that makes the writers of MNIST's digits the users."""
WRITERS_FILE = "qmnist-train-labels-idx2-int"
"""File of QMNIST that names the writer of every training image of MNIST, in the order of MNIST."""
_WRITER_COLUMN = 2
_COLUMNS = 8


def find_mnist(directory: Path | None) -> list[Path]:
    """Return the paths of MNIST's training images and labels and of its test images and labels, in this order.

    Raises `InputError` if one is missing.
    """
    return locate(directory, "mnist", *_MNIST_FILES)


def load_mnist(directory: Path | None, user: str | None) -> LoadedDataset:
    """Return MNIST: images of shape (1, 28, 28) in [0, 1], 10 classes, 60,000 training and 10,000 test records.

    Raises `InputError` if one of the four published files is missing or damaged.

    `user`: None loads no users.
    """
    require(user in (None, WRITER), f"user is {user!r} in [data]: accepted of mnist is {WRITER!r}, who wrote the digit")
    images, labels, test_images, test_labels = find_mnist(directory)
    digits = _read_labels(labels)
    writers = UNKNOWN_OWNERS if user is None else _read_writers(directory, digits, labels)
    pool = build_records(_read_images(images), digits, 10, images, UNKNOWN_OWNERS, writers)
    test = build_records(_read_images(test_images), _read_labels(test_labels), 10, test_images)
    return LoadedDataset(
        "mnist", pool, test, f"MNIST digits, {len(pool):,} + {len(test):,} images of 28x28, 10 classes"
    )


def _read_writers(directory: Path | None, digits: Integers, labels: Path) -> Owners:
    """Return the writer of every training image, from the table of QMNIST.

    Raises `InputError` unless the labels in the table equal `digits`, the labels of MNIST.
    """
    (path,) = locate(directory, "mnist", WRITERS_FILE)
    table = read_idx(path)
    is_table = table.shape == (len(digits), _COLUMNS) and table.dtype.kind in "iu"
    accepted = f"accepted is the table of QMNIST, shape {(len(digits), _COLUMNS)} of whole numbers"
    require(is_table, f"{path} holds shape {table.shape} of {table.dtype}: {accepted}")
    differing = int(np.count_nonzero(table[:, 0] != digits))
    problem = f"{path} names another digit than {labels.name} for {differing:,} of {len(digits):,} images"
    require(differing == 0, f"{problem}: accepted is the table that goes with these images, in their order")
    return encode_owners(table[:, _WRITER_COLUMN], f"{path}: column {_WRITER_COLUMN}", "user")


def read_idx(path: Path) -> NDArray[np.generic]:
    """Return the array in an IDX file, plain or gzipped; raise `InputError` if it has another format or is damaged.

    The file begins with two zero bytes, a byte for the type, and a byte for the number of axes. The length of each axis
    as big-endian uint32 follows, and then the values.
    """
    content = read_bytes(path)
    magic = content[:4]
    is_idx = len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in _TYPES and magic[3] >= 1
    accepted = "accepted are IDX files, which start with 00 00, a type and axes"
    require(is_idx, f"{path} starts with bytes {magic.hex(' ')}: {accepted}")
    start = 4 + 4 * magic[3]
    require(len(content) >= start, f"{path} ends after {len(content)} bytes: its header alone has {start}")
    shape = struct.unpack(f">{magic[3]}I", content[4:start])
    kind = np.dtype(_TYPES[magic[2]])
    wanted_bytes = start + math.prod(shape) * kind.itemsize
    needed = f"its header, shape {shape}, needs exactly {wanted_bytes}; is it truncated?"
    require(len(content) == wanted_bytes, f"{path} has {len(content)} bytes: {needed}")
    return np.frombuffer(content, dtype=kind, offset=start).reshape(shape)


def _read_images(path: Path) -> Floats32:
    images = read_idx(path)
    content_text = f"{images.ndim} axes of {images.dtype}"
    accepted = "accepted are images, at least 2 axes of uint8"
    require(images.ndim >= 2 and images.dtype == np.uint8, f"{path} holds {content_text}: {accepted}")
    scaled: Floats32 = images.astype(np.float32) / _HIGHEST_PIXEL
    # Convolutions want the channel first, and grey images have but one.
    return scaled[:, np.newaxis] if scaled.ndim == 3 else scaled


def _read_labels(path: Path) -> Integers:
    labels = read_idx(path)
    are_labels = labels.ndim == 1 and labels.dtype.kind in "iu" and labels.size > 0
    accepted = "accepted are labels, one axis of whole numbers"
    require(are_labels, f"{path} holds shape {labels.shape} of {labels.dtype}: {accepted}")
    return labels.astype(np.int64)
