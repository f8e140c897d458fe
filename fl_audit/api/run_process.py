"""An audit run in a separate process, which executes the command `fl-audit run`."""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from fl_audit.errors import FederationError, InputError, require
from fl_audit.runs.exit_statuses import WRONG_INPUT

_COMMAND = "fl-audit"
_LAST_LINES = 20


def run_in_separate_process(arguments: Sequence[str], listener: Callable[[str], None] | None) -> None:
    """Execute `fl-audit run` in a separate process, and wait for its end.

    An interrupt (Ctrl-C) also ends the separate process, which keeps the results of finished trials.

    Parameters
    ----------
    arguments
        Arguments of `fl-audit run`.
    listener
        Function that receives each progress line of the command; None for no function.

    Raises
    ------
    InputError
        If the configuration or the directory is invalid. Nothing is written.
    FederationError
        If the run fails. The results of finished trials are kept.
    """
    programs = entry_points(group="console_scripts", name=_COMMAND)
    require(bool(programs), f"command {_COMMAND} is not found: accepted is an installed fl-audit")
    # With -P Python does not search the working directory for modules.
    command = [sys.executable, "-P", "-m", next(iter(programs)).module, "run", *arguments]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None, "it was asked for"
        try:
            for line in process.stderr:
                lines = [*lines[-_LAST_LINES:], line.rstrip()]
                if listener is not None and lines[-1]:
                    listener(lines[-1])
        except BaseException:
            # On SIGINT the command stops its own processes and keeps the finished trials.
            process.send_signal(signal.SIGINT)
            raise
    if process.returncode:
        message = next((line for line in reversed(lines) if line.startswith("fl-audit: ")), "\n".join(lines))
        error = InputError if process.returncode == WRONG_INPUT else FederationError
        raise error(message.removeprefix("fl-audit: "))
