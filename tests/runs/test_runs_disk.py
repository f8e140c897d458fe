"""A disk that is full, or not for writing: one line, finished batches kept, and a resume that gives the same result."""

import gc
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from fl_audit import trial_batches
from fl_audit.errors import FederationError
from fl_audit.federation.run_plan import RunPlan
from tests.builders.runs import run_locally, small_plan


def _mount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, with room for some batches."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        _mount(place, "size=160k")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a disk of its own is mounted, which needs root")
    yield place
    subprocess.run(["umount", str(place)], check=False)


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
@pytest.mark.skipif(os.name != "posix", reason="mounts a disk")
def test_a_full_disk_and_one_that_is_read_only_cost_no_finished_batch(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    plan = small_plan(audit={"trials": 8, "epsilon-star": False}, run={"trials-per-batch": 1})
    run, alone = small_disk / "run", run_locally(plan, tmp_path / "alone")
    assert re.search(r"written: No space left .*finished batches", failure(plan, run))
    kept = batches(run)
    assert 1 <= len(kept) < 8
    _mount(small_disk, "remount,ro,size=64m")
    assert "written: Read-only file system" in failure(plan, run, resume=True)
    _mount(small_disk, "remount,rw,size=64m")
    resumed = run_locally(plan, run, resume=True)
    assert kept.items() <= batches(run).items()
    pd.testing.assert_frame_equal(resumed.trials, alone.trials)
    pd.testing.assert_frame_equal(resumed.rounds, alone.rounds)
