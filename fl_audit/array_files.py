"""Read NumPy files (.npy), archives (.npz) and files of tensors of users, whose sizes are checked first."""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from safetensors import safe_open

from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import LARGEST_FILE, open_file, readable, require_size
from fl_audit.words import name_list

if TYPE_CHECKING:
    from torch import Tensor

_ZIP = b"PK"
_NPY = b"\x93NUMPY"
_ENCRYPTED = 1  # flag of a member of a zip archive
_SUFFIX = ".npy"
_LARGEST = 2**63  # a file of tensors is not compressed, and takes no more memory than it has bytes


def read_array(path: Path, name: str | None = None) -> NDArray[np.generic]:
    """Return the array in a NumPy file (.npy), or one array of a NumPy archive (.npz)."""
    with _open(path) as file:
        if not _is_archive(file):
            _require_array(path, file, _size_of(file))
            return _loaded(file)
        names = _names(file)
        which = name if name is not None else names[0] if len(names) == 1 else None
        listed = ", ".join(names)
        if which is None:
            raise InputError(f"{path} holds {len(names)} arrays, {listed}: name one with --column")
        require(which in names, f"{path} has no array {which!r}: it holds {listed}")
        return _members(path, file, [which])[which]


def archive_names(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in a NumPy archive (.npz), or an empty tuple for a single array (.npy)."""
    with _open(path) as file:
        return _names(file) if _is_archive(file) else ()


def read_archive(path: Path, keys: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a NumPy archive (.npz) that have one of the given names, by name."""
    with _open(path) as file:
        if not _is_archive(file):
            raise InputError(f"{path} holds a single array: accepted is an archive (.npz) with {name_list(keys)}")
        names = _names(file)
        return _members(path, file, [key for key in keys if key in names])


@contextmanager
def _open(path: Path) -> Iterator[io.BufferedReader]:
    with readable(path, "no readable NumPy archive", ".npz without objects"), open_file(path) as file:
        beginning = file.read(len(_NPY))
        # NumPy takes whatever it does not know for a pickle, which would run code of whoever wrote the file.
        is_known = beginning.startswith(_ZIP) or beginning == _NPY
        none = f"{path} is no readable NumPy archive (it is none, or holds Python objects)"
        require(is_known, f"{none}: accepted is .npz without objects")
        yield file


def _is_archive(file: io.BufferedReader) -> bool:
    file.seek(0)
    return file.read(len(_ZIP)) == _ZIP


def _size_of(file: io.BufferedReader) -> int:
    file.seek(0, 2)
    return file.tell()


def _names(file: io.BufferedReader) -> tuple[str, ...]:
    with zipfile.ZipFile(file) as archive:
        return tuple(name.removesuffix(_SUFFIX) for name in archive.namelist())


def _members(path: Path, file: io.BufferedReader, names: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return arrays of an archive, whose sizes together are checked first."""
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        files = {info.filename.removesuffix(_SUFFIX): info for info in archive.infolist()}
        require_size(path, sum(files[name].file_size for name in names), LARGEST_FILE, "decompressed ")
        for name in names:
            info = files[name]
            require(not info.flag_bits & _ENCRYPTED, f"{path} is encrypted: accepted is an archive without a password")
            with archive.open(info) as member:
                _require_array(path, member, info.file_size)
            with archive.open(info) as member:
                arrays[name] = _loaded(member)
    return arrays


def _require_array(path: Path, file: IO[bytes], size: int) -> None:
    """Raise an error unless the header of an array fits the number of bytes that a file really has."""
    if file.seekable():
        file.seek(0)
    version = npy.read_magic(file)
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(file)
    # With objects nothing is known of the size, and loading refuses them.
    claimed = 0 if dtype.hasobject else prod(shape) * dtype.itemsize
    require(claimed <= size, f"{path} is damaged: an array of {claimed:,} bytes in a file of {size:,}")


def _loaded(file: IO[bytes]) -> NDArray[np.generic]:
    if file.seekable():
        file.seek(0)
    try:
        return np.asarray(npy.read_array(file, allow_pickle=False))
    except ValueError as error:
        if "pickle" not in str(error) and "Object" not in str(error):
            raise
        raise ValueError("it is none, or holds Python objects") from error


def read_arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return all arrays of a NumPy archive (.npz), by name."""
    return read_archive(path, archive_names(path))


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Yield an open safetensors file; errors of the block become an `InputError` about the file."""
    with readable(path, "no file of tensors that can be read", "a complete file"):
        open_file(path, _LARGEST).close()
        with safe_open(path, "pt") as file:
            yield file


def read_tensors(path: Path) -> dict[str, "Tensor"]:
    """Return the tensors in a safetensors file by name; raise `InputError` if the file cannot be read."""
    with open_tensors(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
