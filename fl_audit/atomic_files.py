"""Write text, bytes and JSON files atomically."""

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fl_audit.ordinary_files import require_ordinary


@contextmanager
def atomic_file(path: Path, private: bool = False) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write to, and rename it to `path` if the `with` block succeeds.

    Readers never see a partial file, and an interrupted writer leaves no temporary file behind.

    `path`: The temporary file has the same suffix.
    """
    require_ordinary(str(path), path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
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
        number_match = re.search(r"os error (\d+)", str(error))
        number = error.errno if isinstance(error, OSError) else int(number_match[1]) if number_match else None
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


def remove_temporary_files(directory: Path) -> None:
    """Remove the temporary files of interrupted writers from a directory and its subdirectories."""
    for path in directory.rglob("*"):
        if is_temporary_file(path) and path.is_file():
            path.unlink(missing_ok=True)


def is_temporary_file(path: Path) -> bool:
    """Return True if a file has the name of a temporary file that `atomic_file` makes."""
    return path.match(".*.part*")
