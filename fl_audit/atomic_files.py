"""Write text, bytes and JSON files atomically, and recognise what is no ordinary file."""

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError, require


@contextmanager
def atomic_file(path: Path, private: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write to, and rename it to `path` if the `with` block succeeds.

    Readers never see a partial file, and an interrupted writer leaves no temporary file behind.

    `path`: The temporary file has the same suffix.
    """
    require_ordinary(str(path), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    temporary.unlink(missing_ok=True)
    try:
        temporary.touch(0o600 if private else 0o666, exist_ok=False)
        permissions = stat.S_IMODE(temporary.stat().st_mode)  # permissions that the system granted
        yield temporary
        # Some writers make the file anew, with permissions of their own.
        temporary.chmod(permissions)
        os.replace(temporary, path)
    except Exception as error:
        # Writers name their temporary file, or none, and some say it in words of their own.
        named = re.search(r"os error (\d+)", str(error))
        number = error.errno if isinstance(error, OSError) else int(named[1]) if named else None
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, private: bool = False) -> None:
    """Write a text file in UTF-8 atomically, see `atomic_file`."""
    with atomic_file(path, private) as file:
        file.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes, private: bool = False) -> None:
    """Write bytes to a file atomically, see `atomic_file`."""
    with atomic_file(path, private) as file:
        file.write_bytes(content)


def write_json(path: Path, value: Any, private: bool = False) -> None:
    """Write a JSON file atomically, see `atomic_file`; infinite numbers and NaN raise `ValueError`."""
    write_text(path, json_text(value), private)


def json_text(value: Any) -> str:
    """Return a value as the text of a JSON file; raise `ValueError` for infinite numbers and NaN."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def require_ordinary(said: str, path: Path) -> None:
    """Raise `InputError` if a path is a pipe, a socket, a device or a loop of symbolic links.

    A missing path is accepted, and so is a pipe that the shell has opened, such as `<(command)`.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else errno.EINVAL
        if number in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM):
            return
        why = os.strerror(number or errno.EINVAL)
        shown = said if len(said) <= _LONGEST_SAID else f"{said[:_LONGEST_SAID]}..."
        raise InputError(f"{shown} cannot be had ({why}): accepted are files and directories") from error
    is_open = path.as_posix().startswith(_OPENED) and stat.S_ISFIFO(mode)
    found = next((words for is_kind, words in _KINDS.items() if is_kind(mode)), None)
    require(found is None or is_open, f"{said} is {found}: accepted are files and directories")


_LONGEST_SAID = 100
_OPENED = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
_KINDS = {stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket", stat.S_ISCHR: "a device", stat.S_ISBLK: "a device"}


def remove_temporary_files(directory: Path) -> None:
    """Remove the temporary files of interrupted writers from a directory and its subdirectories."""
    for path in directory.rglob("*"):
        if is_temporary_file(path) and path.is_file():
            path.unlink(missing_ok=True)


def is_temporary_file(path: Path) -> bool:
    """Return True if a file has the name of a temporary file that `atomic_file` makes."""
    return path.match(".*.part*")
