"""Find data files in the data directory or where a user says, and read and unpack them."""

import gzip
import os
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Literal

from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import LARGEST_FILE, open_file, read_file, readable, require_size, unpacked
from fl_audit.value_checks import expanded_path

DATA_DIRECTORY_VARIABLE = "FL_AUDIT_DATA"  # environment variable that names the data directory where no other is given

_HOW = f"give the directory that holds it with --data-dir or {DATA_DIRECTORY_VARIABLE}"
_SHOKRI = "https://github.com/privacytrustlab/datasets"
_SOURCES = {
    "adult": "https://archive.ics.uci.edu/dataset/2/adult",
    "mnist": "https://github.com/cvdfoundation/mnist, the writers at https://github.com/facebookresearch/qmnist",
    "location30": _SHOKRI,
    "purchase100": _SHOKRI,
    "texas100": _SHOKRI,
}
"""Addresses of published data sets, by the folder in which each usually lies."""
_FIRST_BYTES = 8
_CHUNK = 2**20


def data_directory(path_given: str | None) -> Path | None:
    """Return the absolute path of the data directory: `path_given`, else the value of FL_AUDIT_DATA, else None."""
    chosen = path_given or os.environ.get(DATA_DIRECTORY_VARIABLE)
    return expanded_path(chosen).absolute() if chosen else None


def locate(directory: Path | None, folder: str, *names: str) -> list[Path]:
    """Return the path of each named file, plain or gzipped, in `directory`/`folder` or in `directory`.

    `directory`: `InputError` is raised if it is None or lacks a file.
    """
    return [locate_any(directory, folder, (name, f"{name}.gz")) for name in names]


def locate_any(directory: Path | None, folder: str, names: Sequence[str]) -> Path:
    """Return the path of the first file that exists among several names, in `directory`/`folder` or in `directory`."""
    wanted_names = " or ".join(names)
    remedy = _HOW
    if (source := _SOURCES.get(folder)) is not None:
        remedy = f"{_HOW}; {folder} is published at {source}"
    if directory is None:
        raise InputError(f"no data directory to look for {wanted_names} in: {remedy}")
    if not directory.is_dir():
        raise InputError(f"data directory {directory} does not exist, looking for {wanted_names}: {remedy}")
    paths = [path / name for path in (directory / folder, directory) for name in names]
    if found := next((path for path in paths if path.is_file()), None):
        return found
    raise InputError(f"{wanted_names} not found in {directory / folder} or {directory}: {remedy}")


def resolve(directory: Path | None, path: str, kind: Literal["file", "folder"] = "file") -> Path:
    """Return the absolute path of an existing file or folder that a user named."""
    first = expanded_path(path).absolute()
    candidates = [first] if directory is None else [first, directory / path]
    for candidate in candidates:
        if candidate.is_file() if kind == "file" else candidate.is_dir():
            return candidate
    tried = " or ".join(map(str, dict.fromkeys(candidates)))
    start = f"the directory that a relative path starts from with --data-dir or {DATA_DIRECTORY_VARIABLE}"
    raise InputError(f"{kind} {tried} not found: give an existing {kind}, or {start}")


def read_bytes(path: Path) -> bytes:
    """Return a file's content, decompressed if it is gzipped; raise `InputError` if it is empty or cannot be read."""
    with readable(path, "damaged gzip data", "a complete file"):
        content = unpacked(read_file(path), path)
    require(bool(content), f"{path} is empty: accepted is a complete file")
    return content


def first_bytes(path: Path) -> bytes:
    """Return up to 8 bytes at the beginning of a file as they are on disk; `InputError` if it cannot be read."""
    with readable(path, "damaged", "a complete file"), open_file(path) as file:
        return file.read(_FIRST_BYTES)


def read_text(path: Path) -> str:
    """Return a file's content as text, decompressed if gzipped; raise `InputError` if it is no readable UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        location = f"byte {error.object[error.start]:#x} at {error.start}"
        raise InputError(f"{path} has {location}: accepted is UTF-8") from error


def read_tar(path: Path, read: Callable[[str, IO[bytes]], None]) -> None:
    """Call a function with the name and the open content of each regular file in a gzipped tar archive.

    Raises `InputError` if the archive cannot be read, is damaged or incomplete, or has another format.
    """
    with (
        readable(path, "a damaged archive", "a complete gzipped tar file"),
        open_file(path) as file,
        gzip.GzipFile(fileobj=file) as unpacked_file,
    ):
        with tarfile.open(fileobj=unpacked_file, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    require_size(path, member.size, LARGEST_FILE, "decompressed ")
                    read(member.name, content)
        # The checksum comes last, behind the end of the archive.
        while unpacked_file.read(_CHUNK):
            pass


def read_zip_member(path: Path, member: str) -> bytes:
    """Return the content of one file in a zip archive; nothing is written to disk."""
    with (
        readable(path, "a damaged archive", "a complete zip file"),
        open_file(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        require(member in archive.namelist(), f"{path} has no file {member}: accepted is the archive as published")
        require_size(path, archive.getinfo(member).file_size, LARGEST_FILE, "decompressed ")
        return archive.read(member)
