"""Time per trial of whole audits on both engines, compared with a lower bound, the authors' code and the targets.

    python -m fl_audit.experiments.benchmarks.audit_speed [--data-dir DIR] [--only NAME] [--trials N] [--repeat N]

Three settings of Bernau et al. 2021 with 10 clients, 30 rounds, local sensitivity and a replaced record: `adult`
(n = 1000, 104-6-6-2), `mnist` (n = 100, convolutions), and `dense` (n = 1000, 600-128-100, on random records of the
shape of Purchase-100, since time does not depend on their values). Time is measured from the moment when all clients
are ready until the last batch of trials is stored. Accuracy and Epsilon* are evaluated at every release of `adult`, and
only at the last release of the other settings. The engines take turns, so that the load of the machine affects both.
The lower bound ("floor") is the time of the clipped gradients alone: 30 rounds, once for the clients and once for the
insider, at the speed of one stacked pass on all cores, measured just before.
"""

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

from fl_audit.experiments.cli.main import guarded
from fl_audit.experiments.runs.audit_plan import AuditPlan, resolve
from fl_audit.experiments.runs.config import RunConfig, parse_config
from fl_audit.experiments.runs.engines import Engine
from fl_audit.experiments.runs.progress import progress_bar
from fl_audit.experiments.runs.run import run_audit
from fl_audit.experiments.studies.study_tools import parser_of, table_of
from fl_audit.federation.loaded_federation import load_federation

_ROUNDS, _PASSES = 30, 3
_PRIVACY = {"belief": 0.9, "clipping-norm": 3.0, "sensitivity": "local", "accountant": "rdp-classic"}


class AuditSpeedSetting(NamedTuple):
    """One audit whose speed is measured, and its target times."""

    data: Mapping[str, Any]  # settings of the section [data], as far as benchmarks differ in them
    model: str  # name of the model
    delta: float  # delta of the guarantee
    trials: int  # trials of a run
    authors_seconds: float  # seconds a repetition that the published code takes on one thread
    targets: Mapping[Engine, str]  # by engine, what to reach on two cores
    local_actors: int = 1  # client calls at a time of the local engine in its target
    evaluate_every: int = 1  # rounds between evaluated releases


SETTINGS = {
    "adult": AuditSpeedSetting(
        {"name": "adult", "records": 1000},
        "adult-mlp", 0.001, 1000, 30.0, {Engine.LOCAL: "", Engine.RAY: "1.5 of the floor"}, local_actors=2,
    ),
    "mnist": AuditSpeedSetting(
        {"name": "mnist", "records": 100, "test-records": 100, "population-records": 100},
        "mnist-cnn", 0.01, 100, 145.0, {Engine.RAY: "300x"}, evaluate_every=_ROUNDS,
    ),
    "dense": AuditSpeedSetting(
        {"name": "npz", "records": 1000},
        "dense-128", 0.001, 100, 283.0, {Engine.LOCAL: "1200x", Engine.RAY: "700x"},
        local_actors=2, evaluate_every=_ROUNDS,
    ),
}  # fmt: skip


def configuration(name: str, trials: int, engine: Engine, data_dir: Path | None, scratch: Path) -> RunConfig:
    """Return the configuration of a setting; random records are written to `scratch`.

    Parameters
    ----------
    name
        Name of the setting.
    trials
        Number of trials.
    engine
        The engine that trains the clients.
    data_dir
        Directory of the data sets; None for the default place.
    scratch
        Directory to which random records are written.
    """
    setting = SETTINGS[name]
    data = {"clients": 10, **setting.data}
    if data_dir is not None:
        data["data-dir"] = str(data_dir.absolute())
    if data["name"] == "npz":
        data["path"] = str(scratch / "random.npz")
        source = np.random.default_rng(0)
        features = source.integers(2, size=(4000, 600)).astype(np.float32)
        np.savez(data["path"], x=features, y=source.integers(100, size=4000))
    values = {
        "data": data,
        "model": {"name": setting.model},
        "training": {"rounds": _ROUNDS, "learning-rate": 0.005},
        "privacy": _PRIVACY | {"adjacency": "replace-record", "delta": setting.delta},
        "audit": {"trials": trials, "neighbour": 0, "evaluate-every": setting.evaluate_every},
        "run": {"actors": setting.local_actors if engine is Engine.LOCAL else 0},
    }
    return parse_config(values)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--only", choices=SETTINGS, help="one setting")
    parser.add_argument("--trials", type=int, help="trials a run (default: by setting)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each engine (default: 1)")
    options = parser.parse_args()
    columns = ("setting", "engine", "trials", "median", "range", "of the floor", "authors' code", "target")
    table = table_of(columns, f"Milliseconds a trial, {os.cpu_count()} cores")
    for name in [options.only] if options.only else SETTINGS:
        trials = options.trials or SETTINGS[name].trials
        measured: dict[Engine, list[tuple[float, float]]] = {engine: [] for engine in SETTINGS[name].targets}
        for _ in range(options.repeat):
            for engine in measured:
                measured[engine].append(_measured(name, trials, engine, options.data_dir))
        for engine, values in measured.items():
            setting, taken = SETTINGS[name], [one for one, _ in values]
            actors = f", {setting.local_actors} actor(s)" if engine is Engine.LOCAL else ""
            spread, floors = f"{min(taken):.1f} - {max(taken):.1f}", median(one / floor for one, floor in values)
            times = f"{setting.authors_seconds * 1000 / median(taken):.0f}x the time"
            cells = (f"{median(taken):.1f}", spread, f"{floors:.2f}", times, setting.targets[engine])
            table.add_row(name, f"{engine}{actors}", str(trials), *cells)
    Console(width=120).print(table)


def _measured(name: str, trials: int, engine: Engine, data_dir: Path | None) -> tuple[float, float]:
    """Run the audit; return the measured milliseconds per trial, and the lower bound in milliseconds per trial."""
    with tempfile.TemporaryDirectory() as directory:
        plan = resolve(configuration(name, trials, engine, data_dir, Path(directory)))
        floor = _floor(plan)
        contents = run_audit(plan, Path(directory) / "run", engine, progress=progress_bar)
    return float(1000 * contents.summary["timing"]["training_seconds"] / trials), floor


def _floor(plan: AuditPlan) -> float:
    """Return the lower bound: milliseconds per trial for the clipped gradients alone, by timed passes on all cores."""
    federation, trials = load_federation(plan.public), plan.config.run.trials_per_batch or 1
    models, common, taken = torch.zeros(trials, federation.model.layout.size), federation.common, list[float]()
    models += 0.05 * torch.randn(federation.model.layout.size, generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    for _ in range(1 + _PASSES):  # the first one warms up
        begun = time.perf_counter()
        federation.model.clipped_sum(models, common.features, common.labels, 3.0)
        taken.append(time.perf_counter() - begun)
    torch.set_num_threads(threads)
    return 2 * _ROUNDS * 1000 * median(taken[1:]) / trials


if __name__ == "__main__":
    guarded(main)
