"""Checks of a run directory, in a module that imports nothing slow, so that errors are reported at once."""

import os
import tempfile
from pathlib import Path

from fl_audit.atomic_files import is_temporary_file
from fl_audit.errors import InputError, require

CONFIGURATION = Path("public") / "configuration.json"
"""Path of the description of a run's public part; a directory with this file is a run, begun or finished."""
_OF_A_BEGINNING = frozenset({"challenger", "challenger/.lock", "challenger/seed.json", "public"})
"""Files that a process killed before its run has begun may leave, besides partial files."""


RESUME = "--resume (in Python, resume=True)"
"""Words for the option that continues a run, for messages that commands and `run_audit` share."""


def is_begun(directory: Path) -> bool:
    """Return whether a directory holds a run, finished or not."""
    return (directory / CONFIGURATION).exists()


def nearest_existing(directory: Path) -> Path:
    """Return the directory as an absolute path if it exists, else the nearest of its parents that exists."""
    return next(parent for parent in (directory.absolute(), *directory.absolute().parents) if os.path.lexists(parent))


def _is_free(directory: Path) -> bool:
    """Return whether a directory is missing, is empty, or has only the remains of a run that failed to start."""
    if not os.path.lexists(directory):
        return True
    if not directory.is_dir() or is_begun(directory):
        return False
    paths = (path.relative_to(directory) for path in directory.rglob("*"))
    return all(path.as_posix() in _OF_A_BEGINNING or is_temporary_file(path) for path in paths)


def require_run(directory: Path) -> None:
    """Raise `InputError` if a directory holds no run."""
    if not is_begun(directory):
        raise InputError(f"{directory / CONFIGURATION} is missing: accepted is a directory that 'fl-audit run' made")


def require_new_run_path(directory: Path, resume: bool) -> None:
    """Raise `InputError` if a directory cannot be used for a new run, or for the continuation of a run.

    `resume`: If so, the directory must hold this run. Otherwise the directory must be new, empty, or left by a failed
    start, and it must be possible to create it.
    """
    if resume:
        required = f"run directory {directory} holds no run: {RESUME} goes on with one that was begun there"
        require(is_begun(directory), required)
        return
    problem = "exists"
    accepted = f"accepted is a new directory, or {RESUME} to go on with the run in it"
    if not is_begun(directory):
        problem = "exists and holds no run"
        accepted = "accepted is a new or an empty directory"
    if directory.exists() and not directory.is_dir():
        problem = "is a file"
    require(_is_free(directory), f"run directory {directory} {problem}: {accepted}")
    require_writable(f"run directory {directory}", directory)


def require_writable(subject: str, path: Path) -> None:
    """Raise `InputError` if no file or directory can be made at a path.

    This makes an empty directory beside it for a moment, because permissions do not tell of `/proc`.
    """
    there = nearest_existing(path if path.is_dir() else path.parent)
    kind = "a link that leads nowhere" if there.is_symlink() and not there.exists() else "a file"
    cause = f"{there} is {'not for us to write in' if there.is_dir() else kind}"
    problem = f"{subject} cannot be made, because {cause}: accepted is a place below a directory that is"
    try:
        Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=there)).rmdir()
    except OSError:
        raise InputError(problem) from None
