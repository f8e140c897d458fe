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
import resource
import subprocess
import sys
import tempfile
import threading
import time
from argparse import SUPPRESS
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from rich.console import Console

from fl_audit.experiments.benchmarks.audit_speed import configuration
from fl_audit.experiments.cli.main import guarded
from fl_audit.experiments.runs.audit_plan import resolve
from fl_audit.experiments.runs.config import parse_config
from fl_audit.experiments.runs.engines import Engine
from fl_audit.experiments.runs.run import run_audit
from fl_audit.experiments.studies.study_tools import parser_of, table_of

_TRIALS_A_BATCH = 100
_CONCURRENCY_TARGET = 1.7


def _seconds(data_dir: Path | None, actors: int, in_flight: int) -> float:
    """Return the training time in seconds of two batches of the MNIST audit on Ray, `in_flight` of them at a time.

    `actors` is the number of client processes.
    """
    with tempfile.TemporaryDirectory() as scratch:
        config = configuration("mnist", 2 * _TRIALS_A_BATCH, Engine.RAY, data_dir, Path(scratch)).as_dict()
        config["run"] |= {"actors": actors, "batches-in-flight": in_flight, "trials-per-batch": _TRIALS_A_BATCH}
        config["training"]["rounds"], config["data"]["test-records"] = 5, 2
        config["audit"]["epsilon-star"] = False
        summary = run_audit(resolve(parse_config(config)), Path(scratch) / "run").summary
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
    """Run a configuration in a new process, and return the peak resident memory of all its processes in MiB."""
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(_command(config, scratch))
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            threading.Event().wait(0.2)
    if process.returncode != 0:
        raise RuntimeError(f"the run of {config['audit']['trials']} trials ended with {process.returncode}")
    return peak


def _command(config: dict[str, Any], scratch: str, *words: str) -> list[str]:
    """Write a configuration to `scratch`, and return the command that runs it; `words` are further arguments."""
    (Path(scratch) / "audit.json").write_text(json.dumps(config))
    return [sys.executable, "-m", "fl_audit.experiments.benchmarks.scaling", "--child", scratch, *words]


def _resident(pid: int) -> float:
    """Return the resident memory of a run's process and its client processes in MiB, without Ray's own servers."""
    total = 0
    try:
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            if process.pid == pid or " ".join(process.cmdline()).startswith("ray::"):
                total += process.memory_info().rss - process.memory_info().shared
    except psutil.Error:
        pass  # a process that ended in between
    return total / 2**20


_FEATURES = 10
_CLIENTS = ((Engine.RAY, 10, 0), (Engine.RAY, 10_000, 100), (Engine.LOCAL, 1_000, 100), (Engine.LOCAL, 10_000, 100),
            (Engine.LOCAL, 100_000, 100), (Engine.LOCAL, 1_000_000, 1_000))  # fmt: skip
"""Engine, registered clients, and cohort; without one everybody takes part."""
_NODES, _CORES, _LINK = 64, 16, 1.25e9
"""Nodes, cores of a node, and bytes a second that leave the driver's machine, of the cluster on paper."""
_DRIVER_SECONDS_A_CALL, _IMPORT_SECONDS = 0.0011, 2.2
"""Measured seconds of the driver for a client call, and of a core until a client process has finished its imports."""


def _start_of(engine: Engine, clients: int, cohort: int) -> tuple[float, float, float]:
    """Run two rounds of DP-FedAvg in a new process, and return its cost until the end of the first round.

    The result is wall-clock seconds, the driver's CPU seconds, and the driver's peak memory in MiB. `cohort` is the
    number of clients in a round; 0 means all of them.

    Raises
    ------
    RuntimeError
        If the run fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        draw, count = np.random.default_rng(0), clients + 2 + max(200, cohort)
        features = draw.standard_normal((count, _FEATURES)).astype(np.float32)
        np.savez(Path(scratch) / "data.npz", x=features, y=(features[:, 0] > 0).astype(np.int64))
        training = {"strategy": "dp-fedavg", "rounds": 2, "local-epochs": 1, "local-batch": 10}
        config = {
            "data": {"name": "npz", "path": str(Path(scratch) / "data.npz"), "records": clients, "clients": clients,
                     "test-records": 100, "population-records": 100},
            "model": {"name": "logistic"},
            "training": training | {"local-learning-rate": 0.1} | ({"cohort": cohort} if cohort else {}),
            "privacy": {"noise-multiplier": 1.0, "clipping-norm": 1.0, "adjacency": "add-remove-client", "delta": 1e-7},
            "audit": {"trials": 4, "epsilon-star": False, "membership": False},
        }  # fmt: skip
        ran = subprocess.run(_command(config, scratch, "--engine", str(engine)), capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"the run with {clients} clients ended with {ran.returncode}: {ran.stderr[-300:]}")
        # Costs until the first round was over: seconds since the process was started, processor seconds of the driver,
        # which others on the machine do not lengthen, and the peak resident memory of the driver, in MiB.
        seconds, busy, memory = json.loads(ran.stdout.splitlines()[-1])
        return seconds, busy, memory


def _child(scratch: Path, engine: Engine | None) -> None:
    """Carry out the run whose configuration is `audit.json` in the directory `scratch`, within this process.

    If an engine is given, it executes the run, and the cost until the end of the first round is printed as JSON:
    wall-clock seconds, CPU seconds, and peak memory in MiB. If it is None, the engine is chosen by the kind of audit.
    """
    config = parse_config(json.loads((scratch / "audit.json").read_text()))
    if engine is None:
        run_audit(resolve(config), scratch / "run", Engine.RAY if config.audit.targets is None else Engine.LOCAL)
        return
    ended, own = list[tuple[float, float]](), psutil.Process()

    @contextmanager
    def noted(total: int) -> Iterator[Callable[[int], None]]:
        yield lambda trials: ended.append((time.time() - own.create_time(), time.process_time()))

    run_audit(resolve(config), scratch / "run", engine, progress=noted, with_report=False)
    print(json.dumps([*ended[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def _on_paper(clients: int, cohort: int) -> str:
    """Return in words the extrapolated cost of start-up and of a round on a cluster, with 1 MiB of data per client.

    `cohort` is the number of clients in a round; 0 means all of them.
    """
    start, taking_part = _IMPORT_SECONDS + min(clients, 256) * _DRIVER_SECONDS_A_CALL, cohort or clients
    sent = taking_part * 2**20 / _LINK
    return (
        f"start {start:.1f} s and Ray's; a round {taking_part * _DRIVER_SECONDS_A_CALL:,.1f} s of the driver and its "
        f"{taking_part / (_NODES * _CORES):,.1f} client calls a core; shards, once, {sent:,.1f} s"
    )


def _print_clients(console: Console) -> None:
    """Measure the start-up for every number of clients, and print the table."""
    columns = ("engine", "clients", "cohort", "s to the end of round 1", "processor s", "MiB", "us a client",
               "KiB a client", f"on {_NODES} nodes of {_CORES} cores, on paper")  # fmt: skip
    table, (_, least_busy, least_memory) = table_of(columns, words=columns), _start_of(Engine.LOCAL, 10, 0)
    for engine, clients, cohort in _CLIENTS:
        seconds, busy, memory = _start_of(engine, clients, cohort)
        more = f"{(busy - least_busy) * 1e6 / clients:,.0f}", f"{(memory - least_memory) * 1024 / clients:,.2f}"
        cells = f"{clients:,}", f"{cohort or clients:,}", f"{seconds:.1f}", f"{busy:.1f}", f"{memory:,.0f}", *more
        table.add_row(str(engine), *cells, _on_paper(clients, cohort))
    console.print(table)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--part", choices=("concurrency", "memory", "membership", "clients"), help="one part")
    parser.add_argument("--repeat", type=int, default=3, help="turns of the concurrency part (default: 3)")
    parser.add_argument("--child", type=Path, help=SUPPRESS)
    parser.add_argument("--engine", type=Engine, help=SUPPRESS)
    options = parser.parse_args()
    console = Console(width=120)
    if options.child is not None:
        _child(options.child, options.engine)
        return
    if options.part in (None, "concurrency"):
        turns = [(_seconds(options.data_dir, 1, 1), _seconds(options.data_dir, 2, 2)) for _ in range(options.repeat)]
        one, two = (median(column) for column in zip(*turns, strict=True))
        console.print(f"two batches one by one: {one:.1f} s; at the same time on two client processes: {two:.1f} s")
        console.print(f"ratio {one / two:.2f} (target >= {_CONCURRENCY_TARGET:g})")
    if options.part in (None, "memory"):
        adult = (configuration("adult", trials, Engine.RAY, options.data_dir, Path.cwd()) for trials in (250, 4000))
        configs = (config.as_dict() for config in adult)
        few, many = (_peak_memory(one | {"run": one["run"] | {"trials-per-batch": 250}}) for one in configs)
        console.print(f"peak memory: {few:.0f} MiB with 250 trials, {many:.0f} MiB with 4000, ratio {many / few:.2f}")
    if options.part in (None, "membership"):
        audits = (_MEMBERSHIP["audit"] | {"trials": trials} for trials in (64, 1024))
        few, many = (_peak_memory(_MEMBERSHIP | {"audit": audit}) for audit in audits)
        console.print(f"membership: {few:.0f} MiB with 64 trials, {many:.0f} MiB with 1024, ratio {many / few:.2f}")
    if options.part in (None, "clients"):
        _print_clients(console)


if __name__ == "__main__":
    guarded(main)
