"""However a command ends that runs code of others: that code ends with it, and its temporary files go."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fl_audit.app_audits.launchers.isolated_process import ProcessResult, run_isolated
from fl_audit.app_audits.launchers.strategy_audit_launcher import audit_in_subprocess
from fl_audit.app_audits.temporary_directories import DIRECTORY_PREFIX, new_temporary_directory
from fl_audit.app_audits.trial_options import StrategyOptions
from tests.app_audits.review.apps import with_strategy, write_app
from tests.builders.commands import SECONDS_TO_BEGIN, StartedCommand

SECONDS_TO_END = 15.0
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
STRATEGY = """
import os, time
from flwr.serverapp.strategy import FedAvg

class Slow(FedAvg):
    def aggregate_train(self, server_round, replies):
        time.sleep(0.02)
        return super().aggregate_train(server_round, replies)

def slow():
    return Slow(fraction_evaluate=0.0)

def gone():
    os._exit(0)
"""
CLAIM = ("--claim-noise-multiplier", "1", "--adjacency", "add-remove-client", "--quick", "--include", "removed")


def started(directory: Path, *arguments: str) -> StartedCommand:
    """Start a command in a directory that has its temporary files in it."""
    (directory / "mine.py").write_text(STRATEGY)
    temporary = directory / "temporary"
    temporary.mkdir(exist_ok=True)
    return StartedCommand(directory, *arguments, TMPDIR=str(temporary))


def players(command: StartedCommand) -> list[psutil.Process]:
    """Return the processes that play trials: copies of the one that the command has started."""
    processes = []
    for process in command.family():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # it has ended in this moment
            processes += [process] if "isolated_process" in " ".join(process.cmdline()) else []
    return [process for process in processes if process.parent() in processes]


def is_clean(directory: Path) -> bool:
    """Whether a command has left no temporary files."""
    return list((directory / "temporary").iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_trials_end_with_the_command(tmp_path: Path, number: int, status: int) -> None:
    command = started(tmp_path, "strategy", "mine:slow", *CLAIM)
    command.wait_until(lambda: len(players(command)) == 2)
    output = command.end(number, SECONDS_TO_END)
    assert is_clean(tmp_path)
    assert command.process.returncode == status
    assert "Traceback" not in output
    assert ("interrupted" in output) is (number == signal.SIGINT)


@pytest.mark.long
def test_trials_go_on_without_a_process_that_was_killed(tmp_path: Path) -> None:
    """Temporary files lie in the working directory, which trials copy: a copy holds no other."""
    command = started(tmp_path, "strategy", "mine:slow", *CLAIM, "--set", "seconds=10")
    command.wait_until(lambda: len(players(command)) == 2 and len(list((tmp_path / "temporary").rglob("mine.py"))) >= 2)
    players(command)[0].kill()
    assert list((tmp_path / "temporary").rglob("temporary/*")) == []
    output, error_output = command.process.communicate(timeout=100)
    assert (command.process.returncode, "Traceback" in error_output) == (0, False)
    assert output.startswith("Violated: one scenario")
    assert is_clean(tmp_path)


@pytest.mark.long
def test_a_factory_that_ends_its_process_is_no_success(tmp_path: Path) -> None:
    command = started(tmp_path, "strategy", "mine:gone", *CLAIM)
    output, error_output = command.process.communicate(timeout=SECONDS_TO_BEGIN)
    assert (command.process.returncode, output) == (2, "")
    assert "status 0, before any" in error_output


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_app_ends_with_its_review(tmp_path: Path, number: int) -> None:
    """Its temporary files lie in the app's directory, and its code starts a process and waits."""
    waiting = "import subprocess\nsubprocess.run(['sleep', '300'])\n" + with_strategy("FedAvg()")
    app = write_app(tmp_path / "app", f"waiting_app_{int(number)}", waiting)
    command = started(app, "review", ".")
    command.wait_until(lambda: any(process.name() == "sleep" for process in command.family()))
    command.end(number, SECONDS_TO_END)
    assert is_clean(app)


def test_what_a_killed_owner_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    later = subprocess.Popen(["sleep", "60"])
    names = ["999999999-a", f"{os.getpid()}-b", f"{later.pid}-c", "nobody-d"]
    orphan_directory, own_directory, of_an_earlier_one, other_directory = (
        tmp_path / f"{DIRECTORY_PREFIX}{name}" for name in names
    )
    for room in (orphan_directory, own_directory, of_an_earlier_one, other_directory):
        room.mkdir()
    # A process that began long after the directory was made cannot have made it.
    os.utime(of_an_earlier_one, (1e9, 1e9))
    new_directory = new_temporary_directory(os.getpid())
    later.kill()
    later.wait()
    assert sorted(tmp_path.iterdir()) == sorted([own_directory, other_directory, new_directory])


@pytest.mark.long
@pytest.mark.parametrize("out", [None, Path("out")])
def test_what_was_ended_from_outside_says_so_in_json_too(monkeypatch: pytest.MonkeyPatch, out: Path | None) -> None:
    process_result = ProcessResult({"lines": []}, "signal 9")
    monkeypatch.setattr("fl_audit.app_audits.launchers.isolated_process.run_isolated", lambda *_, **__: process_result)
    answer = audit_in_subprocess(StrategyOptions("mine:slow", "add-remove-client", noise_multiplier=1.0), out)
    assert "signal 9" in answer["stopped_early"]
    assert answer["lines"][0][0] == "Stopped early"
    assert ("no page" in answer["lines"][0][1]) is (out is not None)


CHILD = """
import sys

class Odd(KeyboardInterrupt):
    pass

def found(asked, tell):
    print("\x1b[92mINFO\x1b[0m \x1b[2J done", file=sys.stderr, flush=True)
    if asked["tells"]:
        tell({"trial": 7})
    raise {"odd": Odd, "exit": SystemExit}[asked["how"]]("gone")
"""


@pytest.mark.parametrize(("ending", "tells"), [("odd", False), ("exit", True)])
def test_what_no_program_catches_is_said_in_a_line_and_nothing_acts_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ending: str, tells: bool
) -> None:
    (tmp_path / "odd_child.py").write_text(CHILD, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    process_result = run_isolated("odd_child:found", {"how": ending, "tells": tells}, tmp_path, 60.0)
    error_output = capsys.readouterr().err
    assert error_output.startswith("INFO \\x1b[2J done\n")
    assert "\x1b" not in error_output
    assert "Traceback" not in error_output
    if tells:
        assert (process_result.values, process_result.ended.rpartition(" ")[2]) == ({"trial": 7}, "1")
        assert "raising SystemExit: gone" in error_output
    else:
        assert process_result.ended == ""
        assert "raising Odd: gone" in (process_result.values or {})["error"]
