"""Handling of Ctrl-C: prints the command that continues the work, if there is any, and ends with exit status 130.

A run can be ended at any moment, because its files are written atomically (`atomic_files`, `trial_batch_store`), and a
guard process ends the processes that it started (`process_guard`). Threads of Flower and Ray may wait for each other at
this moment, so they are not shut down in order.
"""

import os
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130
_SHOW_CURSOR = "\x1b[?25h\n"

WayOn = Callable[[], Sequence[str] | None]
"""A function that returns the arguments of the command that continues, None while there is nothing to continue."""

_ways: list[WayOn] = []


def end_on_interrupt() -> None:
    """Make Ctrl-C end this program from now on.

    A program calls this function once, early; a library never does. Python runs signal handlers only in the main
    thread, which may be busy. Therefore the signal wakes up another thread, which prints a line and ends the program.
    """
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    # Python only notes the signal if it has a handler. This one does nothing, because the thread acts.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_when_woken, args=(woken, waking), daemon=True).start()


def _end_when_woken(woken: socket.socket, waking: socket.socket) -> None:
    """Wait for Ctrl-C on a socket, then print a line and end the program.

    `waking` is the other end of the socket; it stays open as long as this function refers to it.
    """
    while number := woken.recv(1):
        if number[0] == signal.SIGINT:
            try:
                _tell()
            finally:
                os._exit(INTERRUPTED)


@contextmanager
def printing_continuation(continuation: WayOn) -> Iterator[None]:
    """Run a block; if Ctrl-C interrupts it, print the command that continues its work, and end with status 130.

    After a call of `end_on_interrupt`, which makes a thread handle Ctrl-C, this thread prints the command and ends the
    program.

    Parameters
    ----------
    continuation
        Function that returns the arguments of the command, or None if there is nothing to continue.

    Raises
    ------
    SystemExit
        If Ctrl-C interrupts the block and `end_on_interrupt` was not called.
    """
    _ways.append(continuation)
    try:
        yield
    except KeyboardInterrupt:
        end_as_interrupted()
    finally:
        _ways.remove(continuation)


def end_as_interrupted() -> NoReturn:
    """Print which command goes on, if any does, and end with the exit status of an interrupted command."""
    _tell()
    raise SystemExit(INTERRUPTED) from None


def without_seed(overrides: Sequence[str]) -> list[str]:
    """Return `--set` options for the command that continues a run, without the challenger's seed, which is secret.

    The seed is stored with the run. If an option set it, the result contains `run.seed=`, so that a seed in the
    configuration file is ignored. `overrides` are settings of the form `section.key=value`.
    """
    texts = [text for text in overrides if text.partition("=")[0].strip() == "run.seed"]
    remaining = [text for text in overrides if text not in texts] + (["run.seed="] if texts else [])
    return [word for text in remaining for word in ("--set", text)]


def flags_of(**values: object) -> list[str]:
    """Return the command-line arguments for options that have a value; options with the value None are left out.

    Parameters
    ----------
    values
        Value of each option; the keyword is the option's name with underscores.

    Examples
    --------
    >>> flags_of(ray_address=None, data_dir="data")
    ['--data-dir', 'data']
    """
    options_given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in values.items() if value is not None]
    return [word for pair in options_given for word in pair]


def _tell() -> None:
    arguments = next(
        (arguments_found for continuation in reversed(_ways) if (arguments_found := continuation()) is not None), None
    )
    if arguments is None:
        line = "fl-audit: interrupted; nothing was begun that could go on"
    else:
        line = f"fl-audit: interrupted; go on with: {shlex.join(['fl-audit', *arguments])}"
    stream = sys.__stderr__ or sys.stderr
    if stream.isatty():
        line = _SHOW_CURSOR + line
    os.write(stream.fileno(), f"{line}\n".encode())
