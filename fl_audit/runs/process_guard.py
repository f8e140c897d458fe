"""A guard process, which waits for the end of another process and then kills the processes that were left behind.

Ray's helper processes would live on if the process that started Ray is killed. The guard reads from a pipe that only
the guarded process holds open, and thus notices its end in any case. The processes to kill are recognised by an
environment variable that they inherit. The guard also removes a temporary directory. This module starts guards, and is
their program as well.
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
    """Make sure that all processes that a `with` block starts end with the block, even if this process is killed.

    Only processes on this machine that inherit the environment of this process are found.
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
    """Make sure that all processes started from now on end with this process, even if it is killed.

    Only processes on this machine that inherit the environment of this process are found.
    """
    guard, marks = _guard(directory)
    _GUARDS.append(guard)
    os.environ.update(marks)


def _guard(directory: Path | None) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    """Start a guard for this process; return it with the environment variables that mark the processes to kill."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-P", str(Path(__file__).resolve()), mark]
    if directory is not None:
        command.append(str(directory))
    # A session of its own keeps it from the signals that end this process and its group.
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    return guard, {_MARK: mark, _KEEP_ENVIRONMENT: "1"}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, given by name, while the block runs, then restore their former values."""
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


def marked_processes(mark: str) -> list[psutil.Process]:
    """Return the processes on this machine whose environment variable FL_AUDIT_EMBEDDED_RAY has the value `mark`."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark:
                processes.append(process)
        except (psutil.Error, OSError):
            # It has just ended, or belongs to somebody else.
            continue
    return processes


def main() -> None:
    """Wait until standard input ends, then kill all processes that `marked_processes` finds.

    The mark is the first argument of the command line. Killing is repeated until no such process is left, for 8 seconds
    at most. Then the temporary directory is removed that the second argument names, if there is one.
    """
    sys.stdin.buffer.read()
    deadline = time.monotonic() + _SECONDS_TO_END
    quiet = 0
    while quiet < _QUIET_LOOKS and time.monotonic() < deadline:
        processes = marked_processes(sys.argv[1])
        quiet = 0 if processes else quiet + 1
        for process in processes:
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    for directory in sys.argv[2:]:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
