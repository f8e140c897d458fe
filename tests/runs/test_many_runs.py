"""Runs played one by one or side by side are counted, fail each with its own error, and end with this process."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from fl_audit.errors import FederationError, InputError
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs import many_runs
from fl_audit.runs.many_runs import ScheduledRun
from tests.builders.refusals import assert_refused


def _scheduled(*labels: str) -> list[ScheduledRun]:
    def planned() -> RunPlan:
        raise AssertionError("a stub plans nothing")

    return [ScheduledRun(label, Path(label), 3, planned) for label in labels]


@pytest.mark.parametrize("execution_name", ["one by one", "side by side"])
def test_runs_are_counted_and_fail_with_their_own_error(execution_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs, "ProcessPoolExecutor", ThreadPoolExecutor)
    played: list[str] = []
    counts: list[int] = []

    def play(run: ScheduledRun, on_round: Callable[[int], None]) -> None:
        if run.label == "wrong":
            raise InputError("wrong")
        if run.label == "failed":
            raise FederationError("a client fell silent")
        on_round(run.trial_rounds)
        played.append(run.label)

    @contextmanager
    def progress(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
        yield lambda name: counts.append

    sequential_play = partial(many_runs.one_by_one, play=play)
    execution = (
        sequential_play if execution_name == "one by one" else partial(many_runs.side_by_side, play=play, processes=2)
    )
    many_runs.play_runs(_scheduled("a", "b", "c"), execution, progress)
    assert sorted(played) == ["a", "b", "c"]
    assert counts == [3, 3, 3]
    assert_refused("wrong", lambda: many_runs.play_runs(_scheduled("wrong", "a", "b", "c"), execution, progress))
    played.clear()
    finished: list[str] = []
    runs = _scheduled("failed", "a", "b", "c")
    with pytest.raises(FederationError, match=r"^failed: a client fell silent; finished runs are kept"):
        many_runs.play_runs(runs, execution, progress, lambda run: finished.append(run.label))
    assert sorted(played) == sorted(finished) == ["a", "b", "c"]
    played.clear()
    with pytest.raises(FederationError, match=r"^failed: a client fell silent"):
        many_runs.play_runs(runs, sequential_play, progress, stops_at_failure=True)
    assert played == []


_SIDE_BY_SIDE = """
import os, sys, time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from fl_audit.runs.many_runs import ScheduledRun, play_runs, side_by_side


def play(run, on_round):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(300)


@contextmanager
def progress(total):
    yield lambda name: lambda done: None


if __name__ == "__main__":
    runs = [ScheduledRun("slow", Path(name), 1, dict) for name in ("first", "second")]
    play_runs(runs, partial(side_by_side, play=play, processes=2), progress)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_runs_side_by_side_end_with_whoever_began_them(tmp_path: Path) -> None:
    (tmp_path / "begin.py").write_text(_SIDE_BY_SIDE)
    command = [sys.executable, "begin.py", "."]
    notes = list[Path]()
    begun = subprocess.Popen(command, cwd=tmp_path)
    try:
        while len(notes) < 2:
            assert begun.poll() is None
            time.sleep(0.1)
            notes = list(tmp_path.glob("[0-9]*"))
        runs_of_it = [psutil.Process(int(note.name)) for note in notes]
        begun.terminate()
        begun.wait(10.0)
        survivors = psutil.wait_procs(runs_of_it, timeout=10.0)[1]
        assert all(process.status() == psutil.STATUS_ZOMBIE for process in survivors)
    finally:
        for note in notes:
            with suppress(psutil.Error):
                psutil.Process(int(note.name)).kill()
