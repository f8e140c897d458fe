"""However a run ends, it ends soon, says how to go on if there is anything to go on with, and leaves no process."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import psutil
import pytest

from fl_audit.cli.interrupts import flags_of, printing_continuation, without_seed
from fl_audit.runs.process_guard import marked_processes, nothing_outlives
from tests.builders.commands import StartedCommand, exit_status
from tests.builders.settings import small_toml

CONFIG = small_toml(
    data={"test-records": 50},
    training={"rounds": 60},
    privacy={"epsilon": None, "belief": 0.9},
    audit={"trials": 12, "epsilon-star": False, "membership": False},
    run={"trials-per-batch": 2, "actors": 1},
)
SECONDS_TO_END = 10.0
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")


def started(directory: Path, *arguments: str) -> StartedCommand:
    (directory / "audit.toml").write_text(CONFIG)
    return StartedCommand(directory, *arguments)


def batches(out: Path) -> list[Path]:
    return sorted((out / "challenger" / "batches").glob("batch-*"))


@pytest.mark.long
@pytest.mark.parametrize("delay", [0.3, 0.8, 1.6])
def test_an_interrupt_before_anything_was_begun_says_so(delay: float, tmp_path: Path) -> None:
    command = started(tmp_path, "run", "audit.toml", "--engine", "local", "--out", "out", "--set", "audit.trials=10000")
    time.sleep(delay)
    output = command.end(signal.SIGINT, SECONDS_TO_END)
    assert command.process.returncode == 130
    if not (tmp_path / "out" / "public" / "configuration.json").exists():
        assert re.fullmatch(r"fl-audit: interrupted; nothing .*\n", output)


@pytest.mark.long
def test_an_interrupted_run_names_the_command_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--set", "run.seed=90071992547409931", "--set", "audit.confidence=0.9", "--engine", "local"]
    command = started(tmp_path, "run", "audit.toml", *flags, "--out", "out")
    command.wait_until(lambda: len(batches(tmp_path / "out")) >= 1)
    output = command.end(signal.SIGINT, SECONDS_TO_END)
    assert command.process.returncode == 130
    output = output.splitlines()[-1]
    continuation = output.partition("go on with: ")[2].strip()
    expected_command = (
        "fl-audit run audit.toml --set audit.confidence=0.9 --set run.seed= --engine local --out out --resume"
    )
    assert continuation == expected_command
    modification_times = {path: path.stat().st_mtime_ns for path in batches(tmp_path / "out")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert exit_status(*shlex.split(continuation)[1:]) == 0
    assert {path: path.stat().st_mtime_ns for path in modification_times} == modification_times
    assert len(pd.read_parquet(tmp_path / "out" / "trials.parquet")) == 12


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_an_interrupt_while_clients_train_names_the_command_that_goes_on(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, where an interrupt is an exception; below it is a signal to a command and its processes."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fl_audit.runs.run.run_on_ray", interrupted)
    monkeypatch.setattr("fl_audit.runs.run.run_locally", interrupted)
    monkeypatch.setattr("fl_audit.runs.run_start.ray_ahead", lambda _: nullcontext())
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.toml").write_text(CONFIG)
    flags = ["--set", "audit.trials=1000", "--engine", engine, "--out", "out"]
    assert exit_status("run", "audit.toml", *flags) == 130
    go_on = f"fl-audit run audit.toml {shlex.join(flags)} --resume"
    assert capfd.readouterr().err.splitlines()[-1] == f"fl-audit: interrupted; go on with: {go_on}"
    assert (tmp_path / "out" / "public" / "configuration.json").exists()


@pytest.mark.long
@pytest.mark.ray
# While Ray starts, and while it starts the clients; a run whose clients train is killed below.
@pytest.mark.parametrize("delay", [0.5, 4.0])
def test_an_interrupt_on_ray_ends_everything(delay: float, tmp_path: Path) -> None:
    command = started(tmp_path, "run", "audit.toml", "--out", "out", "--set", "audit.trials=1000")
    command.wait_until((tmp_path / "out" / "public" / "configuration.json").exists)
    time.sleep(delay)
    output = command.end(signal.SIGINT, SECONDS_TO_END)
    assert command.process.returncode == 130
    go_on = "fl-audit run audit.toml --set audit.trials=1000 --engine ray --out out --resume"
    # Before it there may stand a line that says what goes on.
    assert output.splitlines()[-1] == f"fl-audit: interrupted; go on with: {go_on}"
    assert not any("Traceback" in line for line in output.splitlines())


@pytest.mark.long
@pytest.mark.ray
def test_nothing_outlives_a_run_that_was_killed(tmp_path: Path) -> None:
    # The first batch is soon over, and the last is not.
    settings = ("--set", "training.rounds=5", "--set", "audit.trials=1000")
    command = started(tmp_path, "run", "audit.toml", *settings, "--out", "out")
    command.wait_until(lambda: len(batches(tmp_path / "out")) >= 1)
    command.end(signal.SIGKILL, SECONDS_TO_END)


def test_the_guard_ends_what_the_block_leaves_behind() -> None:
    before = os.environ.get("FL_AUDIT_EMBEDDED_RAY")
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(300)"]
    with nothing_outlives():
        survivor = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
        assert survivor.stdout is not None
        survivor.stdout.readline()  # until it runs, the system may not show its environment
        mark = psutil.Process(survivor.pid).environ()["FL_AUDIT_EMBEDDED_RAY"]
        assert [process.pid for process in marked_processes(mark)] == [survivor.pid]
    assert survivor.wait(timeout=5) == -signal.SIGKILL
    assert os.environ.get("FL_AUDIT_EMBEDDED_RAY") == before


@pytest.mark.long
@pytest.mark.parametrize("guarded", ["with nothing_outlives():\n", "nothing_outlives_this_process()\nif True:\n"])
def test_the_guard_ends_what_a_killed_process_leaves_behind(guarded: str) -> None:
    program = (
        "import subprocess, sys, time\n"
        "from fl_audit.runs.process_guard import nothing_outlives, nothing_outlives_this_process\n"
        f"{guarded}"
        "    left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
        "    print(left.pid, flush=True)\n"
        "    time.sleep(300)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    survivor = psutil.Process(int(holder.stdout.readline()))
    holder.kill()
    holder.wait()
    gone, _ = psutil.wait_procs([survivor], timeout=SECONDS_TO_END)
    assert gone or survivor.status() == psutil.STATUS_ZOMBIE


def test_the_way_on_shows_no_seed() -> None:
    assignments = ["run.seed=12345", "audit.trials=9", " run.seed = 6 "]
    assert without_seed(assignments) == ["--set", "audit.trials=9", "--set", "run.seed="]
    assert without_seed(["model.seed=1"]) == ["--set", "model.seed=1"]
    assert flags_of(engine="ray", ray_address=None, out=Path("a b")) == ["--engine", "ray", "--out", "a b"]


def test_the_innermost_way_on_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(SystemExit) as ended,
        printing_continuation(lambda: ["outer"]),
        printing_continuation(lambda: None),
    ):
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capfd.readouterr().err == "fl-audit: interrupted; go on with: fl-audit outer\n"


def test_a_file_that_cannot_be_written_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "audit.toml").write_text("\ufeff" + CONFIG)
    arguments = [str(tmp_path / "audit.toml"), "--engine", "local", "--out", str(tmp_path / "out/x")]
    assert exit_status("run", *arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
