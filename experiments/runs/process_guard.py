"""A guard that ends what a run leaves behind: a process that waits for the end of another one, and then acts.

Ray starts helper processes that live on when the process that started Ray is killed. This module is also the program of
the waiting process. It reads from a pipe that only the guarded process holds open, so it notices every kind of end, and
knows what belongs to the run by an environment variable that all processes of the run inherit. A temporary directory of
the run goes with it.
"""

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

_MARK = "FL_AUDIT_EMBEDDED_RAY"
_KEEP_ENVIRONMENT = "SPT_NOENV"
"""Tells processes of Ray that change their title not to overwrite their environment, where the mark is."""
_SECONDS_TO_END = 8.0
_SECONDS_BETWEEN_LOOKS = 0.15
_GUARDS: list[subprocess.Popen[bytes]] = []  # kept, since a guard acts once its pipe is closed
_QUIET_LOOKS = 3  # so often in a row nothing must be found: a process that is just being started may not be seen yet


@contextmanager
def nothing_outlives(directory: Path | None = None) -> Iterator[None]:
    """End every process that is started inside the block when the block ends, or when this process does.

    This covers processes that inherit the environment of this one, on this machine; on Linux, macOS and Windows alike.

    Parameters
    ----------
    directory
        A temporary directory of these processes, which is removed after them; None for none.
    """
    guard, marks = _guard(directory)
    try:
        with environment(marks):
            yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(_SECONDS_TO_END + 2.0)


def nothing_outlives_this_process(directory: Path | None = None) -> None:
    """End every process that is started from now on when this process ends, in whatever way.

    Parameters
    ----------
    directory
        As for `nothing_outlives`.
    """
    guard, marks = _guard(directory)
    _GUARDS.append(guard)
    os.environ.update(marks)


def _guard(directory: Path | None) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Start a guard of this process, and return it with the environment variables of guarded processes."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-P", str(Path(__file__).resolve()), mark]
    if directory is not None:
        command.append(str(directory))
    # A session of its own keeps it from the signals that end this process and its group.
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    return guard, {_MARK: mark, _KEEP_ENVIRONMENT: "1"}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes of this machine that have a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            # It has just ended, or belongs to somebody else.
            continue
    return found


def main() -> None:
    """Wait until standard input ends, and then end the processes with the mark on the command line.

    Processes are killed until none is left, for some seconds at most. Their temporary directory is then removed, if the
    command line names one.
    """
    sys.stdin.buffer.read()
    deadline, quiet = time.monotonic() + _SECONDS_TO_END, 0
    while quiet < _QUIET_LOOKS and time.monotonic() < deadline:
        left = marked(sys.argv[1])
        quiet = 0 if left else quiet + 1
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    for directory in sys.argv[2:]:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
