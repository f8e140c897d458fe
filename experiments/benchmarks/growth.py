"""Benchmark of growth: time and memory over the number of clients, trials, parameters, rounds and cores.

    python -m fl_audit.experiments.benchmarks.growth [--only AXIS ...] [--quick] [--csv FILE] [--figure FILE] [--draw]

The results are a table and a figure. Each point is one run of DP-FedAvg on the local engine in a new process, whose
start-up is included. One size grows while the others stay fixed: up to 100,000 clients with one record each, all of
whom take part in a single round; up to 10,000 trials of ten rounds with ten clients, in batches of 250 trials; up to 10
million parameters of a dense network; up to 1,000 rounds. The model is a logistic regression on ten features, except
where parameters grow. Each point has wall-clock seconds, CPU seconds (which other programs on the machine affect less)
and peak resident memory.

For the axis of cores, 500 of 1,000 clients train 784-128-10 in a round; one core and two are measured. Two larger
machines are extrapolated: 64 cores, and 8 nodes of 64 cores with a 10 Gbit/s link each. The extrapolated time of a
round is the clients' CPU seconds divided by the number of cores, plus the driver's CPU seconds on Ray, plus the
transfer time of models and contributions over the driver's link.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import psutil
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable
from rich.console import Console

from fl_audit.atomic_files import atomic_file
from fl_audit.clients.app import build_app
from fl_audit.experiments.benchmarks.growth_figure import growth_figure
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import at_each_round
from fl_audit.report.figure_style import to_png
from fl_audit.runs.config import parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import ClientAppAndStrategy, run_audit

Values = dict[str, dict[str, Any]]

_OTHERS = 200  # records beside those of the clients, for tests and as a population
_CSV = Path("docs/reference/growth.csv")
_FIGURE = Path("docs/pictures/growth.png")
_COLUMNS = ("axis", "size", "seconds", "processor_seconds", "mib", "kind")
_MEASURED = "measured"
_ON_PAPER = "on paper"

_COHORT = 500
_CORE_ROUNDS = 4
_LINK = 1.25e9
"""Clients and rounds of the runs on one and two cores, and bytes a second over the driver's link on paper."""
_PAPER = (("64", 64, 1), ("512", 64, 8))
"""Cores in all, as the figure names them; cores of a node, and nodes."""


class ScalingAxis(NamedTuple):
    """A size that grows in the benchmark: its values, and a function that returns the configuration for each value."""

    sizes: tuple[int, ...]
    values: Callable[[int], Values]  # the configuration of a size, without the path of its data
    features: int = 10  # numbers of a record


def _values(clients: int, records: int, trials: int, rounds: int, model: str, **run: Any) -> Values:
    """Return the configuration of a DP-FedAvg run, without the path of its data.

    `records` counts the records of all clients together, and `run` holds settings of section [run].
    """
    data = {"name": "npz", "records": records, "clients": clients, "test-records": _OTHERS // 2}
    training = {"strategy": "dp-fedavg", "rounds": rounds, "local-batch": 10, "local-learning-rate": 0.1}
    privacy = {"noise-multiplier": 1.0, "clipping-norm": 1.0, "adjacency": "add-remove-client", "delta": 1e-7}
    audit = {"trials": trials, "insider": False, "epsilon-star": False, "membership": False, "evaluate-every": rounds}
    return {
        "data": data | {"population-records": _OTHERS // 2},
        "model": {"name": model},
        "training": training,
        "privacy": privacy,
        "audit": audit,
        "run": {"seed": 0} | run,
    }


_DENSE_FEATURES = 100
_CLASSES = 10


def _dense(parameters: int) -> str:
    """Return the model name of a dense network with about this number of parameters, a power of ten."""
    return f"fl_audit.experiments.benchmarks.user_networks:dense_{len(str(parameters)) - 1}"


AXES: dict[str, ScalingAxis] = {
    "clients": ScalingAxis((10, 100, 1_000, 10_000, 100_000), lambda size: _values(size, size, 1, 1, "logistic")),
    "trials": ScalingAxis(
        (1, 10, 100, 1_000, 10_000),
        lambda size: _values(10, 100, size, 10, "logistic", **{"trials-per-batch": min(size, 250)}),
    ),
    "parameters": ScalingAxis(
        tuple(10**power for power in range(3, 8)), lambda size: _values(4, 80, 1, 3, _dense(size)), _DENSE_FEATURES
    ),
    "rounds": ScalingAxis((1, 10, 100, 1_000), lambda size: _values(10, 100, 1, size, "logistic")),
}


def _on_cores() -> Values:
    values = _values(2 * _COHORT, 100 * _COHORT, 1, _CORE_ROUNDS, "dense-128")
    return values | {"training": values["training"] | {"cohort": _COHORT}}


class RunCosts(NamedTuple):
    """Time and memory of one run."""

    seconds: float  # wall-clock seconds from the start of its process
    processor: float  # CPU seconds of all its threads
    mib: float  # peak resident memory in MiB
    # Means per round, without the first round: wall-clock seconds, CPU seconds of this process and, of
    # these, those in the calls of clients.
    round_seconds: float
    round_processor: float
    round_clients: float


def _played(values: Values, features: int, engine: Engine = Engine.LOCAL, cores: int = 0) -> RunCosts:
    """Measure a run of configuration `values` on random records with `features` features; 0 `cores` are all cores."""
    with tempfile.TemporaryDirectory() as scratch:
        draw = np.random.default_rng(0)
        records = values["data"]["records"] + _OTHERS + 2
        samples = draw.standard_normal((records, features), dtype=np.float32)
        classes = _CLASSES if features > _CLASSES else 2
        np.savez(Path(scratch) / "data.npz", x=samples, y=np.arange(records) % classes)
        settings = values | {"data": values["data"] | {"path": str(Path(scratch) / "data.npz")}}
        (Path(scratch) / "run.json").write_text(json.dumps(settings))
        name = "fl_audit.experiments.benchmarks.growth"
        command = [sys.executable, "-m", name, "--child", scratch, "--engine", engine, "--cores", str(cores)]
        ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"a run ended with status {ran.returncode}: {ran.stderr[-300:]}")
    return RunCosts(*json.loads(ran.stdout.splitlines()[-1]))


def _run_in_child(scratch: Path, engine: Engine, cores: int) -> None:
    """Run the configuration in the directory `scratch`, and print its time and memory as JSON.

    `cores` is the number of processor cores to use; 0 stands for all.
    """
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    began = psutil.Process().create_time()
    busy = list[float]()
    over = list[tuple[float, float, float]]()

    def timed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        before = time.thread_time()
        try:
            return call_next(message, context)
        finally:
            busy.append(time.thread_time() - before)

    noted = at_each_round(lambda: over.append((time.monotonic(), time.process_time(), sum(busy))))
    plan = plan_run(parse_config(json.loads((scratch / "run.json").read_text())))
    parties = ClientAppAndStrategy(build_app([timed])) if engine is Engine.LOCAL else ClientAppAndStrategy()
    run_audit(plan, scratch / "run", engine, progress=noted, parties=parties, with_report=False)
    used = resource.getrusage(resource.RUSAGE_SELF)
    steps = max(1, len(over) - 1)
    rounds = [(last - first) / steps for first, last in zip(over[0], over[-1], strict=True)]
    costs = (time.time() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
    print(json.dumps([*costs, *rounds]))


Row = tuple[str, str, float, float, float, str]


def _measured(axis: str, quick: bool) -> Iterator[Row]:
    """Run an audit for each size of an axis, and yield a table row of its time and memory.

    `quick` runs the first three sizes only.
    """
    growing = AXES[axis]
    for size in growing.sizes[: 3 if quick else None]:
        costs = _played(growing.values(size), growing.features)
        yield axis, str(size), costs.seconds, costs.processor, costs.mib, _MEASURED


def _cores() -> Iterator[Row]:
    """Yield the rows over the number of cores: measured on one and two, extrapolated for larger machines."""
    values = _on_cores()
    features = 784
    for cores in (1, 2):
        costs = min((_played(values, features, cores=cores) for _ in range(2)), key=lambda costs: costs.round_seconds)
        yield "cores", str(cores), costs.round_seconds, costs.round_processor, costs.mib, _MEASURED
    on_ray = _played(values, features, Engine.RAY)
    size = 4.0 * (features * 128 + 128 + 128 * _CLASSES + _CLASSES)
    for name, cores, nodes in _PAPER:
        away = _COHORT * (nodes - 1) / nodes
        sent = size * (away + nodes - 1) / _LINK
        seconds = on_ray.round_processor + costs.round_clients / min(_COHORT, cores * nodes) + sent
        busy = on_ray.round_processor + costs.round_clients
        yield "cores", name, seconds, busy, on_ray.mib, _ON_PAPER


def _written(rows: list[Row], path: Path) -> pd.DataFrame:
    """Write rows to a CSV file, and return the whole table.

    An axis is a quantity that the benchmark varies. New rows replace all rows of the same axis in the file.
    """
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    if path.exists():
        before = pd.read_csv(path, dtype={"size": str})
        table = pd.concat([before[~before["axis"].isin(table["axis"])], table], ignore_index=True)
    order = {axis: index for index, axis in enumerate((*AXES, "cores"))}
    table = table.sort_values("axis", key=lambda column: column.map(order), kind="stable")
    rounded = table.round({"seconds": 3, "processor_seconds": 3, "mib": 1})
    with atomic_file(path) as file:
        rounded.to_csv(file, index=False)
    return rounded


def main() -> None:
    parser = parser_of(__doc__, "the first three sizes of each axis")
    parser.add_argument("--only", nargs="+", choices=(*AXES, "cores"), metavar="AXIS", help="some axes")
    parser.add_argument("--csv", type=Path, default=_CSV, help=f"the table (default: {_CSV})")
    parser.add_argument("--figure", type=Path, default=_FIGURE, help=f"the figure (default: {_FIGURE})")
    parser.add_argument("--draw", action="store_true", help="measure nothing, and draw what the table holds")
    parser.add_argument("--child", type=Path, help=SUPPRESS)
    parser.add_argument("--engine", type=Engine, default=Engine.LOCAL, help=SUPPRESS)
    parser.add_argument("--cores", type=int, default=0, help=SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _run_in_child(options.child, options.engine, options.cores)
        return
    table = pd.read_csv(options.csv, dtype={"size": str}) if options.draw else pd.DataFrame()
    for axis in () if options.draw else options.only or (*AXES, "cores"):
        rows = list[Row]()
        for row in _cores() if axis == "cores" else _measured(axis, options.quick):
            rows.append(row)
            print(*row, file=sys.stderr, flush=True)
        table = _written(rows, options.csv)
    Console(width=120).print(table_of(_COLUMNS, words=("axis", "kind"), rows=table.astype(str).to_numpy().tolist()))
    with atomic_file(options.figure) as file:
        file.write_bytes(to_png(growth_figure(table)))


if __name__ == "__main__":
    guarded(main)
