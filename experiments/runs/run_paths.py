"""Checks of a run directory that need no slow imports."""

import os
from pathlib import Path

from fl_audit.atomic_files import SEALS, is_half
from fl_audit.errors import InputError, require

CONFIGURATION = Path("public") / "configuration.json"
"""Path of the description of a run's public part; a directory with this file is a run, begun or finished."""
_OF_A_BEGINNING = frozenset({"challenger", "challenger/.lock", "challenger/seed.json", "public", SEALS})
"""Files that a process killed before its run has begun may leave, besides partial files."""


def is_begun(directory: Path) -> bool:
    """Return whether a directory holds a run, finished or not."""
    return (directory / CONFIGURATION).exists()


def nearest_existing(directory: Path) -> Path:
    """Return the directory, or its nearest existing parent."""
    return next(place for place in (directory.absolute(), *directory.absolute().parents) if os.path.lexists(place))


def _is_free(directory: Path) -> bool:
    """Return whether a new run can begin in a directory: it is missing, empty, or has only remains of a failed start.

    Another process may be about to begin a run there; the lock, which is taken later, excludes that.
    """
    if not os.path.lexists(directory):
        return True
    if not directory.is_dir() or is_begun(directory):
        return False
    left = (path.relative_to(directory) for path in directory.rglob("*"))
    return all(path.as_posix() in _OF_A_BEGINNING or is_half(path) for path in left)


def require_run(directory: Path) -> None:
    """Raise `InputError` if a directory holds no run."""
    if not is_begun(directory):
        raise InputError(f"{directory / CONFIGURATION} is missing: accepted is a directory that 'fl-audit run' made")


def require_new_run_path(directory: Path, resume: bool) -> None:
    """Check that a run can begin in a directory, or be continued there.

    Raises `InputError` if the directory is not empty and `resume` is false, or if it holds no run and `resume` is true.
    It is also raised if the directory cannot be created, because a file has its name or permission is missing.

    Parameters
    ----------
    directory
        The run directory.
    resume
        Whether an earlier run in this directory is to be continued.
    """
    if resume:
        required = f"run directory {directory} holds no run: --resume goes on with one that was begun there"
        require(is_begun(directory), required)
        return
    accepted = "accepted is a new directory, or --resume to go on with the run in it"
    require(_is_free(directory), f"run directory {directory} exists: {accepted}")
    there = nearest_existing(directory)
    kind = "a link that leads nowhere" if there.is_symlink() and not there.exists() else "a file"
    cause = f"{there} is {'not for us to write in' if there.is_dir() else kind}"
    said = f"run directory {directory} cannot be made, because {cause}: accepted is a place below a directory that is"
    require(there.is_dir() and os.access(there, os.W_OK), said)
