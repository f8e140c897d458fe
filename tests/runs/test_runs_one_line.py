"""A failure of a machine gets one line, and what was finished is kept; work that takes long says what it is."""

import errno
import gc
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import SafetensorError

from fl_audit import trial_batches
from fl_audit.atomic_files import atomic_file
from fl_audit.data.encoding import min_max
from fl_audit.errors import FederationError
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs import progress
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from fl_audit.runs.verbosity import printable
from tests.builders.commands import exit_status
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan

STRANGE = ("a$b$c_{x", "[red]x[bold]", "one\x1b[31mtwo\nthree")


def test_a_disk_that_is_full_before_the_run_leaves_nothing_in_its_way(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"0" * 158_000)
    assert_refused("be made: No space", lambda: run_audit(small_plan(), small_disk / "run", Engine.LOCAL))
    assert not (small_disk / "run").exists()


@pytest.mark.parametrize(
    "raised",
    [
        OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_writer_that_fails_names_the_file_that_was_to_be_written(raised: Exception, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, atomic_file(tmp_path / "table"):
        raise raised
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "table"))
    with pytest.raises(KeyError), atomic_file(tmp_path / "table"):
        raise KeyError("something else")
    assert list(tmp_path.iterdir()) == []


def test_a_ray_that_does_not_start_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray raises an exception of no particular kind where its raylet dies while it starts."""
    import ray

    def dies(*_: object, **arguments: object) -> None:
        raise Exception("Node timed out.\nThis could happen because some of the raylet")

    monkeypatch.setattr(ray, "init", dies)
    before = dict(os.environ)
    with pytest.raises(FederationError) as caught:
        run_audit(small_plan(), tmp_path / "run", Engine.RAY, with_report=False)
    assert re.fullmatch(r"Ray .*did not .*: Node timed out\.", str(caught.value))
    assert {name for name in os.environ if name.startswith("RAY_AUTH")} <= before.keys()


@pytest.mark.long
def test_names_of_runs_are_shown_and_drawn_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dollar sign begins no formula, brackets no style, and nothing moves the cursor."""
    for name in STRANGE:
        run_locally(small_plan(audit={"epsilon-star": False}), tmp_path / name)
    monkeypatch.setenv("COLUMNS", "200")
    status = exit_status("compare", *(str(tmp_path / name) for name in STRANGE), "--plot", str(tmp_path / "x.png"))
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert all(printable(name) in out for name in STRANGE)
    assert "\x1b[31m" not in out
    assert (tmp_path / "x.png").stat().st_size > 0
    assert exit_status("report", str(tmp_path / "no\x1b[31mne\n")) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_columns_too_wide_for_a_number_are_refused() -> None:
    wide = np.array([[0.0, -1e308], [1.0, 1e308]])
    assert_refused(r"-1e\+308 to 1e\+308", min_max, wide)
    scaled, _ = min_max(wide / 4)
    np.testing.assert_array_equal(scaled, [[0, 0], [1, 1]])


def _remount(directory: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(directory)], check=True, capture_output=True)


def batches(run: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in run.glob("challenger/batches/batch-*")}


def failure(plan: RunPlan, run: Path, resume: bool = False) -> str:
    """Return the line with which a run ends."""
    try:
        run_locally(plan, run, resume=resume)
    except FederationError as error:
        error_text = str(error)
    # What was raised holds on to the file that could not be written, and a disk in use cannot be changed.
    gc.collect()
    assert len(error_text.splitlines()) == 1
    return error_text


@pytest.mark.long
def test_a_full_disk_and_one_that_is_read_only_cost_no_finished_batch(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    plan = small_plan(audit={"trials": 8, "epsilon-star": False}, run={"trials-per-batch": 1})
    run = small_disk / "run"
    alone = run_locally(plan, tmp_path / "alone")
    assert re.search(r"written: No space left .*finished batches", failure(plan, run))
    stored_batches = batches(run)
    assert 1 <= len(stored_batches) < 8
    _remount(small_disk, "ro,size=64m")
    assert "written: Read-only file system" in failure(plan, run, resume=True)
    _remount(small_disk, "rw,size=64m")
    resumed = run_locally(plan, run, resume=True)
    assert stored_batches.items() <= batches(run).items()
    pd.testing.assert_frame_equal(resumed.trials, alone.trials, check_exact=True)
    pd.testing.assert_frame_equal(resumed.rounds, alone.rounds, check_exact=True)


Said = Callable[[str], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return a function that waits, as long as a busy machine needs, until something matches what was said so far."""

    def wait_for(pattern: str) -> str:
        end = time.monotonic() + 60.0
        output = ""
        while not re.search(pattern, output):
            assert time.monotonic() < end, output
            time.sleep(0.02)
            output += capsys.readouterr().err
        return output

    return wait_for


def test_long_work_is_told_in_a_line_and_short_work_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    with progress.at_work("short work"):  # it is over long before a line is due
        pass
    monkeypatch.setattr(progress, "SECONDS_UNTIL_A_LINE", 0.05)
    with progress.at_work("long work"):
        output = said("\n")
        time.sleep(0.2)
    assert output + capsys.readouterr().err == "long work\n"


def test_longer_work_is_told_again_even_where_it_reports_nothing(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    assert progress.SECONDS_BETWEEN_LINES <= 10.0
    monkeypatch.setattr(progress, "SECONDS_UNTIL_A_LINE", 0.05)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.1)
    with progress.at_work("a long report"):
        lines = said("(.*\n){3}").splitlines()
    assert all(line.startswith("a long report: ") and line.endswith(" s gone") for line in lines[1:])
    with progress.progress_bar(600) as on_round:
        first = said("\n").splitlines()[0]
        on_round(200)
        on_round(200)
        said(r"playing: 400 of 600 trial-rounds, \d+ s gone, about \d+ s left\n")
    assert re.match(r"starting .*: 0 of 600 trial-rounds, \d+ s gone", first)
