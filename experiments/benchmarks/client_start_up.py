"""The cost of starting DP-FedAvg with different numbers of clients: the part `clients` of the benchmark `scaling`."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console

from fl_audit.experiments.studies.study_commands import table_of
from fl_audit.experiments.studies.study_runs import at_each_round
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit

_MODULE = "fl_audit.experiments.benchmarks.client_start_up"
_FEATURES = 10
_CLIENTS = (
    (Engine.RAY, 10, 0),
    (Engine.RAY, 10_000, 100),
    (Engine.LOCAL, 1_000, 100),
    (Engine.LOCAL, 10_000, 100),
    (Engine.LOCAL, 100_000, 100),
    (Engine.LOCAL, 1_000_000, 1_000),
)
"""Engine, registered clients, and cohort; without one everybody takes part."""


_NODES = 64
_CORES = 16
_LINK = 1.25e9
"""Nodes, cores of a node, and bytes a second that leave the driver's machine, of the cluster on paper."""
_DRIVER_SECONDS_A_CALL = 0.0011
_IMPORT_SECONDS = 2.2
"""Measured seconds of the driver for a client call, and of a core until a client process has finished its imports."""


def _start_of(engine: Engine, clients: int, cohort: int) -> tuple[float, float, float]:
    """Carry out a run in a new process; return the driver's seconds, CPU seconds and peak MiB to the end of round 1."""
    with tempfile.TemporaryDirectory() as scratch:
        draw = np.random.default_rng(0)
        count = clients + 2 + max(200, cohort)
        features = draw.standard_normal((count, _FEATURES)).astype(np.float32)
        np.savez(Path(scratch) / "data.npz", x=features, y=(features[:, 0] > 0).astype(np.int64))
        training = {"strategy": "dp-fedavg", "rounds": 2, "local-epochs": 1, "local-batch": 10}
        config = {
            "data": {
                "name": "npz",
                "path": str(Path(scratch) / "data.npz"),
                "records": clients,
                "clients": clients,
                "test-records": 100,
                "population-records": 100,
            },
            "model": {"name": "logistic"},
            "training": training | {"local-learning-rate": 0.1} | ({"cohort": cohort} if cohort else {}),
            "privacy": {"noise-multiplier": 1.0, "clipping-norm": 1.0, "adjacency": "add-remove-client", "delta": 1e-7},
            "audit": {"trials": 4, "epsilon-star": False, "membership": False},
        }
        (Path(scratch) / "audit.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", _MODULE, scratch, str(engine)]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"the run with {clients} clients ended with {ran.returncode}: {ran.stderr[-300:]}")
        # Costs until the first round was over: seconds since the process was started, processor seconds of the driver,
        # which others on the machine do not lengthen, and the peak resident memory of the driver, in MiB.
        seconds, busy, memory = json.loads(ran.stdout.splitlines()[-1])
        return seconds, busy, memory


def _run_in_child(scratch: Path, engine: Engine) -> None:
    """Carry out the run in `scratch`, and print as JSON the time and memory that it needs for its first round.

    The time counts from the start of this process to the end of the round.
    """
    ended = list[tuple[float, float]]()
    process = psutil.Process()
    noted = at_each_round(lambda: ended.append((time.time() - process.create_time(), time.process_time())))
    plan = plan_run(parse_config(json.loads((scratch / "audit.json").read_text())))
    run_audit(plan, scratch / "run", engine, progress=noted, with_report=False)
    print(json.dumps([*ended[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def _extrapolated_times_text(clients: int, cohort: int) -> str:
    """Return a text with the extrapolated times of start-up and of a round on a cluster, with 1 MiB of data per client.

    `cohort` is the number of clients that take part in a round; 0 stands for all `clients`.
    """
    start = _IMPORT_SECONDS + min(clients, 256) * _DRIVER_SECONDS_A_CALL
    taking_part = cohort or clients
    sent = taking_part * 2**20 / _LINK
    return (
        f"start {start:.1f} s and Ray's; a round {taking_part * _DRIVER_SECONDS_A_CALL:,.1f} s of the driver and its "
        f"{taking_part / (_NODES * _CORES):,.1f} client calls a core; shards, once, {sent:,.1f} s"
    )


def print_start_up(console: Console) -> None:
    """Measure the start-up for every number of clients, and print the table."""
    columns = (
        "engine",
        "clients",
        "cohort",
        "s to the end of round 1",
        "processor s",
        "MiB",
        "us a client",
        "KiB a client",
        f"on {_NODES} nodes of {_CORES} cores, on paper",
    )
    table = table_of(columns, words=columns)
    _, least_busy, least_memory = _start_of(Engine.LOCAL, 10, 0)
    for engine, clients, cohort in _CLIENTS:
        seconds, busy, memory = _start_of(engine, clients, cohort)
        costs = f"{(busy - least_busy) * 1e6 / clients:,.0f}", f"{(memory - least_memory) * 1024 / clients:,.2f}"
        cells = f"{clients:,}", f"{cohort or clients:,}", f"{seconds:.1f}", f"{busy:.1f}", f"{memory:,.0f}", *costs
        table.add_row(str(engine), *cells, _extrapolated_times_text(clients, cohort))
    console.print(table)


if __name__ == "__main__":
    _run_in_child(Path(sys.argv[1]), Engine(sys.argv[2]))
