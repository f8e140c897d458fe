"""Open files of users: ordinary files alone, up to a size that the error message names.

A pipe, a device or a file of `/proc` can keep a program waiting for ever, and an archive of a few kilobytes can fill
the memory. Every module that reads a file reads it with the functions of this module; a test holds them to it.
"""

import errno
import gzip
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fl_audit.errors import InputError, first_line, require

LARGEST_FILE = 2**32
"""Bytes of the largest data file, also after it is decompressed: 4 GiB."""
LARGEST_TEXT = 2**26
"""Bytes of the largest configuration, result in JSON or source file: 64 MiB."""

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 2**22
_LONGEST_SAID = 100
_OPENED = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
_KINDS = {stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket", stat.S_ISCHR: "a device", stat.S_ISBLK: "a device"}


def require_ordinary(subject: str, path: Path) -> None:
    """Raise `InputError` if a path is a pipe, a socket, a device or a loop of symbolic links.

    A missing path is accepted, and so is a pipe that the shell has opened, such as `<(command)`.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else errno.EINVAL
        if number in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM):
            return
        raise _unusable(subject, os.strerror(number or errno.EINVAL)) from error
    _require_kind(subject, path, mode)


def open_file(path: Path, largest: int = LARGEST_FILE) -> io.BufferedReader:
    """Open an ordinary file, or a pipe that the shell has opened, to read its bytes.

    Raises `InputError` if the path is something else or the file is larger than `largest` bytes, and `OSError` if the
    file cannot be opened.
    """
    is_opened_pipe = path.as_posix().startswith(_OPENED)
    # Without waiting: a pipe to which nobody writes would keep the program waiting when it is opened.
    flags = os.O_RDONLY | os.O_CLOEXEC | (0 if is_opened_pipe else os.O_NONBLOCK)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:
        raise _unusable(str(path), first_line(error)) from error
    file = os.fdopen(descriptor, "rb") if not stat.S_ISDIR(os.fstat(descriptor).st_mode) else None
    if file is None:
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        status = os.fstat(descriptor)
        _require_kind(str(path), path, status.st_mode)
        of_system = f"{_short(str(path))} is a file of the system: accepted are files and directories"
        require(status.st_dev != _device_of_processes(), of_system)
        require_size(path, status.st_size, largest)
    except InputError:
        file.close()
        raise
    return file


def read_file(path: Path, largest: int = LARGEST_FILE) -> bytes:
    """Return the content of an ordinary file; raise errors as `open_file` does."""
    with open_file(path, largest) as file:
        return _read_up_to(file, path, largest)


def _read_up_to(file: io.BufferedReader | gzip.GzipFile, path: Path, largest: int, advice: str = "") -> bytes:
    """Return what is left of a file, in pieces, so that no more memory is taken than the content needs."""
    chunks = list[bytes]()
    size = 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        require_size(path, size, largest, advice)
        chunks.append(chunk)
    return b"".join(chunks)


def read_text_file(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of an ordinary file of up to 64 MiB, with "\\n" at the end of every line."""
    text = read_file(path, LARGEST_TEXT).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of an ordinary file of any size, in hexadecimal digits."""
    with open_file(path, largest=2**63) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpacked(content: bytes, path: Path, largest: int = LARGEST_FILE) -> bytes:
    """Return bytes, decompressed if they are gzipped; raise `InputError` if they become more than `largest` bytes.

    Raises `OSError`, `EOFError` or `zlib.error` if the data are damaged.
    """
    if not content.startswith(_GZIP_MAGIC):
        return content
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        return _read_up_to(file, path, largest, "decompressed ")


def require_size(path: Path, size: int, largest: int, advice: str = "") -> None:
    """Raise `InputError` if a file has more bytes than are accepted."""
    require(size <= largest, f"{path} has more than {largest:,} {advice}bytes: accepted are smaller files")


@contextmanager
def readable(path: Path, kind: str, accepted: str) -> Iterator[None]:
    """Turn every error of the block, which reads a user's file, into an `InputError` of one line.

    Libraries that read files raise errors of many kinds at damaged ones.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        # Decoders raise errors without a number; those of the system have one.
        why = first_line(error) if error.errno is None else f"{error.strerror}"
        problem = f"{path} is {kind} ({why})" if error.errno is None else f"{path} cannot be read ({why})"
        raise InputError(f"{problem}: accepted is {accepted}") from error
    except (MemoryError, OverflowError) as error:
        raise InputError(f"{path} does not fit into memory: accepted are smaller files") from error
    except Exception as error:
        raise InputError(f"{path} is {kind} ({first_line(error)}): accepted is {accepted}") from error


def _require_kind(subject: str, path: Path, mode: int) -> None:
    is_open = path.as_posix().startswith(_OPENED) and stat.S_ISFIFO(mode)
    kind = next((words for is_kind, words in _KINDS.items() if is_kind(mode)), None)
    require(kind is None or is_open, f"{_short(subject)} is {kind}: accepted are files and directories")


@cache
def _device_of_processes() -> int | None:
    """Return the number of the file system `/proc`, whose files may have no end; None where there is none."""
    try:
        return os.stat("/proc/self").st_dev
    except OSError:
        return None


def _unusable(subject: str, why: str) -> InputError:
    return InputError(f"{_short(subject)} cannot be had ({why}): accepted are files and directories")


def _short(subject: str) -> str:
    return subject if len(subject) <= _LONGEST_SAID else f"{subject[:_LONGEST_SAID]}..."
