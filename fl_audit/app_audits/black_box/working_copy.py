"""Copy of the working directory for trials: files written in it are removed, and files written elsewhere are reported.

Experiment trackers such as wandb are disabled in trials (`silent_trackers`). A review also copies the app's directory
once for each of its processes, since an app may write while it is imported or started, before any trial; within that
copy, each trial has a working copy, which is as it was before the next one.
"""

import atexit
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from fl_audit.app_audits.silent_trackers import silent_trackers
from fl_audit.app_audits.temporary_directories import DIRECTORY_PREFIX, new_temporary_directory

_ABSENT = frozenset({"wandb", "mlruns", "runs", "__pycache__"})
"""Directories that are not copied: those of experiment trackers, which start empty in trials, and of bytecode."""
_LINKED = frozenset({".git", ".venv", "venv", "node_modules"})  # directories that are linked, as trials only read them
_MOST_ENTRIES = 5000
_LARGEST = 20_000_000
_MOST_BYTES = 200_000_000
"""Largest number of files and folders, bytes of a file, and bytes in total to copy; everything beyond is linked."""
_WRITES = {"os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.rename": 1, "sqlite3.connect": 0}
"""Python's audit events that change files, with the index of the argument that is the path."""
_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_SHOWN = 5


class WorkingCopy:
    """Copy of the working directory, in which an app's code may write during trials.

    Large files, and everything beyond a few thousand files, are links to the originals; writing to them is reported.
    The directory `without`, which stores the trials, is not copied. The copy is made in `room`, or among temporary
    files.
    """

    def __init__(self, original: Path, without: Path | None = None, room: Path | None = None) -> None:
        self.original = original
        self._room = new_temporary_directory(os.getpid(), room)
        self.directory, self._kept = self._room / (original.name or "root"), self._room / ".kept"
        self._without, self.outside, self._is_written, self.was_written = without, list[str](), False, False
        self._mirror()
        shutil.copytree(self._kept, self.directory, symlinks=True)
        self._first = self._listed()

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self._room, ignore_errors=True)

    def _mirror(self) -> None:
        entries = size = 0
        queue = deque([Path()])
        # A root or home directory is not copied, since it is not the directory of an app.
        is_full = self.original in (Path(self.original.anchor), Path.home())
        self._kept.mkdir(parents=True)
        while queue:
            inner = queue.popleft()
            try:
                with os.scandir(self.original / inner) as directory_entries:
                    here = [entry for entry in directory_entries if self._belongs(entry)]
            except OSError:  # unreadable files are skipped
                continue
            entries += len(here)
            is_full = is_full or entries > _MOST_ENTRIES or size > _MOST_BYTES
            if is_full and inner != Path():
                (self._kept / inner).symlink_to(self.original / inner)
                continue
            (self._kept / inner).mkdir(exist_ok=True)
            for entry_here in here:
                if entry_here.is_dir(follow_symlinks=False) and entry_here.name not in _LINKED and not is_full:
                    queue.append(inner / entry_here.name)
                    continue
                small = entry_here.is_file(follow_symlinks=False) and (length := entry_here.stat().st_size) <= _LARGEST
                source = self.original / inner / entry_here.name
                target = self._kept / inner / entry_here.name
                if not small or is_full:
                    target.symlink_to(source)
                    continue
                size += length
                with suppress(OSError):  # unreadable files are skipped
                    shutil.copy2(source, target)

    def _belongs(self, entry: "os.DirEntry[str]") -> bool:
        """Return False for an entry that is not copied: a tracker's folder, stored trials, a working copy."""
        is_copy = entry.name.startswith(DIRECTORY_PREFIX)
        return not is_copy and entry.name not in _ABSENT and Path(entry.path) != self._without

    def _listed(self) -> dict[str, tuple[int, int]]:
        """Return bytes and modification time (ns) of each entry, by relative path; (0, 0) for links and directories."""
        files = dict[str, tuple[int, int]]()
        folders = [""]
        while folders:
            folder = folders.pop()
            with os.scandir(self.directory / folder) as entries:
                for entry in entries:
                    if entry.name == "__pycache__":
                        continue
                    path = f"{folder}{entry.name}"
                    about = entry.stat(follow_symlinks=False) if entry.is_file(follow_symlinks=False) else None
                    files[path] = (0, 0) if about is None else (about.st_size, about.st_mtime_ns)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{path}/")
        return files

    def restore(self, thoroughly: bool = True) -> None:
        """Restore the copy to its first state.

        If `thoroughly` is false, the copy is restored only if a write to it was observed.
        """
        if not (thoroughly or self._is_written):
            return
        self._is_written, now = False, self._listed()
        for name in sorted(now.keys() - self._first.keys()):
            path = self.directory / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for name in sorted(
            changed_path for changed_path, status in self._first.items() if now.get(changed_path) != status
        ):
            source = self._kept / name
            target = self.directory / name
            if source.is_dir() and not source.is_symlink():
                target.mkdir(exist_ok=True)
            else:
                target.unlink(missing_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        if now != self._first:
            self._first = self._listed()

    def record_write(self, path: str) -> None:
        """Record that code wrote to a path: mark the copy as changed, or add a path outside of the copy to `outside`.

        Temporary files, devices and bytecode are ignored.
        """
        real_path = os.path.realpath(path)
        if real_path.startswith(f"{self._room}{os.sep}"):
            self._is_written = self.was_written = True
        elif (
            not real_path.startswith((f"{gettempdir()}{os.sep}", "/dev/", "/proc/")) and "__pycache__" not in real_path
        ):
            self.outside += [real_path] if real_path not in self.outside else []

    def path_in_copy(self, path: str) -> str:
        """Return the copy's path for a path in the original directory; return any other path unchanged."""
        inside = path.startswith(f"{self.original}{os.sep}") and self.original != Path(self.original.anchor)
        inside = inside and not path.startswith(f"{self._room}{os.sep}")
        return f"{self.directory}{path.removeprefix(str(self.original))}" if inside else path


_here: dict[str, Any] = {"copy": None, "thread": 0, "is_heard": False}
"""Working copy and thread of the current trial, and whether the hook for Python's audit events is installed."""


@contextmanager
def in_working_copy(copy: WorkingCopy, thoroughly: bool = True) -> Iterator[None]:
    """Run a `with` block in a copy of the working directory, with experiment trackers disabled; then restore the copy.

    A block within another one runs in the copy of the outer block.
    """
    if _here["copy"] is not None:  # already in a trial, whose clients run in this process
        yield
        return
    if not _here["is_heard"]:
        sys.addaudithook(_heard)
    _wait_for_trackers()
    _here.update(copy=copy, thread=threading.get_ident(), is_heard=True)
    os.chdir(copy.directory)
    try:
        with silent_trackers():
            yield
    finally:
        _here["copy"] = None
        os.chdir(copy.original)
        copy.restore(thoroughly)


def _wait_for_trackers() -> None:
    """Wait until TensorBoard's threads have written all data that the app has logged.

    A thread reopens its file at every write, so a relative path would fail after the working directory has changed.
    """
    writers = sys.modules.get("tensorboard.summary.writer.event_file_writer")
    for thread in threading.enumerate() if writers is not None else ():
        if isinstance(thread, getattr(writers, "_AsyncWriterThread", ())) and thread.is_alive():
            thread._queue.join()  # type: ignore[attr-defined]


def path_in_current_copy(path: str) -> str:
    """Return the path that corresponds to `path` in the current trial's copy of the working directory.

    Outside of trials, `path` is returned unchanged.
    """
    return path if _here["copy"] is None else str(_here["copy"].path_in_copy(path))


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    copy = _here["copy"]
    if copy is None or _here["thread"] != threading.get_ident():
        return
    if event == "open":
        path, mode, flags = arguments
        writes = set(mode) & set("wax+") if isinstance(mode, str) else isinstance(flags, int) and flags & _FLAGS
    elif event in _WRITES:
        path = arguments[_WRITES[event]]
        writes = True
    else:
        return
    if writes and isinstance(path, (str, bytes, os.PathLike)):
        copy.record_write(os.fsdecode(path))


_own: list[WorkingCopy] = []


def own_copy() -> WorkingCopy:
    """Return the working copy of the current trial, or one copy for this process if no trial is running.

    The copy of the process is removed when the process ends.
    """
    if _here["copy"] is not None:
        copy: WorkingCopy = _here["copy"]
        return copy
    if not _own or _own[0].original != Path.cwd():
        _own[:] = [WorkingCopy(Path.cwd())]
        atexit.register(_own[0].remove)
    return _own[0]


def outside_words(paths: Sequence[str]) -> str:
    """Return a sentence for the user that lists files outside of the working directory; "" if there are none.

    Trials have written to these files, although they should write only to copies of the working directory.
    """
    suffix = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    where = f"{', '.join(sorted(paths)[:_SHOWN])}{suffix}, outside of the working directory"
    return f"Trials wrote to {where}: this could not be kept from happening." if paths else ""
