"""Temporary directories of trials, which name their owner's process: those of killed owners are removed later."""

import shutil
from pathlib import Path
from tempfile import gettempdir, mkdtemp

DIRECTORY_PREFIX = "fl-audit-trials-"
"""Prefix of the names of all such directories, which the number of the owner's process follows."""
_CLOCK_ERROR = 2.0  # seconds by which the times of processes and of files may differ


def new_temporary_directory(owner: int, within: Path | None = None) -> Path:
    """Make a temporary directory for a process, and remove those whose owners have ended.

    Parameters
    ----------
    owner
        Number of the process that owns the directory.
    within
        Parent of the directory; None for the usual place of temporary files.
    """
    remove_orphans()
    return Path(mkdtemp(prefix=f"{DIRECTORY_PREFIX}{owner}-", dir=within)).resolve()


def remove_orphans() -> None:
    """Remove the directories of processes that were killed and could not clean up."""
    for path in Path(gettempdir()).glob(f"{DIRECTORY_PREFIX}*-*"):
        number = path.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
        if number.isdecimal() and not _is_owned(path, int(number)):
            shutil.rmtree(path, ignore_errors=True)


def _is_owned(path: Path, owner: int) -> bool:
    """Return whether the owner of a directory still runs, and is not a later process with the same number."""
    # A client of a running federation imports this module, and mostly finds no directory to look at.
    import psutil

    try:
        return psutil.Process(owner).create_time() <= path.stat().st_mtime + _CLOCK_ERROR
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except (psutil.Error, OSError):  # it belongs to somebody else
        return True
