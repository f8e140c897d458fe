"""Benchmark of DP-FedAvg: time of a round next to Flower's FedAvg, pfl-research and a plain torch loop.

    python -m fl_audit.experiments.benchmarks.fedavg_speed [--quick] [--pfl PYTHON] [--only WAY ...] [--device cuda]

There are a thousand clients of 50 random records. In each round 50 of them train the network 784-128-10, each for one
epoch in batches of 10. Flower's FedAvg, pfl-research and the loop neither clip nor add noise. pfl-research is measured
if `--pfl` names the Python interpreter of an environment in which it is installed. The implementations take turns, so
that the load of the machine affects all of them. The time of a round is counted from the end of the previous round. The
start-up time is the time until the end of the first round, minus one median round. With Ray, a client's records are
sent to a worker when the client first takes part. So the first rounds take longer than later rounds. To measure how
long a large federation takes to start, use `--clients 10000 --records 5 --rounds 2`.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import ConfigRecord
from rich.console import Console
from torch import nn

from fl_audit.device import Device
from fl_audit.experiments.benchmarks.flower_and_pfl_baselines import (
    PFL_SCRIPT,
    load_records,
    network,
    stock_rounds,
    train_epoch,
)
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import at_each_round
from fl_audit.runs.cluster.ray_options import RayOptions, usable_cores
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit

_FEATURES = 784
_HIDDEN = 128
_CLASSES = 10
_BATCH = 10
_RATE = 0.1
_MANY_TRIALS = 50
_OTHERS = 400  # records beside those of the clients, for tests and as a population

STOCK = "stock Flower, Ray"
RAY_ONE = "ours, Ray, 1 trial"
RAY_MANY = f"ours, Ray, {_MANY_TRIALS} trials"
LOCAL_ONE = "ours, local, 1 trial"
LOCAL_MANY = f"ours, local, {_MANY_TRIALS} trials"
LOOP = "torch loop, 1 thread"
PFL_ONE = "pfl, 1 process"
PFL_ALL = "pfl, a process a core"

TARGETS = (
    ("client updates a second on Ray with one trial over stock Flower's", RAY_ONE, STOCK, ">= 12"),
    ("client updates a second on Ray with 50 trials over stock Flower's", RAY_MANY, STOCK, ">= 5"),
    ("client updates a second on the local engine over pfl's, a process a core", LOCAL_ONE, PFL_ALL, ">= 1.3"),
    # If other processes use the cores too, one process of pfl is the faster way.
    ("client updates a second on the local engine over pfl's, 1 process", LOCAL_ONE, PFL_ONE, ">= 1.3"),
    ("client updates a second on the local engine over the loop's", LOCAL_ONE, LOOP, ">= 2"),
)
"""The comparisons: client updates a second of the first way over those of the second."""


@dataclass(frozen=True)
class FederationSizes:
    """Sizes of the federation that every implementation trains, with its data and the machine's resources."""

    path: Path  # archive of the records
    clients: int  # number of clients
    records: int  # number of records of each client
    cohort: int  # number of clients in a round
    rounds: int  # number of rounds of a run, at least 2
    cores: int  # client processes, or threads
    pfl: str | None  # interpreter that has pfl-research
    device: Device = Device.CPU  # device on which the loop and fl_audit compute

    def settings(self) -> dict[str, str | int | float]:
        """Return the settings for the clients of Flower's FedAvg and for the script of pfl-research, keyed by name."""
        sizes = {"clients": self.clients, "records": self.records, "cohort": self.cohort, "rounds": self.rounds}
        return {"path": str(self.path), **sizes, "batch": _BATCH, "rate": _RATE, "hidden": _HIDDEN, "classes": _CLASSES}

    def configuration(self, trials: int) -> RunConfig:
        """Return the configuration with which fl_audit trains this federation in a number of trials."""
        data = {"name": "npz", "path": str(self.path), "test-records": _OTHERS // 4, "population-records": _OTHERS // 4}
        audit = {"trials": trials, "insider": False, "epsilon-star": False, "membership": False, "neighbour": 0}
        training = {"strategy": "dp-fedavg", "cohort": self.cohort, "rounds": self.rounds}
        values = {
            "data": data | {"clients": self.clients, "records": self.clients * self.records},
            "model": {"name": f"dense-{_HIDDEN}"},
            "training": training | {"local-batch": _BATCH, "local-learning-rate": _RATE},
            "privacy": {"noise-multiplier": 1.0, "clipping-norm": 1.0, "adjacency": "add-remove-client"},
            "audit": audit | {"evaluate-every": self.rounds},
            "run": {"actors": self.cores, "trials-per-batch": trials} | {"device": str(self.device)},
        }
        return parse_config(values)


class MeasuredSeconds(NamedTuple):
    """Measured seconds of one implementation: the start-up of each run, and each round after the first."""

    start_up: list[float]
    rounds: list[float]


def _ours(federation: FederationSizes, engine: Engine, trials: int) -> list[float]:
    """Train the federation by fl_audit, and return the end of each round in seconds of the monotonic clock."""
    over: list[float] = []
    noted = at_each_round(lambda: over.append(time.monotonic()))
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_run(federation.configuration(trials))
        run_audit(plan, Path(scratch) / "run", engine, progress=noted, with_report=False)
    return over


def _loop(federation: FederationSizes) -> list[float]:
    """Train in a plain torch loop in one thread, and return the end of each round in seconds of the monotonic clock."""
    torch.set_num_threads(1)
    features, labels = (record.to(federation.device) for record in load_records(str(federation.path)))
    module = network(_FEATURES, _HIDDEN, _CLASSES).to(federation.device)
    over = list[float]()
    current = nn.utils.parameters_to_vector(module.parameters()).detach()
    parameters = list(module.parameters())
    draw = np.random.default_rng(0)
    for _ in range(federation.rounds):
        total = torch.zeros_like(current)
        for client in draw.choice(federation.clients, federation.cohort, replace=False):
            shard = slice(int(client) * federation.records, int(client + 1) * federation.records)
            nn.utils.vector_to_parameters(current.clone(), parameters)
            train_epoch(module, features[shard], labels[shard], _BATCH, _RATE)
            total += nn.utils.parameters_to_vector(parameters).detach() - current
        current = current + total / federation.cohort
        if current.is_cuda:
            torch.cuda.synchronize()
        over.append(time.monotonic())
    return over


def _pfl(federation: FederationSizes, processes: int) -> list[float]:
    """Train by pfl-research in other processes, and return when each round ended, in seconds of the monotonic clock."""
    assert federation.pfl is not None, "this way is measured only where there is an interpreter"
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "pfl_rounds.py"
        script.write_text(PFL_SCRIPT)
        launched = [] if processes == 1 else ["-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
        command = [federation.pfl, *launched, str(script), json.dumps(federation.settings())]
        written = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds: list[float] = json.loads(written.splitlines()[-1])["over"]
    return seconds


WAYS: dict[str, tuple[int, Callable[[FederationSizes], list[float]]]] = {
    STOCK: (1, lambda sizes: stock_rounds(ConfigRecord(dict(sizes.settings())), RayOptions(actors=sizes.cores))),
    RAY_ONE: (1, lambda federation: _ours(federation, Engine.RAY, 1)),
    RAY_MANY: (_MANY_TRIALS, lambda federation: _ours(federation, Engine.RAY, _MANY_TRIALS)),
    LOCAL_ONE: (1, lambda federation: _ours(federation, Engine.LOCAL, 1)),
    LOOP: (1, _loop),
    PFL_ONE: (1, lambda federation: _pfl(federation, 1)),
    PFL_ALL: (1, lambda federation: _pfl(federation, federation.cores)),
    LOCAL_MANY: (_MANY_TRIALS, lambda federation: _ours(federation, Engine.LOCAL, _MANY_TRIALS)),
}
"""The number of trials of each way, and its training function."""


def _measured(federation: FederationSizes, ways: list[str], repeat: int) -> dict[str, MeasuredSeconds]:
    """Run the implementations named in `ways` one after the other, `repeat` times, and return their times by name."""
    seconds = {implementation: MeasuredSeconds([], []) for implementation in ways}
    for _ in range(repeat):
        for name, (start_up, rounds) in seconds.items():
            began = time.monotonic()
            over = WAYS[name][1](federation)
            lasted = np.diff(over).tolist()
            start_up.append(over[0] - began - median(lasted))
            rounds += lasted
            summary = f"{name}: a round {median(rounds):.3f} s, start-up {start_up[-1]:.1f} s"
            print(summary, file=sys.stderr, flush=True)
    return seconds


def _show(federation: FederationSizes, seconds: dict[str, MeasuredSeconds]) -> None:
    """Print the times, and the ratios of client updates per second next to their targets."""
    size = f"{federation.clients} clients of {federation.records} records, {federation.cohort} in a round"
    title = f"DP-FedAvg, {_FEATURES}-{_HIDDEN}-{_CLASSES}, {size}, {federation.cores} cores"
    title += f", ours and the loop on {federation.device}"
    table = table_of(("way", "start-up s", "round s", "range", "client updates/s"), title)
    speed = {}
    for name, seconds_of_one in seconds.items():
        middle = median(seconds_of_one.rounds)
        speed[name] = federation.cohort * WAYS[name][0] / middle
        spread = f"{min(seconds_of_one.rounds):.2f} - {max(seconds_of_one.rounds):.2f}"
        table.add_row(name, f"{median(seconds_of_one.start_up):.1f}", f"{middle:.3f}", spread, f"{speed[name]:.0f}")
    console = Console(width=120)
    console.print(table)
    for label, above, below, target in TARGETS:
        if above in speed and below in speed:
            console.print(f"{label}: {speed[above] / speed[below]:.2f} (target {target})")


def main() -> None:
    parser = parser_of(__doc__, "one turn of a few rounds")
    parser.add_argument("--pfl", metavar="PYTHON", help="interpreter of an environment with pfl-research")
    parser.add_argument("--only", choices=WAYS, nargs="+", metavar="WAY", help=f"some ways: {', '.join(WAYS)}")
    parser.add_argument("--clients", type=int, default=1000, help="clients (default: 1000)")
    parser.add_argument("--records", type=int, default=50, help="records of a client (default: 50)")
    parser.add_argument("--rounds", type=int, help="rounds of a run, from 2 (default: 40, quick: 5)")
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CPU, help="default: cpu")
    parser.add_argument("--repeat", type=int, help="turns (default: 3, quick: 1)")
    options = parser.parse_args()
    quick = options.quick
    ways = options.only or [
        implementation for implementation in WAYS if options.pfl or implementation not in (PFL_ONE, PFL_ALL)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "random.npz"
        cohort = min(50, options.clients - 1)
        rounds = options.rounds or (5 if quick else 12)
        federation = FederationSizes(
            path, options.clients, options.records, cohort, rounds, usable_cores(), options.pfl, options.device
        )
        _write_records(federation)
        _show(federation, _measured(federation, ways, options.repeat or (1 if quick else 3)))


def _write_records(federation: FederationSizes) -> None:
    source = np.random.default_rng(0)
    count = federation.clients * federation.records + _OTHERS
    features = source.random((count, _FEATURES), dtype=np.float32)
    np.savez(federation.path, x=features, y=source.integers(_CLASSES, size=count))


if __name__ == "__main__":
    guarded(main)
