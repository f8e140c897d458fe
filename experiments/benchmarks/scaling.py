"""Two batches at a time against one, and peak memory against the number of worlds.

    python -m experiments.benchmarks.scaling [--data-dir DIR] [--part concurrency|memory|membership] [--repeat N]

Concurrency: the MNIST audit (see `audit_speed`) with two batches in flight on two client processes, against the same
two batches one after the other on one; the target is 1.7. Memory: the Adult audit with 250 and with 4000 worlds in
batches of 250, each in a process of its own; the peak is that of the run and its client processes together.
Membership: the same for the game of membership on built-in digits, 500 targets, with 64 and with 1024 worlds in batches
of 64, all in one process, attacks and report included. The table of all scores has to grow with the worlds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console

from experiments.benchmarks.audit_speed import configuration
from experiments.cli.main import guarded
from experiments.runs.engines import Engine
from experiments.runs.plan import resolve
from experiments.runs.run import run_audit

_WORLDS_A_BATCH = 100
_CONCURRENCY_TARGET = 1.7


def seconds(data_dir: Path | None, actors: int, in_flight: int) -> float:
    """Return the training time of two batches of the MNIST audit on Ray.

    Parameters
    ----------
    data_dir
        Where MNIST lies; None is the default place.
    actors, in_flight
        Client processes, and batches that travel together.
    """
    with tempfile.TemporaryDirectory() as scratch:
        config = configuration("mnist", 2 * _WORLDS_A_BATCH, Engine.RAY, data_dir, Path(scratch))
        changed = {"actors": actors, "batches_in_flight": in_flight, "worlds_per_batch": _WORLDS_A_BATCH}
        config = config.model_copy(
            update={
                "run": config.run.model_copy(update=changed),
                "training": config.training.model_copy(update={"rounds": 5}),
                "audit": config.audit.model_copy(update={"epsilon_star": False}),
                "data": config.data.model_copy(update={"test_records": 2}),
            }
        )
        summary = run_audit(resolve(config), Path(scratch) / "run").summary
    return float(summary["timing"]["training_seconds"])


_MEMBERSHIP: dict[str, dict[str, Any]] = {
    "data": {"name": "digits", "records": 500, "clients": 2, "population-records": 500},
    "model": {"name": "logistic"},
    "training": {"rounds": 5, "learning-rate": 2.0},
    "privacy": {"epsilon": 8.0, "adjacency": "add-remove-record", "clipping-norm": 1.0},
    "audit": {"game": "membership", "targets": 500, "epsilon-star": False, "evaluate-every": 5},
    "run": {"worlds-per-batch": 64, "actors": 1},
}


def _adult_game(data_dir: Path | None, worlds: int) -> dict[str, Any]:
    """Return the configuration of the Adult audit."""
    config = configuration("adult", worlds, Engine.RAY, data_dir, Path.cwd()).as_dict()
    config["run"]["worlds-per-batch"] = 250
    return config


def membership_game(worlds: int) -> dict[str, Any]:
    """Return the configuration of the game of membership."""
    return _MEMBERSHIP | {"audit": _MEMBERSHIP["audit"] | {"worlds": worlds}}


def peak_memory(config: dict[str, Any]) -> float:
    """Return the peak resident memory, in MiB, of a run in a process of its own.

    Raises
    ------
    RuntimeError
        If the run fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "audit.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "experiments.benchmarks.scaling", "--child", scratch]
        process = subprocess.Popen(command)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            threading.Event().wait(0.2)
    if process.returncode != 0:
        raise RuntimeError(f"the run of {config['audit']['worlds']} worlds ended with {process.returncode}")
    return peak


def _resident(pid: int) -> float:
    """Return the resident memory of the run and of its client processes, in MiB; Ray's own servers are left out."""
    total = 0
    try:
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            if process.pid == pid or " ".join(process.cmdline()).startswith("ray::"):
                total += process.memory_info().rss - process.memory_info().shared
    except psutil.Error:
        pass  # a process that ended in between
    return total / 2**20


def _child(scratch: Path) -> None:
    from experiments.runs.config import parse_config

    config = parse_config(json.loads((scratch / "audit.json").read_text()))
    engine = Engine.LOCAL if config.audit.game == "membership" else Engine.RAY
    run_audit(resolve(config), scratch / "run", engine)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--part", choices=("concurrency", "memory", "membership"), help="one part")
    parser.add_argument("--repeat", type=int, default=3, help="turns of the concurrency part (default: 3)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    console = Console(width=120)
    if options.child is not None:
        _child(options.child)
        return
    if options.part in (None, "concurrency"):
        turns = [(seconds(options.data_dir, 1, 1), seconds(options.data_dir, 2, 2)) for _ in range(options.repeat)]
        one, two = (median(column) for column in zip(*turns, strict=True))
        console.print(f"two batches one by one: {one:.1f} s; at the same time on two client processes: {two:.1f} s")
        console.print(f"ratio {one / two:.2f} (target >= {_CONCURRENCY_TARGET:g})")
    if options.part in (None, "memory"):
        few, many = (peak_memory(_adult_game(options.data_dir, worlds)) for worlds in (250, 4000))
        console.print(f"peak memory: {few:.0f} MiB with 250 worlds, {many:.0f} MiB with 4000, ratio {many / few:.2f}")
    if options.part in (None, "membership"):
        few, many = (peak_memory(membership_game(worlds)) for worlds in (64, 1024))
        console.print(f"membership: {few:.0f} MiB with 64 worlds, {many:.0f} MiB with 1024, ratio {many / few:.2f}")


if __name__ == "__main__":
    guarded(main)
