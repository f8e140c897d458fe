"""Files that are written whole or not at all."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, private: bool = False) -> Iterator[Path]:
    """Give a temporary name beside `path` to write to, and move the file into place when the block ends well.

    A reader never finds half a file, and an interrupted writer leaves none behind.

    Parameters
    ----------
    path
        The file to write; its directory is made where it is missing. The temporary name has the same ending.
    private
        Whether nobody but the owner may read it; otherwise the file mode creation mask of the user decides.

    Raises
    ------
    OSError
        If the system refuses to write, as on a full disk; it names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    temporary.unlink(missing_ok=True)
    try:
        permissions = _created(temporary, 0o600 if private else 0o666)
        yield temporary
        # Some writers make the file anew, with permissions of their own.
        temporary.chmod(permissions)
        os.replace(temporary, path)
    except Exception as error:
        if (number := _number_of(error)) is None:
            raise
        # Writers name their temporary file, or none, and some say it in words of their own.
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _number_of(error: Exception) -> int | None:
    """Return the number of the system's error that made a writer fail, None where it was something else."""
    if isinstance(error, OSError):
        return error.errno
    named = re.search(r"os error (\d+)", str(error))
    return None if named is None else int(named.group(1))


def _created(path: Path, wanted: int) -> int:
    """Create an empty file, and return the permissions that the system granted of those that were wanted."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, wanted)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def remove_halves(directory: Path) -> None:
    """Remove what writers that were killed left of their files in a directory and below it."""
    for path in directory.rglob("*"):
        if is_half(path) and path.is_file():
            path.unlink(missing_ok=True)


def is_half(path: Path) -> bool:
    """Return whether a writer that was killed left this of its file, by its name."""
    return path.match(".*.part*")
