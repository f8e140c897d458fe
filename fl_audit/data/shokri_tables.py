"""Load the published tables with 0/1 features of Shokri et al. 2017, such as Location-30 and Purchase-100.

Two published forms are read. One is the authors' archive, a gzipped tar file with text inside. The other one is an .npz
file with the arrays `features` and `labels`, where labels are one-hot or numbers. Archives are read in memory, and no
file is unpacked to disk. Names inside an archive are compared, but never used as paths.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_files import read_archive
from fl_audit.array_types import Integers
from fl_audit.data.data_files import locate_any, read_tar
from fl_audit.data.encoding import build_records
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.errors import InputError, require

Features = NDArray[np.uint8]
_COMMA = ord(",")
_ZERO = ord("0")


@dataclass(frozen=True)
class BinaryTable:
    """Description of a published data set whose records have features 0 or 1, and labels from 1 to `classes`."""

    name: str  # name in the catalogue, of its folder in the data directory, and of its .npz file
    title: str  # name in descriptions
    archive: str | None  # file name of the authors' archive; None where none is published
    classes: int  # number of classes
    labels_apart: bool = False  # whether the archive has `100/feats` and `100/labels`, not one file of `label,0,1,...`

    @property
    def files(self) -> tuple[str, ...]:
        """File names from which the table can be loaded, such as "dataset_purchase.tgz" and "purchase100.npz"."""
        arrays = f"{self.name}.npz"
        return (arrays,) if self.archive is None else (self.archive, arrays)

    def find(self, directory: Path | None) -> Path:
        """Return the path of the archive or the .npz file in a directory; raise `InputError` if neither exists."""
        return locate_any(directory, self.name, self.files)


LOCATION30 = BinaryTable("location30", "Location-30", "dataset_location.tgz", 30)
PURCHASE100 = BinaryTable("purchase100", "Purchase-100", "dataset_purchase.tgz", 100)
TEXAS100 = BinaryTable("texas100", "Texas-100", "dataset_texas.tgz", 100, labels_apart=True)


def load_binary(directory: Path | None, table: BinaryTable) -> LoadedDataset:
    """Load a published table of 0/1 features, in which the labels 1..k become the classes 0..k-1.

    There is no official test split. Raises `InputError` if the file is missing or damaged, or if it does not have the
    published format.
    """
    path = table.find(directory)
    features, labels = _from_npz(path, table) if path.suffix == ".npz" else _from_tar(path, table)
    pool = build_records(features, labels, table.classes, path)
    numbers = f"{len(pool):,} records, {features.shape[1]:,} binary features, {table.classes} classes"
    return LoadedDataset(table.name, pool, None, f"{table.title}, {numbers}")


def _from_tar(path: Path, table: BinaryTable) -> tuple[Features, Integers]:
    parts_read: list[tuple[Features, Integers]] = []
    features: list[Features] = []
    labels: list[Integers] = []

    def read(name: str, content: IO[bytes]) -> None:
        member = PurePosixPath(name)
        where = f"{path} ({member.name})"
        # macOS adds files of this kind for attributes that tar does not know.
        if member.name.startswith("._"):
            return
        if not table.labels_apart:
            require(
                not parts_read, f"{where} is a second file of the archive: accepted is one, with rows label,0,1,..."
            )
            parts_read.append(_labelled_rows(content, where, table.classes))
        elif member.parts[-2:] == ("100", "feats"):
            features.append(_rows(_lines(content), where))
        elif member.parts[-2:] == ("100", "labels"):
            cells = [_label(line, where, row, table.classes) for row, line in _lines(content)]
            labels.append(np.array(cells, dtype=np.int64))

    read_tar(path, read)
    if table.labels_apart:
        content_text = f"{len(features)} files 100/feats and {len(labels)} files 100/labels"
        require(len(features) == len(labels) == 1, f"{path} has {content_text}: accepted is one of each")
        return features[0], labels[0]
    require(bool(parts_read), f"{path} holds no file: accepted is an archive with one file of rows label,0,1,...")
    return parts_read[0]


def _labelled_rows(content: IO[bytes], where: str, classes: int) -> tuple[Features, Integers]:
    labels: list[int] = []

    def without_labels() -> Iterator[tuple[int, bytes]]:
        for row, line in _lines(content):
            label, _, row_text = line.partition(b",")
            labels.append(_label(label, where, row, classes))
            yield row, row_text

    return _rows(without_labels(), where), np.array(labels, dtype=np.int64)


def _lines(content: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the stripped text of every line that is not blank."""
    for number, line in enumerate(content, start=1):
        if text := line.strip():
            yield number, text


def _rows(lines: Iterable[tuple[int, bytes]], where: str) -> Features:
    # One growing buffer: the largest of these tables has 415 million values.
    values = bytearray()
    width = 0
    rows = 0
    for row, line in lines:
        features = _zeros_and_ones(line, where, row)
        width = width or len(features)
        accepted = f"accepted are {width}, as above"
        require(len(features) == width, f"{where} has {len(features)} features in row {row}: {accepted}")
        values += features.tobytes()
        rows += 1
    require(rows > 0, f"{where} has 0 rows: at least 1 is needed")
    return np.frombuffer(values, dtype=np.uint8).reshape(rows, width)


def _zeros_and_ones(line: bytes, where: str, row: int) -> Features:
    characters = np.frombuffer(line, dtype=np.uint8)
    digits: Features = characters[::2] - np.uint8(_ZERO)
    # Published rows are single digits between commas, which needs no parsing.
    if len(line) % 2 == 1 and digits.max() <= 1 and (characters[1::2] == _COMMA).all():
        return digits
    cells = line.split(b",")
    numbers = [_number(cell) for cell in cells]
    for position, (number, cell) in enumerate(zip(numbers, cells, strict=True), start=1):
        location = f"row {row}, feature {position}"
        require(number in (0, 1), f"{where} has {_shown(cell)} in {location}: accepted are 0 and 1")
    return np.array(numbers, dtype=np.uint8)


def _label(cell: bytes, where: str, row: int, classes: int) -> int:
    number = _number(cell)
    if number is None or number not in range(1, classes + 1):
        raise InputError(f"{where} has label {_shown(cell)} in row {row}: accepted are 1 to {classes}")
    return int(number) - 1


def _number(cell: bytes) -> float | None:
    try:
        return float(cell.strip().strip(b'"'))
    except ValueError:
        return None


def _shown(cell: bytes) -> str:
    return repr(cell[:20].decode("ascii", errors="replace"))


def _from_npz(path: Path, table: BinaryTable) -> tuple[Features, Integers]:
    arrays = read_archive(path, ("features", "labels"))
    for key in ("features", "labels"):
        require(key in arrays, f"{path} has no array {key}: accepted are features and labels")
        require(arrays[key].dtype.kind in "biuf", f"{path}: {key} has type {arrays[key].dtype}: accepted are numbers")
    features = arrays["features"]
    labels = arrays["labels"]
    require(features.ndim == 2, f"{path}: features have shape {features.shape}: accepted is (records, features)")
    return _checked_binary(features, path, "features"), _numbered(labels, path, table.classes)


def _checked_binary(values: NDArray[np.generic], path: Path, name: str) -> Features:
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        row, position = (int(axis[0]) for axis in np.nonzero(wrong))
        raise InputError(f"{path}: {name} have {values[row, position]} in row {row + 1}: accepted are 0 and 1")
    return values.astype(np.uint8)


def _numbered(labels: NDArray[np.generic], path: Path, classes: int) -> Integers:
    """Return labels as classes 0..k-1, where k is `classes`.

    Accepted are one-hot rows and numbers. Numbers are read as 1..k if the largest label is k, and as 0..k-1 otherwise.
    """
    if labels.ndim == 2:
        require(labels.shape[1] == classes, f"{path}: labels have shape {labels.shape}: accepted are {classes} columns")
        ones = _checked_binary(labels, path, "labels")
        single = ones.sum(axis=1) == 1
        accepted = "accepted are rows of zeros and one 1"
        first = int((~single).argmax())
        require(bool(single.all()), f"{path}: label {first + 1} has not exactly one 1: {accepted}")
        return np.flatnonzero(ones).astype(np.int64) % classes
    require(labels.ndim == 1 and labels.size > 0, f"{path}: labels have shape {labels.shape}: accepted are 1 or 2 axes")
    numbers = labels.astype(np.float64)
    lowest = 1 if numbers.max() == classes else 0
    is_known = np.isin(numbers, np.arange(lowest, lowest + classes))
    first = int((~is_known).argmax())
    accepted = f"accepted are 0 to {classes - 1}, or 1 to {classes}"
    require(bool(is_known.all()), f"{path}: label {first + 1} is {numbers[first]:g}: {accepted}")
    return np.asarray(numbers.astype(np.int64) - lowest)
