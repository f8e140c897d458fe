"""Tests of client failures: one line, no release of the round, no process left, and a run that can be resumed."""

import re
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from fl_audit import trial_batches
from fl_audit.errors import FederationError
from fl_audit.runs.cluster import call_scheduling
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import ClientAppAndStrategy, run_audit
from tests.builders.runs import run_locally, small_plan
from tests.federation.faults import faulty_app

IN_PROCESS_FAULTS = {
    "raises": "client 2 failed: disk full",
    "nan": "client 2 sent 'sum' with 1 of",
    "infinite": "client 2 sent 'sum' with 1 of",
    "shape": r"client 2 .*'sum' .*float32 .*\(3, 61\), .*float32 .*\(3, 62\)",
    "type": r"client 2 .*'sum' .*float64 .*\(3, 62\), .*float32 .*\(3, 62\)",
    "nothing": "client 2 sent no 'sum'",
    "hangs": r"client 2 failed: .*limit of 1 s\b",
}


def _stored_batches(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "challenger").glob("batches/batch-*"))


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("kind", IN_PROCESS_FAULTS)
def test_a_fault_stops_the_run_with_one_line(kind: str, tmp_path: Path) -> None:
    plan = small_plan(run={"client-time-limit": 1.0})
    with pytest.raises(FederationError) as caught:
        run_locally(plan, tmp_path / "run", parties=ClientAppAndStrategy(client_app=faulty_app(kind)))
    message = str(caught.value)
    assert message.startswith("round 2: ")
    assert re.search(IN_PROCESS_FAULTS[kind], message)
    assert "\n" not in message
    assert _stored_batches(tmp_path / "run") == []
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.long
def test_resume_repeats_only_unfinished_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    plan = small_plan(run={"trials-per-batch": 2})
    undisturbed = run_locally(plan, tmp_path / "undisturbed")
    mark = tmp_path / "failed"
    interrupted = tmp_path / "interrupted"
    calls: list[int] = []

    class CountingMark:
        """File for `faulty_app` that lets the first batch pass, and then fails once."""

        def exists(self) -> bool:
            calls.append(1)
            return mark.exists() or len(calls) == 1

        def touch(self) -> None:
            mark.touch()

    with pytest.raises(FederationError):
        run_locally(plan, interrupted, parties=ClientAppAndStrategy(client_app=faulty_app("raises", CountingMark())))  # type: ignore[arg-type]
    assert _stored_batches(interrupted) == ["batch-00000"]
    first = interrupted / "challenger" / "batches" / "batch-00000" / "trials.parquet"
    written = first.stat().st_mtime_ns
    resumed = run_locally(plan, interrupted, resume=True)
    assert first.stat().st_mtime_ns == written
    pd.testing.assert_frame_equal(resumed.trials, undisturbed.trials)
    pd.testing.assert_frame_equal(resumed.rounds, undisturbed.rounds)
    assert resumed.summary["insider"] == undisturbed.summary["insider"]


def _running_ray_processes() -> list[str]:
    running = [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    return [" ".join(p.cmdline()) for p in running if "ray" in " ".join(p.cmdline())]


DIED = r"client 2 failed: .*process died.* \(node "
SILENT = r"no answer .*client\(s\) 1, 2"
SECONDS_TO_STOP = 20.0
GRACE_SECONDS = 5.0


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.parametrize(
    ("kind", "said", "time_limit", "is_waited_for"),
    [
        # The call is made again on a new process, which must have started before the server gives up.
        ("dies", DIED, 60.0, False),
        # A process that hangs ends itself at the time limit; one that is frozen cannot even do that.
        pytest.param("hangs and freezes", SILENT, 4.0, True, marks=pytest.mark.campaign),
    ],
)
def test_on_ray_a_fault_that_stays_ends_run_and_processes(
    kind: str, said: str, time_limit: float, is_waited_for: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_scheduling, "RETRIES", 1)
    settings = {"client-time-limit": time_limit, "trials-per-batch": 6, "actors": 2}
    plan = small_plan(run=settings)
    mark = tmp_path / "failed"
    with pytest.raises(FederationError) as caught:
        run_audit(
            plan,
            tmp_path / "run",
            Engine.RAY,
            parties=ClientAppAndStrategy(client_app=faulty_app(kind, mark, always=True)),
            with_report=False,
        )
    noticed_after = time_limit + GRACE_SECONDS if is_waited_for else 0.0
    assert time.time() - mark.stat().st_mtime < noticed_after + SECONDS_TO_STOP
    assert re.search(said, str(caught.value))
    assert "\n" not in str(caught.value)
    # A busy machine may not have started the new process of a client that hangs before the server gives up.
    assert mark.stat().st_size in {"dies": (2,), "hangs and freezes": (2, 3)}[kind]
    assert _stored_batches(tmp_path / "run") == []
    assert _running_ray_processes() == []
    undisturbed = run_locally(plan, tmp_path / "undisturbed")
    resumed = run_locally(plan, tmp_path / "run", resume=True)
    pd.testing.assert_frame_equal(resumed.trials, undisturbed.trials)


@pytest.mark.long
@pytest.mark.ray
def test_on_ray_a_call_whose_process_died_is_made_again_and_one_that_raises_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    # Two processes are started within one call, and a busy machine takes its time for each.
    settings = {"actors": 1, "client-time-limit": 200.0}
    plan = small_plan(run=settings)
    mark = tmp_path / "died"
    faulty = ClientAppAndStrategy(client_app=faulty_app("dies, later raises", mark, always=True))
    with pytest.raises(FederationError) as caught:
        run_audit(plan, tmp_path / "run", Engine.RAY, parties=faulty, with_report=False)
    assert time.time() - mark.stat().st_mtime < SECONDS_TO_STOP
    assert "client 2 failed: disk full" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert _running_ray_processes() == []
    # Of the first batch it died twice in a row, which two retries allow, and answered; of the second it raised.
    assert mark.stat().st_size == 4
    assert _stored_batches(tmp_path / "run") == ["batch-00000"]
    undisturbed = run_locally(plan, tmp_path / "undisturbed")
    first = tmp_path / "run" / "challenger" / "batches" / "batch-00000" / "trials.parquet"
    written = first.stat().st_mtime_ns
    resumed = run_locally(plan, tmp_path / "run", resume=True)
    assert first.stat().st_mtime_ns == written
    for label in ("trials", "rounds", "releases"):
        pd.testing.assert_frame_equal(getattr(resumed, label), getattr(undisturbed, label), check_exact=True)
