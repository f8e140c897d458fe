"""Temporary directories of trials; each is named after its owner's process ID, so that leftovers can be removed."""

import shutil
from pathlib import Path
from tempfile import gettempdir, mkdtemp

DIRECTORY_PREFIX = "fl-audit-trials-"
"""Prefix of the directories' names; the process ID of the owner follows."""
_CLOCK_ERROR = 2.0  # seconds by which the times of processes and of files may differ


def new_temporary_directory(owner: int, within: Path | None = None) -> Path:
    """Create a temporary directory for a process, and return its path.

    Before this, the temporary directories of processes that have ended are removed.
    """
    remove_orphans()
    return Path(mkdtemp(prefix=f"{DIRECTORY_PREFIX}{owner}-", dir=within)).resolve()


def remove_orphans() -> None:
    """Delete the temporary directories of trials whose owner process has ended."""
    for path in Path(gettempdir()).glob(f"{DIRECTORY_PREFIX}*-*"):
        number = path.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
        if number.isdecimal() and not _is_owned(path, int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _is_owned(path: Path, owner: int) -> bool:
    """Return whether the process that made a directory still runs; a later one with the same ID does not count."""
    # Imported here because every client imports this module, and rarely finds a directory to check.
    import psutil  # noqa: PLC0415

    try:
        return psutil.Process(owner).create_time() <= path.stat().st_mtime + _CLOCK_ERROR
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except (psutil.Error, OSError):  # the process or directory belongs to another user
        return True
