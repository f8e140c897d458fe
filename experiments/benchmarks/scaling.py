"""Benchmark of scaling: concurrent batches of trials, memory over the number of trials, and start-up over clients.

    python -m fl_audit.experiments.benchmarks.scaling [--data-dir DIR] [--repeat N]
        [--part concurrency|memory|membership|clients]

Concurrency: the MNIST audit of `audit_speed` with two batches of trials at a time on two client processes, compared
with the same batches one after the other on one process; the target speed-up is 1.7.

Memory: peak memory of the Adult audit with 250 and with 4000 trials in batches of 250, including the client processes.

Membership: peak memory of the membership audit on built-in digits (500 targets) with 64 and with 1024 trials in batches
of 64, in one process, including attacks and report. The table of scores necessarily grows with the number of trials.

Clients: start-up of DP-FedAvg with one record per client, for 10 to 10,000 clients on Ray and 1,000 to a million in one
process. The time from the start of the command to the end of the first round is measured, and the driver's CPU seconds
and memory, in total and per client. The cost on 64 nodes of 16 cores is extrapolated. Targets: 8 s with 10 clients on
Ray, 20 s with 10,000; 60 s with 100,000 in one process; 2 GB with a million.
"""

import json
import subprocess
import sys
import tempfile
import threading
from argparse import SUPPRESS
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console

from fl_audit.experiments.benchmarks.audit_speed import configuration
from fl_audit.experiments.benchmarks.client_start_up import print_start_up
from fl_audit.experiments.studies.study_commands import parser_of
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit

_MODULE = "fl_audit.experiments.benchmarks.scaling"
_TRIALS_A_BATCH = 100
_CONCURRENCY_TARGET = 1.7


def _seconds(data_dir: Path | None, actors: int) -> float:
    """Return the training time in seconds of two batches of the MNIST audit on Ray.

    `actors` is the number of client processes.
    """
    with tempfile.TemporaryDirectory() as scratch:
        config = configuration("mnist", 2 * _TRIALS_A_BATCH, Engine.RAY, data_dir, Path(scratch)).as_dict()
        config["run"] |= {"actors": actors, "trials-per-batch": _TRIALS_A_BATCH}
        config["training"]["rounds"], config["data"]["test-records"] = 5, 2
        config["audit"]["epsilon-star"] = False
        summary = run_audit(plan_run(parse_config(config)), Path(scratch) / "run").summary
    return float(summary["timing"]["training_seconds"])


_MEMBERSHIP: dict[str, dict[str, Any]] = {
    "data": {"name": "digits", "records": 500, "clients": 2, "population-records": 500},
    "model": {"name": "logistic"},
    "training": {"rounds": 5, "learning-rate": 2.0},
    "privacy": {"epsilon": 8.0, "adjacency": "add-remove-record", "clipping-norm": 1.0},
    "audit": {"kind": "membership", "targets": 500, "epsilon-star": False, "evaluate-every": 5},
    "run": {"trials-per-batch": 64, "actors": 1},
}


def _peak_memory(config: dict[str, Any]) -> float:
    """Run a configuration in a new process, and return the peak memory of all its processes in MiB."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "audit.json").write_text(json.dumps(config))
        process = subprocess.Popen([sys.executable, "-m", _MODULE, "--child", scratch])
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            threading.Event().wait(0.2)
    if process.returncode != 0:
        raise RuntimeError(f"the run of {config['audit']['trials']} trials ended with {process.returncode}")
    return peak


def _resident(pid: int) -> float:
    """Return the memory of a run's process and its client processes in MiB, without Ray's own servers."""
    total = 0
    try:
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            if process.pid == pid or " ".join(process.cmdline()).startswith("ray::"):
                total += process.memory_info().rss - process.memory_info().shared
    except psutil.Error:
        pass  # a process that ended in between
    return total / 2**20


def _run_in_child(scratch: Path) -> None:
    """Carry out the run whose configuration is `audit.json` in `scratch`."""
    config = parse_config(json.loads((scratch / "audit.json").read_text()))
    run_audit(plan_run(config), scratch / "run", Engine.RAY if config.audit.targets is None else Engine.LOCAL)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--part", choices=("concurrency", "memory", "membership", "clients"), help="one part")
    parser.add_argument("--repeat", type=int, default=3, help="turns of the concurrency part (default: 3)")
    parser.add_argument("--child", type=Path, help=SUPPRESS)
    options = parser.parse_args()
    console = Console(width=120)
    if options.child is not None:
        _run_in_child(options.child)
        return
    if options.part in (None, "concurrency"):
        turns = [(_seconds(options.data_dir, 1), _seconds(options.data_dir, 2)) for _ in range(options.repeat)]
        median_of_one, two = (median(column) for column in zip(*turns, strict=True))
        console.print(f"two batches on one client process: {median_of_one:.1f} s; on two: {two:.1f} s")
        console.print(f"ratio {median_of_one / two:.2f} (target >= {_CONCURRENCY_TARGET:g})")
    if options.part in (None, "memory"):
        adult = (configuration("adult", trials, Engine.RAY, options.data_dir, Path.cwd()) for trials in (250, 4000))
        configs = (config.as_dict() for config in adult)
        few_trials, many_trials = (
            _peak_memory(config | {"run": config["run"] | {"trials-per-batch": 250}}) for config in configs
        )
        console.print(
            f"peak memory: {few_trials:.0f} MiB with 250 trials, {many_trials:.0f} MiB with 4000, ratio "
            f"{many_trials / few_trials:.2f}"
        )
    if options.part in (None, "membership"):
        audits = (_MEMBERSHIP["audit"] | {"trials": trials} for trials in (64, 1024))
        few_trials, many_trials = (_peak_memory(_MEMBERSHIP | {"audit": audit}) for audit in audits)
        console.print(
            f"membership: {few_trials:.0f} MiB with 64 trials, {many_trials:.0f} MiB with 1024, ratio "
            f"{many_trials / few_trials:.2f}"
        )
    if options.part in (None, "clients"):
        print_start_up(console)


if __name__ == "__main__":
    guarded(main)
