"""Commands of `fl-audit`: played in this process, or started in one of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from fl_audit.app_audits.launchers.isolated_strategy_audit import audit_strategy
from fl_audit.app_audits.trial_options import StrategyOptions
from fl_audit.cli.main import app, main

SECONDS_TO_BEGIN = 120.0
RunCommand = Callable[..., "FinishedCommand"]


@dataclass(frozen=True)
class FinishedCommand:
    """The output of a command and its exit status."""

    returncode: int
    stdout: str
    stderr: str


def exit_status(*arguments: str) -> int:
    """Run a command in this process and return its exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fl-audit", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code if isinstance(ended.value.code, int) else 0


def command_runner(capsys: pytest.CaptureFixture[str], *first: str) -> RunCommand:
    """Return a function that runs a command in this process; its first arguments may be given."""

    def run(*arguments: str) -> FinishedCommand:
        capsys.readouterr()
        status = exit_status(*first, *arguments)
        printed = capsys.readouterr()
        return FinishedCommand(status, printed.out, printed.err)

    return run


def printed_by(*words: object, **options: Any) -> str:
    """Return what a command prints, after it has ended well."""
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False, **options)
    assert result.exit_code == 0, result.output
    return result.stdout


class StartedCommand:
    """A command in a process and a process group of its own."""

    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "fl_audit.cli.main", *arguments]
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Whoever started the tests in the background may have had them ignore interrupts, and children inherit it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        )

    def family(self) -> list[psutil.Process]:
        """Return all processes that the command has started and that are still there."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait_until(self, reached: Callable[[], bool], seconds: float = SECONDS_TO_BEGIN) -> None:
        """Wait for a condition while the command goes on."""
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self, number: int, seconds: float) -> str:
        """Send a signal to the group, as a terminal does; return what was said when all that was started has ended."""
        family = self.family()
        deadline = time.monotonic() + seconds
        os.killpg(self.process.pid, number)
        try:
            error_output = self.process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        while time.monotonic() < deadline:
            if not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family):
                return error_output
            time.sleep(0.05)
        raise AssertionError(f"still there: {[process.cmdline() for process in family if process.is_running()]}")


def audit_strategy_here(options: StrategyOptions, out: Path | None = None) -> dict[str, Any]:
    """Audit a strategy in this process; that of its own takes seconds to begin."""
    return audit_strategy({"options": asdict(options), "out": out and str(out)})
