"""Embedded Ray: a Ray for one run alone, which a process of its own starts and which ends with the run.

Ray's ports listen on all network interfaces, and anyone who can connect can run code as the user. Therefore Ray's token
authentication is used: the token of an embedded Ray is drawn at random, and exists only in the environment variables of
its processes. Ray makes its sockets and logs writable for everybody. They are therefore put into a directory that only
this user can enter.

This module imports Ray nowhere: Ray starts while this process still imports it.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from fl_audit.errors import FederationError
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.process_guard import environment, nothing_outlives

_DIRECTORY_VARIABLE = "RAY_TMPDIR"
"""Environment variable with the directory in which Ray makes its own."""
_PREFIX = "fl-audit-"
_LONGEST_PARENT = 16
_PROGRAM = Path(__file__).with_name("ray_head.py")
_PRELOADED = {"RAY_preload_python_modules": "fl_audit.runs.cluster.worker_preimports"}
"""Lets processes that Ray starts in advance import what clients need, while this process still gets ready."""

_ahead: list["EmbeddedRay"] = []
"""The embedded Ray that was started before its run, if there is one."""


class EmbeddedRay:
    """A Ray that a process of its own starts; see `embedded_ray`.

    Parameters
    ----------
    options
        The options of the Ray.
    """

    def __init__(self, options: RayOptions) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM), json.dumps(options.head_arguments())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # keeps it from the signals that interrupt this process and its group
        )

    @cached_property
    def address(self) -> str:
        """HOST:PORT of Ray, once it has started; raises `FederationError` if it does not start."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, str] = json.loads(line) if line else {"error": "its process has ended"}
        if "error" in answer:
            raise FederationError(f"Ray did not start on this machine: {answer['error']}")
        return answer["address"]

    def end(self) -> None:
        """End the process that has started Ray; the guard of processes ends what Ray itself has started."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def embedded_ray(options: RayOptions) -> Iterator[EmbeddedRay]:
    """Start a Ray that ends with the `with` block; the block has the environment variables with which to join it."""
    # The processes of Ray search for modules in the same directories as this process.
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    directory = private_directory()
    variables = {"PYTHONPATH": paths, **_PRELOADED, **new_token(), _DIRECTORY_VARIABLE: str(directory)}
    try:
        with nothing_outlives(directory), environment(variables):
            ray = EmbeddedRay(options)
            try:
                yield ray
            finally:
                ray.end()
    finally:
        read_credentials_anew()


@contextmanager
def ray_ahead(options: RayOptions) -> Iterator[None]:
    """Start an embedded Ray at the beginning of the block, for the runs in the block; nothing waits for it here."""
    with embedded_ray(options) as ray:
        _ahead.append(ray)
        try:
            yield
        finally:
            _ahead.clear()


def started_ahead() -> EmbeddedRay | None:
    """Return the embedded Ray that was started before its run; None if there is none."""
    return _ahead[-1] if _ahead else None


def new_token() -> dict[str, str]:
    """Return two environment variables, by name, which make Ray admit only processes with the same random token."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def private_directory() -> Path:
    """Create a directory for Ray's sockets and logs that only this user may enter, and return its path.

    Its parent is the first suitable one of RAY_TMPDIR, the system's temporary directory and /tmp. A suitable parent is
    writable, and its path has at most 16 characters. Ray appends some 70 characters to the path, and some systems limit
    the path of a socket to 103 characters.
    """
    parents = (os.environ.get(_DIRECTORY_VARIABLE, ""), tempfile.gettempdir(), "/tmp")
    short = [parent for parent in parents if len(parent) <= _LONGEST_PARENT and os.access(parent, os.W_OK)]
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=next(iter(short), None)))


def restrict_later_ray() -> Path | None:
    """Set environment variables so that a Ray that this process starts later admits only its own processes.

    A random token is set, unless the user has configured Ray's authentication.
    """
    if "RAY_ADDRESS" in os.environ:
        return None
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.update(new_token())
        read_credentials_anew()
    if Path(os.environ.get(_DIRECTORY_VARIABLE, "")).name.startswith(_PREFIX):
        return None  # this is a process of the Ray that was closed so
    directory = private_directory()
    os.environ[_DIRECTORY_VARIABLE] = str(directory)
    return directory


def read_credentials_anew() -> None:
    """Make Ray read its token from the environment again, if this process has imported Ray before.

    By itself Ray reads whether there is a token when it is imported, and the token when it first connects. Without
    these names of Ray, a process cannot join a second Ray with another token.
    """
    inside: Any = getattr(sys.modules.get("ray"), "_raylet", None)
    with suppress(AttributeError):
        inside.Config.initialize("")
        inside.AuthenticationTokenLoader.instance().reset_cache()
