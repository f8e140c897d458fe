"""Benchmark of one ordinary federated training: ours beside Flower's own simulation and pfl-research.

    python -m fl_audit.experiments.benchmarks.simulators [--pfl PYTHON] [--repeat N] [--rounds K]

Ten clients hold 140 digits of scikit-learn each, and train the network 64-128-10 by FedAvg, each for one epoch in
batches of 10 in every round; 397 digits are left for the accuracy. The ways take turns, so that the load of the machine
affects all of them. Client updates a second are counted from the end of the first round. Lines are those that a user
writes for this training: of the configuration, of the app's functions, of the script. pfl-research is measured if
`--pfl` names the Python interpreter of an environment that has it.
"""

import inspect
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
import torch
from flwr.app import ConfigRecord
from rich.console import Console
from sklearn.datasets import load_digits
from torch import nn

from fl_audit.experiments.benchmarks import flower_and_pfl_baselines as baselines
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import at_each_round
from fl_audit.runs.cluster.ray_options import RayOptions, usable_cores
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit

_CLIENTS = 10
_RECORDS = 140
_HIDDEN = 128
_BATCH = 10
_RATE = 0.1
_CONFIG = """
[data]
name = "npz"
path = "{path}"
records = 1400
test-records = 397
clients = 10
[model]
name = "dense-128"
[training]
aggregation = "fedavg"
rounds = {rounds}
[privacy]
private = false
[audit]
insider = false
trials = 1
evaluate-every = {rounds}
epsilon-star = false
membership = false
"""
OURS_LOCAL = "fl-audit run --engine local"
OURS_RAY = "fl-audit run --engine ray"
FLOWER = "Flower's simulation"
PFL = "pfl-research, 1 process"


@dataclass(frozen=True)
class Training:
    """The federation that all ways train."""

    path: Path  # archive of the records
    rounds: int  # number of rounds, at least 2
    pfl: str | None  # interpreter that has pfl-research
    seed: int = 0  # seed of the records' order and of the weights

    def settings(self) -> dict[str, str | int | float]:
        """Return the settings for Flower's clients and for the script of pfl-research, keyed by name."""
        sizes = {"clients": _CLIENTS, "records": _RECORDS, "cohort": _CLIENTS, "rounds": self.rounds}
        return {"path": str(self.path), **sizes, "batch": _BATCH, "rate": _RATE, "hidden": _HIDDEN, "classes": 10}


@dataclass
class Measured:
    """Measurements of one simulator in all its turns."""

    updates: list[float] = field(default_factory=list)  # client updates a second
    accuracies: list[float] = field(default_factory=list)  # accuracy of the last model


Way = Callable[[Training], tuple[list[float], float]]
"""A function that trains, and returns the end of each round in seconds and the accuracy of the last model."""


def _ours(training: Training, engine: Engine) -> tuple[list[float], float]:
    over: list[float] = []
    noted = at_each_round(lambda: over.append(time.monotonic()))
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "fedavg.toml"
        file.write_text(_CONFIG.format(path=training.path, rounds=training.rounds))
        plan = plan_run(load_config(file, [f"data.seed={training.seed}", f"model.seed={training.seed}"]))
        contents = run_audit(plan, Path(scratch) / "run", engine, progress=noted, with_report=False)
        return over, float(contents.releases["test_accuracy"].iloc[-1])


def _flowers(training: Training) -> tuple[list[float], float]:
    seconds: list[float] = []

    def note(module: nn.Module) -> None:
        features, labels = baselines.load_records(str(training.path))
        first = _CLIENTS * _RECORDS
        with torch.no_grad():
            seconds.append(float((module(features[first:]).argmax(1) == labels[first:]).double().mean()))

    torch.manual_seed(training.seed)
    over = baselines.stock_rounds(ConfigRecord(dict(training.settings())), RayOptions(), note)
    return over, seconds[-1]


def _pfl(training: Training) -> tuple[list[float], float]:
    assert training.pfl is not None, "measured only where there is an interpreter"
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "pfl_rounds.py"
        script.write_text(baselines.PFL_SCRIPT)
        command = [training.pfl, str(script), json.dumps(training.settings())]
        written = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result = json.loads(written.splitlines()[-1])
    return result["over"], result["accuracy"]


WAYS: dict[str, Way] = {
    OURS_LOCAL: lambda training: _ours(training, Engine.LOCAL),
    OURS_RAY: lambda training: _ours(training, Engine.RAY),
    FLOWER: _flowers,
    PFL: _pfl,
}
"""The function of each way."""


def lines_of_user(way_name: str) -> int:
    """Return the number of lines, without empty ones, that a user writes for this training in one way."""
    pieces = (baselines.network, baselines.train_epoch, baselines.load_records, baselines.train, baselines.stock_rounds)
    text = {OURS_LOCAL: _CONFIG, OURS_RAY: _CONFIG, PFL: baselines.PFL_SCRIPT}.get(way_name) or "\n".join(
        re.sub(r'""".*?"""', "", inspect.getsource(piece), flags=re.DOTALL) for piece in pieces
    )
    return sum(bool(line.strip()) for line in text.splitlines())


def _measured(training: Training, ways: list[str], repeat: int, scratch: Path) -> dict[str, Measured]:
    measureds = {way_name: Measured() for way_name in ways}
    for seed in range(repeat):
        turn = Training(_written(scratch, seed), training.rounds, training.pfl, seed)
        for name, measured in measureds.items():
            over, accuracy = WAYS[name](turn)
            measured.updates += (_CLIENTS / np.diff(over)).tolist()
            measured.accuracies.append(accuracy)
            print(
                f"{name}: {median(measured.updates):.0f} updates/s, accuracy {accuracy:.3f}",
                file=sys.stderr,
                flush=True,
            )
    return measureds


def _written(scratch: Path, seed: int) -> Path:
    """Write the digits in an order of their own, and return the archive's path."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    path = scratch / f"digits-{seed}.npz"
    np.savez(path, x=(images[order] / 16).astype(np.float32), y=labels[order].astype(np.int64))
    return path


def rows_of(measureds: dict[str, Measured]) -> list[tuple[str, ...]]:
    """Return the rows of the table: way, accuracy with its deviation, updates a second, over Flower's, lines."""
    base = median(measureds[FLOWER].updates) if FLOWER in measureds else float("nan")
    rows = list[tuple[str, ...]]()
    for name, measured in measureds.items():
        spread = f" ± {stdev(measured.accuracies):.3f}" if len(measured.accuracies) > 1 else ""
        speed = median(measured.updates)
        rows.append(
            (
                name,
                f"{mean(measured.accuracies):.3f}{spread}",
                f"{speed:.0f}",
                f"{speed / base:.1f}",
                str(lines_of_user(name)),
            )
        )
    return rows


HEADINGS = ("way", "final accuracy", "updates/s", "over Flower's", "lines")


def main() -> None:
    parser = parser_of(__doc__, "one turn of ten rounds")
    parser.add_argument("--pfl", metavar="PYTHON", help="interpreter of an environment with pfl-research")
    parser.add_argument("--repeat", type=int, help="turns (default: 5, quick: 1)")
    parser.add_argument("--rounds", type=int, help="rounds of a training, from 2 (default: 30, quick: 10)")
    options = parser.parse_args()
    ways = [way_name for way_name in WAYS if way_name != PFL or options.pfl]
    with tempfile.TemporaryDirectory() as scratch:
        training = Training(Path(scratch), options.rounds or (10 if options.quick else 30), options.pfl)
        measureds = _measured(training, ways, options.repeat or (1 if options.quick else 5), Path(scratch))
    title = f"FedAvg on digits, 64-128-10, {_CLIENTS} clients, {training.rounds} rounds, {usable_cores()} cores"
    table = table_of(HEADINGS, title)
    for row in rows_of(measureds):
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    guarded(main)
