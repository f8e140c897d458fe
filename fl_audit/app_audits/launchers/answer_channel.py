"""Pipe through which a subprocess sends its answers to the process that started it, each signed with a secret key.

The subprocess reads the key and the number of the pipe's descriptor from its standard input, before it imports other
people's code. No file, environment variable or command line holds them. Code that writes to the pipe without the key
is noticed, and then no answer counts. Code of the same process that searches the interpreter's memory, such as the
frames of the calling functions, can still find the key: within one process there is no protection against that.
"""

import hmac
import json
import os
import secrets
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fl_audit.errors import InputError

_LAST_SECONDS = 2.0  # seconds in which the remaining answers of a process that has ended are read
_FORGED = (
    "the code under audit wrote to the pipe through which the result is sent, so nothing that came through it counts: "
    "accepted is code that writes to no descriptor that it has not opened"
)


def _signature(key: str, number: int, text: str) -> str:
    return hmac.digest(key.encode(), f"{number} {text}".encode(), "sha256").hex()


class AnswerReader:
    """The reading end of the pipe; a thread reads answers until the pipe is closed."""

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
