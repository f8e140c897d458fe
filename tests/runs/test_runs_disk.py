"""A disk that is full, or not for writing: one line, finished batches kept, and a resume that gives the same result."""

import gc
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from fl_audit import trial_batches
from fl_audit.errors import FederationError
from fl_audit.federation.run_plan import RunPlan
from tests.builders.runs import run_locally, small_plan


def _remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True, capture_output=True)


def batches(run: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in run.glob("challenger/batches/batch-*")}


def failure(plan: RunPlan, run: Path, resume: bool = False) -> str:
    """Return the line with which a run ends."""
    try:
        run_locally(plan, run, resume=resume)
    except FederationError as error:
        said = str(error)
    # What was raised holds on to the file that could not be written, and a disk in use cannot be changed.
    gc.collect()
    assert len(said.splitlines()) == 1
    return said


@pytest.mark.long
def test_a_full_disk_and_one_that_is_read_only_cost_no_finished_batch(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    plan = small_plan(audit={"trials": 8, "epsilon-star": False}, run={"trials-per-batch": 1})
    run, alone = small_disk / "run", run_locally(plan, tmp_path / "alone")
    assert re.search(r"written: No space left .*finished batches", failure(plan, run))
    kept = batches(run)
    assert 1 <= len(kept) < 8
    _remount(small_disk, "ro,size=64m")
    assert "written: Read-only file system" in failure(plan, run, resume=True)
    _remount(small_disk, "rw,size=64m")
    resumed = run_locally(plan, run, resume=True)
    assert kept.items() <= batches(run).items()
    pd.testing.assert_frame_equal(resumed.trials, alone.trials, check_exact=True)
    pd.testing.assert_frame_equal(resumed.rounds, alone.rounds, check_exact=True)
