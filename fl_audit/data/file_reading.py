"""Read data files and archives, plain or compressed; errors say how to solve the problem."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fl_audit.errors import InputError, first_line, require
from fl_audit.name_lists import name_list

_GZIP_MAGIC = b"\x1f\x8b"
_FIRST_BYTES = 8


def read_bytes(path: Path) -> bytes:
    """Return a file's content, decompressed if it is gzipped; raise `InputError` if it is empty or cannot be read."""
    with _readable(path, (gzip.BadGzipFile, zlib.error, EOFError), "damaged gzip data", "a complete file"):
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    require(bool(content), f"{path} is empty: accepted is a complete file")
    return content


def first_bytes(path: Path) -> bytes:
    """Return up to 8 bytes at the beginning of a file as they are on disk; `InputError` if it cannot be read."""
    with _readable(path, (), "damaged", "a complete file"), path.open("rb") as file:
        return file.read(_FIRST_BYTES)


def read_text(path: Path) -> str:
    """Return a file's content as text, decompressed if gzipped; raise `InputError` if it is no readable UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.object[error.start]:#x} at {error.start}"
        raise InputError(f"{path} has {place}: accepted is UTF-8") from error


@contextmanager
def _readable(path: Path, damaged: tuple[type[Exception], ...], what: str, accepted: str) -> Iterator[None]:
    """Turn an `OSError` of the block, or an exception of the types `damaged`, into an `InputError` of one line."""
    try:
        yield
    except damaged as error:
        raise InputError(f"{path} is {what} ({error}): accepted is {accepted}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): accepted is a readable file") from error


def read_tar(path: Path, read: Callable[[str, IO[bytes]], None]) -> None:
    """Call a function with the name and the open content of each regular file in a gzipped tar archive.

    Raises `InputError` if the archive cannot be read, is damaged or incomplete, or has another format.
    """
    broken = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)
    with _readable(path, broken, "a damaged archive", "a complete gzipped tar file"), gzip.open(path) as unpacked:
        with tarfile.open(fileobj=unpacked, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    read(member.name, content)
        # The checksum comes last, behind the end of the archive.
        while unpacked.read(2**20):
            pass


def read_zip_member(path: Path, member: str) -> bytes:
    """Return the content of one file in a zip archive; nothing is written to disk."""
    broken = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
    with _readable(path, broken, "a damaged archive", "a complete zip file"), zipfile.ZipFile(path) as archive:
        try:
            return archive.read(member)
        except KeyError as error:
            raise InputError(f"{path} has no file {member}: accepted is the archive as published") from error


def read_array(path: Path, name: str | None = None) -> NDArray[np.generic]:
    """Return the array in a NumPy file (.npy), or one array of a NumPy archive (.npz)."""
    with _arrays_readable(path):
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            return np.asarray(found)
        with found:
            names = found.files
            which = name if name is not None else names[0] if len(names) == 1 else None
            listed = ", ".join(names)
            if which is None:
                raise InputError(f"{path} holds {len(names)} arrays, {listed}: name one with --column")
            require(which in names, f"{path} has no array {which!r}: it holds {listed}")
            return np.asarray(found[which])


def archive_names(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in a NumPy archive (.npz), or an empty tuple for a single array (.npy)."""
    with _arrays_readable(path):
        found = np.load(path, allow_pickle=False, mmap_mode="r")
        if not isinstance(found, np.lib.npyio.NpzFile):
            return ()
        with found:
            return tuple(found.files)


def read_archive(path: Path, keys: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a NumPy archive (.npz) that have one of the given names, by name."""
    with _arrays_readable(path):
        # Pickled objects would run code of whoever wrote the file.
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"{path} holds a single array: accepted is an archive (.npz) with {name_list(keys)}")
        with archive:
            return {key: archive[key] for key in keys if key in archive.files}


@contextmanager
def _arrays_readable(path: Path) -> Iterator[None]:
    """Turn exceptions of the block into an `InputError` of one line about the NumPy file."""
    try:
        yield
    except InputError:
        raise
    except (MemoryError, OverflowError) as error:  # a damaged header may claim more than any machine can count
        raise InputError(f"{path} does not fit into memory ({error}): accepted are arrays that do") from error
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        # NumPy takes whatever it does not know for a pickle, and recommends to load it.
        reason = "it is none, or holds Python objects" if "pickle" in str(error) else first_line(error)
        raise InputError(f"{path} is no readable NumPy archive ({reason}): accepted is .npz without objects") from error
