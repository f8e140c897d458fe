"""Read data files and archives, plain or compressed; errors say how to solve the problem."""

import gzip
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import LARGEST_FILE, open_file, read_file, readable, require_size, unpacked

_FIRST_BYTES = 8
_CHUNK = 2**20


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
