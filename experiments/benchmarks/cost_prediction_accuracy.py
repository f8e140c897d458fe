"""Benchmark of the estimates of `fl-audit check`: predicted and measured time and memory of runs.

    python -m fl_audit.experiments.benchmarks.cost_prediction_accuracy [--only NAME ...] [--engine local|ray]

Five settings are predicted and then run on each engine, local and Ray: an audit of many small trials with an evaluation
after every round, an audit of a wide dense network, DP-FedAvg with 1,000 clients, a membership audit, and a large
convolutional network. Each run takes about half a minute on two idle cores. The target is that in eight of the ten
cases both time and memory are within a factor of 1.5 of the prediction. CPU seconds are printed as well: if a run took
much longer than its CPU seconds on all cores explain, other programs were using the machine.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from argparse import SUPPRESS
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from rich.console import Console

from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.planned_run_check import check_plan
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit

_FACTOR = 1.5
_TARGET = 0.8
_SECONDS_BETWEEN_LOOKS = 0.1

Values = dict[str, dict[str, Any]]


class PredictedSetting(NamedTuple):
    """A configuration whose time and memory are predicted and measured, with the shape of its random records."""

    shape: tuple[int, ...]  # shape of a random record; not used if `values` names data
    classes: int  # number of classes of the random records
    records: int  # number of random records; 0 if `values` names data
    values: Values  # the configuration; `data.path` is added


_PRIVACY = {"belief": 0.9, "clipping-norm": 3.0, "sensitivity": "local", "delta": 0.001, "adjacency": "replace-record"}

SETTINGS = {
    "many trials": PredictedSetting(
        (104,),
        2,
        3000,
        {
            "data": {"name": "npz", "records": 1000, "clients": 10, "test-records": 500, "population-records": 1000},
            "model": {"name": "adult-mlp"},
            "training": {"rounds": 30, "learning-rate": 0.1},
            "privacy": _PRIVACY,
            "audit": {"trials": 500},
        },
    ),
    "wide network": PredictedSetting(
        (600,),
        100,
        1300,
        {
            "data": {"name": "npz", "records": 1000, "clients": 10, "test-records": 100, "population-records": 100},
            "model": {"name": "dense-128"},
            "training": {"rounds": 30, "learning-rate": 0.1},
            "privacy": _PRIVACY,
            "audit": {"trials": 25, "evaluate-every": 30},
        },
    ),
    "many clients": PredictedSetting(
        (784,),
        10,
        50_400,
        {
            "data": {"name": "npz", "records": 50_000, "clients": 1000, "test-records": 100, "population-records": 100},
            "model": {"name": "dense-128"},
            "training": {
                "strategy": "dp-fedavg",
                "cohort": 50,
                "rounds": 100,
                "local-batch": 10,
                "local-learning-rate": 0.1,
            },
            "privacy": {"noise-multiplier": 1.0, "clipping-norm": 1.0, "adjacency": "add-remove-client", "delta": 1e-4},
            "audit": {"trials": 1, "insider": False, "epsilon-star": False, "membership": False, "evaluate-every": 100},
        },
    ),
    "membership": PredictedSetting(
        (),
        0,
        0,
        {
            "data": {"name": "digits", "records": 500, "clients": 2, "population-records": 500},
            "model": {"name": "logistic"},
            "training": {"rounds": 5, "learning-rate": 2.0},
            "privacy": {"epsilon": 8.0, "adjacency": "add-remove-record", "clipping-norm": 1.0},
            "audit": {"kind": "membership", "targets": 500, "trials": 512, "epsilon-star": False, "evaluate-every": 5},
            "run": {"trials-per-batch": 64},
        },
    ),
    "convolutions": PredictedSetting(
        (1, 28, 28),
        10,
        400,
        {
            "data": {"name": "npz", "records": 100, "clients": 4, "test-records": 100, "population-records": 100},
            "model": {"name": "mnist-cnn"},
            "training": {"rounds": 10, "learning-rate": 0.1},
            "privacy": _PRIVACY | {"delta": 0.01},
            "audit": {"trials": 20, "evaluate-every": 10},
        },
    ),
}


class MeasuredCosts(NamedTuple):
    """Measured time and memory of one run, over all of its processes."""

    seconds: float  # wall-clock seconds
    processor: float  # CPU seconds of all its processes
    mib: float  # peak memory of all its processes in MiB, without shared pages


def _written(name: str, scratch: Path) -> Path:
    """Write a setting's configuration and random records, and return the path of the configuration."""
    setting = SETTINGS[name]
    draw = np.random.default_rng(0)
    values = json.loads(json.dumps(setting.values))
    if setting.records:
        features = draw.standard_normal((setting.records, *setting.shape), dtype=np.float32)
        np.savez(scratch / "data.npz", x=features, y=draw.integers(setting.classes, size=setting.records))
        values["data"]["path"] = str(scratch / "data.npz")
    values["run"] = {"seed": 0} | values.get("run", {})
    (scratch / "run.json").write_text(json.dumps(values))
    return scratch / "run.json"


def _predicted(file: Path, engine: Engine) -> dict[str, Any]:
    """Return the estimate of `fl-audit check`, computed in a new process, by quantity."""
    command = [sys.executable, "-m", __spec__.name, "--child", str(file), "--engine", engine]
    prediction: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return prediction


def _run_in_child(file: Path, engine: Engine) -> None:
    """Print, as JSON, the estimated time and memory of a run; `file` is a JSON file with its configuration."""
    probe = check_plan(plan_run(parse_config(json.loads(file.read_text()))), engine=engine).probe
    assert probe is not None, "a check makes an estimate unless it is told not to"
    print(json.dumps(asdict(probe)))


def _costs(file: Path, engine: Engine) -> MeasuredCosts:
    """Run a configuration file in a new process, and measure its time and memory."""
    module = "fl_audit.experiments.benchmarks.cost_prediction_accuracy"
    program = f"import json, sys, pathlib; from {module} import play; play(*sys.argv[1:])"
    began = time.monotonic()
    run = subprocess.Popen(
        [sys.executable, "-c", program, str(file), engine], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    busy = dict[int, float]()
    peak = 0
    while run.poll() is None:
        peak = max(peak, _measure_process_tree(run.pid, busy))
        threading.Event().wait(_SECONDS_BETWEEN_LOOKS)
    if run.returncode:
        error_text = run.stderr.read()[-300:] if run.stderr else ""
        raise RuntimeError(f"a run ended with status {run.returncode}: {error_text}")
    return MeasuredCosts(time.monotonic() - began, sum(busy.values()), peak / 2**20)


def play(file: str, engine: str) -> None:
    """Run a configuration and write its report to a directory next to the configuration file."""
    path = Path(file)
    run_audit(plan_run(parse_config(json.loads(path.read_text()))), path.parent / f"run-{engine}", Engine(engine))


def _measure_process_tree(pid: int, busy: dict[int, float]) -> int:
    """Return the unshared memory, in bytes, of a process and its descendants together.

    The CPU seconds of each process are stored in `busy`, keyed by process ID.
    """
    resident = 0
    try:
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            times = process.cpu_times()
            memory = process.memory_info()
            busy[process.pid] = times.user + times.system
            resident += memory.rss - memory.shared
    except psutil.Error:
        pass  # a process that ended in between
    return resident


def _within(ratio: float) -> bool:
    return 1 / _FACTOR <= ratio <= _FACTOR


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, metavar="NAME", help="some settings")
    parser.add_argument("--engine", type=Engine, help="one engine (default: both)")
    parser.add_argument("--child", type=Path, help=SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _run_in_child(options.child, options.engine)
        return
    columns = ("setting", "engine", "s predicted", "s", "ratio", "processor s", "MiB predicted", "MiB", "ratio ")
    table = table_of(columns, words=columns[:2])
    ratios = list[tuple[float, float]]()
    for name in options.only or SETTINGS:
        for engine in [options.engine] if options.engine else (Engine.LOCAL, Engine.RAY):
            with tempfile.TemporaryDirectory() as scratch:
                file = _written(name, Path(scratch))
                prediction = _predicted(file, engine)
                costs = _costs(file, engine)
            seconds = prediction["command_seconds"]
            mib = prediction["memory"] / 2**20
            ratios.append((seconds / costs.seconds, mib / costs.mib))
            times = (f"{seconds:.1f}", f"{costs.seconds:.1f}", f"{ratios[-1][0]:.2f}", f"{costs.processor:.1f}")
            row = (name, str(engine), *times, f"{mib:,.0f}", f"{costs.mib:,.0f}", f"{ratios[-1][1]:.2f}")
            table.add_row(*row)
            print(*row, sep="\t", file=sys.stderr, flush=True)
    console = Console(width=120)
    console.print(table)
    for quantity, column in zip(("time", "memory"), zip(*ratios, strict=True), strict=True):
        right = sum(map(_within, column))
        summary = f"{quantity}: {right} of {len(column)} predictions within a factor of {_FACTOR:g}"
        console.print(f"{summary} (target {_TARGET:.0%})")


if __name__ == "__main__":
    guarded(main)
