"""Execution of a function in a subprocess, where other people's code runs; no process or temporary file is left.

This module starts such subprocesses, and is their program as well: the request names the function.

However the calling process ends, even by a signal, a guard process ends the subprocess with all its children and
removes the temporary directory (`runs.process_guard`). If the guard was killed too, the next guard removes
the remains.

Request and answers go through pipes that no name reaches. Each answer is signed with a secret key. The subprocess reads
the key and the number of the pipe's descriptor from its standard input, before it imports other people's code. No file,
environment variable or command line holds them. Code that writes to the pipe without the key is noticed, and then no
answer counts. Code of the same process that searches the interpreter's memory, such as the frames of the calling
functions, can still find the key: within one process there is no protection against that.
"""

import codecs
import hmac
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from fl_audit.app_audits.temporary_directories import new_temporary_directory
from fl_audit.errors import InputError, in_a_line
from fl_audit.runs.process_guard import nothing_outlives
from fl_audit.runs.verbosity import plain

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PROGRAM = "fl_audit.app_audits.launchers.isolated_process"
_LAST_WORDS = 2.0  # seconds in which what a process has said is passed on when it is over
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ENDED_BY = "the code that is tried ended its process by raising"
_LATE = 20.0
"""Seconds in which a process that has sent something may end by itself when its time is over."""
_LAST_SECONDS = 2.0  # seconds in which the remaining answers of a process that has ended are read
_FORGED = (
    "the code under audit wrote to the pipe through which the result is sent, so nothing that came through it counts: "
    "accepted is code that writes to no descriptor that it has not opened"
)

Tell = Callable[[dict[str, Any]], None]
"""A function that sends a preliminary answer, which counts if nothing comes after it."""

IsolatedFunction = Callable[[dict[str, Any], Tell], dict[str, Any]]
"""A function for a subprocess: takes a request, and returns the answer. Both are JSON values, keyed by name."""


def _signature(key: str, number: int, text: str) -> str:
    return hmac.digest(key.encode(), f"{number} {text}".encode(), "sha256").hex()


class AnswerReader:
    """The reading end of the pipe for a subprocess's answers; a thread reads answers until the pipe is closed."""

    def __init__(self) -> None:
        self._key, self._count, self._is_forged = secrets.token_hex(32), 0, False
        self._last: dict[str, Any] | None = None
        self._source, self.descriptor = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def request_for(self, request: Mapping[str, Any]) -> bytes:
        """Return a request as bytes for the subprocess's standard input, together with the key and the descriptor."""
        return json.dumps({"key": self._key, "descriptor": self.descriptor, "asked": dict(request)}).encode()

    def begin(self) -> None:
        """Close this process's copy of the writing end, which the subprocess has inherited, and begin to read."""
        os.close(self.descriptor)
        self._thread.start()

    @property
    def has_answer(self) -> bool:
        """Whether an answer has arrived."""
        return self._last is not None

    def last(self) -> dict[str, Any] | None:
        """Return the last answer of a subprocess that has ended; None if there was none."""
        self._thread.join(_LAST_SECONDS)
        if self._is_forged:
            raise InputError(_FORGED)
        return self._last

    def _read(self) -> None:
        with os.fdopen(self._source, "rb") as lines:
            for line in lines:
                # A line without an end is the answer of a process that was ended while it wrote.
                if line.endswith(b"\n"):
                    self._take(line.decode("utf-8", "replace"))

    def _take(self, line: str) -> None:
        signature, _, text = line.strip().partition(" ")
        if not hmac.compare_digest(signature.encode(), _signature(self._key, self._count, text).encode()):
            self._is_forged = True
            return
        self._count += 1
        self._last = json.loads(text)


class AnswerWriter:
    """The writing end of the pipe, in the subprocess; it must be made before other people's code is imported."""

    def __init__(self) -> None:
        request = json.loads(sys.stdin.buffer.read())
        self.asked: dict[str, Any] = request["asked"]
        self._key, self._descriptor, self.count = str(request["key"]), int(request["descriptor"]), 0
        # Programs that other people's code starts do not inherit the pipe.
        os.set_inheritable(self._descriptor, False)

    def send(self, values: Mapping[str, Any]) -> None:
        """Send an answer, which replaces the ones before it."""
        text = json.dumps(dict(values), allow_nan=False)
        unsent = memoryview(f"{_signature(self._key, self.count, text)} {text}\n".encode())
        while unsent:
            unsent = unsent[os.write(self._descriptor, unsent) :]
        self.count += 1


def send_request(child_input: Any, request: bytes) -> None:
    """Write a request to a subprocess's standard input and close it; the subprocess may have ended already."""
    with suppress(BrokenPipeError):
        child_input.write(request)
    with suppress(BrokenPipeError):
        child_input.close()


class ProcessResult(NamedTuple):
    """The last message of a subprocess, and how the subprocess ended."""

    values: dict[str, Any] | None  # its last message; None for none
    ended: str  # how it ended, in words; empty if it ended well
    is_late: bool = False  # whether it was ended because its time was over


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield a new temporary directory; at the end of the block, subprocesses are ended and the directory is removed."""
    room = new_temporary_directory(os.getpid())
    try:
        with nothing_outlives(room):
            yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def run_command_isolated(
    function: str, options: "DataclassInstance", out: Path | None, seconds: float, is_quiet: bool
) -> ProcessResult:
    """Call a function in a subprocess with a command's options, and return its last message and how it ended."""
    request = {"options": asdict(options), "out": out and str(out.absolute())}
    with temporary_directory() as room, ExitStack() as stack:
        log = stack.enter_context((room / "log").open("wb")) if is_quiet else None
        process_result = run_isolated(function, request, room, seconds, log=log)
    if process_result.values is not None and "error" in process_result.values:
        raise InputError(process_result.values["error"])
    return process_result


def run_isolated(
    function: str,
    request: Mapping[str, Any],
    room: Path,
    seconds: float,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: IO[bytes] | None = None,
) -> ProcessResult:
    """Call a function in a subprocess with a request, and return its last message and how the subprocess ended.

    If the function fails, its last preliminary answer counts. The answer has the single key `error` in three cases: the
    input is wrong, a file cannot be written, or other people's code raises an exception such as `SystemExit` before a
    preliminary answer was sent.

    `function`: An `IsolatedFunction`, as `package.module:name`. Its module is imported in the subprocess alone.
    """
    answers = AnswerReader()
    variables = os.environ | dict(environment or {})
    variables |= {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry), "PYTHONSAFEPATH": "1"}
    variables |= {"TMPDIR": str(room)}
    child = subprocess.Popen(
        [sys.executable, "-m", _PROGRAM],
        cwd=directory,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=log or subprocess.PIPE,
        stderr=log or subprocess.STDOUT,
        start_new_session=True,
        pass_fds=(answers.descriptor,),
    )
    sent_request = answers.request_for({"function": function, "request": dict(request)})
    answers.begin()
    passing = None if child.stdout is None else threading.Thread(target=_pass_on, args=(child.stdout,), daemon=True)
    if passing is not None:
        passing.start()
    try:
        send_request(child.stdin, sent_request)
        status = _waited(child, seconds, answers)
    finally:
        # Its children end with it.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if passing is not None:
            passing.join(_LAST_WORDS)
    answer_values = answers.last()
    is_done = answer_values is not None and answer_values.pop("is_done")
    if status is None:
        return ProcessResult(answer_values, f"was not over within {seconds / 60:.3g} minutes", is_late=True)
    # A program that ends by itself before it has said that it is done did not end well, whatever its status is.
    if is_done:
        return ProcessResult(answer_values, "")
    return ProcessResult(
        answer_values, f"ended with status {status}" if status >= 0 else f"was ended by signal {-status}"
    )


def _pass_on(output: IO[bytes]) -> None:
    """Copy a subprocess's output to standard error, without colours and with control characters escaped."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with output:
        for line in output:
            if sys.stderr is not None:
                sys.stderr.write(plain(_COLOUR.sub("", decoder.decode(line).replace("\r\n", "\n"))))
                sys.stderr.flush()


def _waited(child: "subprocess.Popen[bytes]", seconds: float, answers: AnswerReader) -> int | None:
    """Return the exit status of a subprocess, or None if it still runs after `seconds` seconds.

    A subprocess that has sent a preliminary answer gets 20 seconds more.
    """
    until = time.monotonic() + seconds
    while True:
        late = _LATE if answers.has_answer else 0.0
        remaining = until + late - time.monotonic()
        if remaining <= 0:
            return None
        with suppress(subprocess.TimeoutExpired):
            return child.wait(min(remaining, 1.0 if time.monotonic() > until else seconds))


def main() -> None:
    """Read a request from standard input, call the function that it names, and send the answer through the pipe."""
    # Read before other people's code is imported.
    writer = AnswerWriter()
    module, _, name = str(writer.asked["function"]).partition(":")
    function: IsolatedFunction = getattr(import_module(module), name)

    def tell(values: dict[str, Any], is_done: bool = False) -> None:
        writer.send(values | {"is_done": is_done})

    try:
        values = function(writer.asked["request"], tell)
    except InputError as error:
        values = {"error": str(error)}
    except OSError as error:
        # A file that the user named, or a full disk; an error without a file name is ours.
        if error.filename is None:
            raise
        values = {"error": f"{error.filename}: {error.strerror}"}
    except Exception:
        raise
    except BaseException as error:  # nothing of ours raises one, and an interrupt reaches the process that waits
        if writer.count:
            print(f"{_ENDED_BY} {in_a_line(error)}", file=sys.stderr)
            raise SystemExit(1) from None
        accepted = "accepted is code that raises an exception, such as ValueError, where it cannot go on"
        values = {"error": f"{_ENDED_BY} {in_a_line(error)}: {accepted}"}
    tell(values, is_done=True)


if __name__ == "__main__":
    main()
