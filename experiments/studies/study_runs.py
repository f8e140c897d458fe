"""Run what studies and benchmarks need: audits in temporary directories, scripts in another Python, timed functions."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from shutil import which
from statistics import median
from typing import Any

import numpy as np

from fl_audit.errors import require
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.progress import Progress, no_progress
from fl_audit.runs.run import HONEST, ClientAppAndStrategy, run_audit


def results_of_run(
    source: RunPlan | dict[str, Any], parties: ClientAppAndStrategy = HONEST, progress: Progress = no_progress
) -> ReportContents:
    """Carry out a run on the local engine in a temporary directory, and return its results for a report."""
    plan = source if isinstance(source, RunPlan) else plan_run(parse_config(source))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "run"
        return run_audit(plan, path, Engine.LOCAL, progress=progress, parties=parties, with_report=False)


def at_each_round(note: Callable[[], None]) -> Progress:
    """Return a progress display that shows nothing, and calls a function whenever trial-rounds are finished.

    A trial-round is one round of one trial.
    """
    return lambda total: nullcontext(lambda done: note())


def arrays_of_script(
    python: str, script: str, values: Mapping[str, Any], of_whom: str, environment: Mapping[str, str] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a script in another Python interpreter, and return the arrays that it writes, keyed by name."""
    require(which(python) is not None, f"{python} is no interpreter: accepted is the path of a Python")
    with tempfile.TemporaryDirectory() as scratch:
        read, written, path = (Path(scratch) / name for name in ("told.npz", "answered.npz", "attack.py"))
        np.savez(read, **values)
        path.write_text(script)
        done = subprocess.run([python, path, read, written], capture_output=True, text=True, env=environment)
        wrote = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        require(done.returncode == 0, f"{python} failed with {of_whom}; it wrote: {wrote[0]}")
        with np.load(written) as arrays:
            return dict(arrays)


def median_seconds(*ways: Callable[[], object], repeat: int) -> list[float]:
    """Time functions in turns, and return the median seconds of each function; a first turn is a warm-up."""
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(repeat + 1):
        for work, second in zip(ways, seconds, strict=True):
            began = time.perf_counter()
            work()
            second.append(time.perf_counter() - began)
    return [median(second[1:]) for second in seconds]
