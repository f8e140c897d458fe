"""Benchmark of whole audits: time per trial on the engines local and Ray, next to a lower bound and to targets.

    python -m fl_audit.experiments.benchmarks.audit_speed [--data-dir DIR] [--only NAME] [--trials N] [--repeat N]
        [--devices cpu cuda] [--engines local ray] [--random-records] [--all-cores]

Three settings follow Bernau et al. 2021, and the time of these authors' own code is shown too. The settings have 10
clients, 30 rounds, noise scaled by the local sensitivity and a replaced record: `adult` (n = 1000 records, network
104-6-6-2), `mnist` (n = 100, convolutions) and `dense` (n = 1000, network 600-128-100). `dense` has random records of
the shape of Purchase-100, since time does not depend on their values; with `--random-records` all settings have such
records. Accuracy and Epsilon* (a privacy metric) are evaluated after every round of `adult`, and after the last round
of the other settings.

The time per trial is measured from the moment when all clients are ready until the last batch of trials is stored.
Engines and devices take turns, so that the load of the machine affects all of them. The lower bound ("floor") is the
time that the clipped gradients alone would take, in 30 rounds, once for the clients and once for the insider. It is
computed from the time of one stacked pass on all cores or on the graphics card, which is measured just before. The time
of the first round is counted from the start of the run, and includes everything that happens once. The memory is the
largest that torch held on the graphics card in this process; with Ray it does not include the client processes.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

from fl_audit.device import Device
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.experiments.studies.study_runs import at_each_round
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import run_audit

_ROUNDS = 30
_PASSES = 3
_WARM_UP = 3  # on a graphics card a pass of one shape is a graph from the third one on
_PRIVACY = {"belief": 0.9, "clipping-norm": 3.0, "sensitivity": "local", "accountant": "rdp-classic"}


class AuditSpeedSetting(NamedTuple):
    """An audit whose speed is measured, with its target times."""

    data: Mapping[str, Any]  # settings of the section [data] in which audits differ
    model: str  # name of the model
    shape: tuple[int, ...]  # shape of the features of a record
    classes: int  # number of classes
    delta: float  # delta of the guarantee
    trials: int  # trials of a run
    authors_seconds: float  # seconds per trial of the authors' code on one thread
    targets: Mapping[Engine, str]  # target time on two cores, by engine
    local_actors: int = 1  # number of client calls that the local engine makes at a time
    evaluate_every: int = 1  # rounds between evaluated releases


SETTINGS = {
    "adult": AuditSpeedSetting(
        {"name": "adult", "records": 1000},
        "adult-mlp",
        (104,),
        2,
        0.001,
        1000,
        30.0,
        {Engine.LOCAL: "", Engine.RAY: "1.5 of the floor"},
        local_actors=2,
    ),
    "mnist": AuditSpeedSetting(
        {"name": "mnist", "records": 100, "test-records": 100, "population-records": 100},
        "mnist-cnn",
        (1, 28, 28),
        10,
        0.01,
        100,
        145.0,
        {Engine.RAY: "300x"},
        evaluate_every=_ROUNDS,
    ),
    "dense": AuditSpeedSetting(
        {"name": "npz", "records": 1000},
        "dense-128",
        (600,),
        100,
        0.001,
        100,
        283.0,
        {Engine.LOCAL: "1200x", Engine.RAY: "700x"},
        local_actors=2,
        evaluate_every=_ROUNDS,
    ),
}


class MeasuredAudit(NamedTuple):
    """Times and memory of one audit."""

    trial: float  # milliseconds of training for each trial
    floor: float  # the lower bound, in milliseconds a trial
    first: float  # seconds from the start until the first round was over
    memory: float  # peak memory that torch held on the graphics card in this process, in MiB; 0 on the CPU


def configuration(
    name: str,
    trials: int,
    engine: Engine,
    data_dir: Path | None,
    scratch: Path,
    *,
    device: Device = Device.CPU,
    has_random_records: bool = False,
    uses_all_cores: bool = False,
) -> RunConfig:
    """Return the configuration of the audit for one of the benchmark's settings.

    `uses_all_cores`: Otherwise it makes the fixed number of the setting.
    """
    setting = SETTINGS[name]
    is_threaded = engine is Engine.LOCAL and device is Device.CPU
    data = {"clients": 10, **setting.data}
    if data_dir is not None:
        data["data-dir"] = str(data_dir.absolute())
    if data["name"] == "npz" or has_random_records:
        data |= {"name": "npz", "path": str(scratch / "random.npz")}
        source = np.random.default_rng(0)
        features = source.integers(2, size=(4000, *setting.shape)).astype(np.float32)
        np.savez(data["path"], x=features, y=source.integers(setting.classes, size=4000))
    values = {
        "data": data,
        "model": {"name": setting.model},
        "training": {"rounds": _ROUNDS, "learning-rate": 0.005},
        "privacy": _PRIVACY | {"adjacency": "replace-record", "delta": setting.delta},
        "audit": {"trials": trials, "neighbour": 0, "evaluate-every": setting.evaluate_every},
        "run": {"actors": setting.local_actors if is_threaded and not uses_all_cores else 0, "device": str(device)},
    }
    return parse_config(values)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--only", choices=SETTINGS, help="one setting")
    parser.add_argument("--trials", type=int, help="trials a run (default: by setting)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each engine and device (default: 1)")
    parser.add_argument("--devices", choices=list(Device), type=Device, nargs="+", default=[Device.CPU])
    parser.add_argument("--random-records", action="store_true", help="random records in place of the data sets")
    parser.add_argument("--all-cores", action="store_true", help="the local engine on the CPU uses all cores")
    parser.add_argument("--engines", choices=list(Engine), type=Engine, nargs="+", help="default: those with a target")
    options = parser.parse_args()
    columns = (
        "setting",
        "engine",
        "device",
        "trials",
        "median",
        "range",
        "of the floor",
        "authors' code",
        "target",
        "first round s",
        "card MiB",
    )
    table = table_of(columns, f"Milliseconds a trial, {os.cpu_count()} cores")
    for name in [options.only] if options.only else SETTINGS:
        trials = options.trials or SETTINGS[name].trials
        engines = options.engines or list(SETTINGS[name].targets)
        measured: dict[tuple[Engine, Device], list[MeasuredAudit]]
        measured = {(engine, device): [] for engine in engines for device in options.devices}
        for _ in range(options.repeat):
            for (engine, device), measurement in measured.items():
                configured = partial(
                    configuration,
                    name,
                    trials,
                    engine,
                    options.data_dir,
                    device=device,
                    has_random_records=options.random_records,
                    uses_all_cores=options.all_cores,
                )
                measurement.append(_measured(configured, engine))
        for (engine, device), measurement in measured.items():
            actors = "" if options.all_cores or device is Device.CUDA else f", {SETTINGS[name].local_actors} actor(s)"
            labels = f"{engine}{actors if engine is Engine.LOCAL else ''}", str(device), str(trials)
            table.add_row(name, *labels, *_cells(SETTINGS[name], engine, device, measurement))
    Console(width=160).print(table)


def _cells(
    setting: AuditSpeedSetting, engine: Engine, device: Device, measured_audits: list[MeasuredAudit]
) -> tuple[str, ...]:
    """Return the cells of an audit's table row, from repeated measurements of this audit."""
    trials = [measured_audit.trial for measured_audit in measured_audits]
    spread = f"{min(trials):.1f} - {max(trials):.1f}"
    floors = median(measured_audit.trial / measured_audit.floor for measured_audit in measured_audits)
    times = f"{setting.authors_seconds * 1000 / median(trials):.0f}x the time"
    first = median(measured_audit.first for measured_audit in measured_audits)
    memory = max(measured_audit.memory for measured_audit in measured_audits)
    target = setting.targets.get(engine, "") if device is Device.CPU else "2 of the floor"
    return f"{median(trials):.1f}", spread, f"{floors:.2f}", times, target, f"{first:.1f}", f"{memory:.0f}"


def _measured(configured: Callable[[Path], RunConfig], engine: Engine) -> MeasuredAudit:
    """Run an audit in a scratch directory, and return its time and memory.

    `configured` is called with the scratch directory and returns the configuration of the audit.
    """
    over: list[float] = []
    noted = at_each_round(lambda: over.append(time.perf_counter()))
    with tempfile.TemporaryDirectory() as directory:
        plan = plan_run(configured(Path(directory)))
        on_card = plan.federation.device is Device.CUDA
        floor = _floor(plan)
        if on_card:
            torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        contents = run_audit(plan, Path(directory) / "run", engine, progress=noted)
    memory = torch.cuda.max_memory_allocated() / 2**20 if on_card else 0.0
    seconds = float(contents.summary["timing"]["training_seconds"])
    trials = plan.config.audit.trials
    return MeasuredAudit(1000 * seconds / trials, floor, over[0] - begun, memory)


def _floor(plan: RunPlan) -> float:
    """Return the time that the clipped gradients of an audit take without anything else, in milliseconds per trial.

    It is the shortest time of several passes, because other programs can make a pass twenty times as long.
    """
    federation = load_federation(plan.federation)
    trials = plan.config.run.trials_per_batch or 1
    size = federation.model.layout.size
    common = federation.common
    seconds = list[float]()
    models = 0.05 * torch.randn(size, generator=torch.Generator().manual_seed(0)).expand(trials, size)
    models = models.contiguous().to(plan.federation.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    for _ in range(_WARM_UP + _PASSES):
        begun = time.perf_counter()
        federation.model.clipped_sum(models, common.features, common.labels, 3.0)
        if models.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    torch.set_num_threads(threads)
    return 2 * _ROUNDS * 1000 * min(seconds[_WARM_UP:]) / trials


if __name__ == "__main__":
    guarded(main)
