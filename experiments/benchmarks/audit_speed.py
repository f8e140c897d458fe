"""Time of a world of whole audits on both engines, beside their targets.

    python -m experiments.benchmarks.audit_speed [--data-dir DIR] [--only NAME] [--worlds N] [--repeat N]

Three settings of Bernau et al. 2021 with 10 clients, 30 rounds, local sensitivity and a replaced record: `adult`
(n = 1000, 104-6-6-2), `mnist` (n = 100, convolutions), and `dense` (n = 1000, 600-128-100, on random records of the
shape of Purchase-100, since time does not depend on their values). Time counts from the moment all clients stand ready
to the last stored batch. Accuracy and Epsilon* are evaluated at every release of `adult`, and of the others at the last
one. The engines take turns, so that both see the same machine.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.cli.main import guarded
from experiments.runs.config import RunConfig, parse_config
from experiments.runs.engines import Engine
from experiments.runs.plan import resolve
from experiments.runs.progress import progress_bar
from experiments.runs.run import run_audit

_ROUNDS = 30
_PRIVACY = {"belief": 0.9, "clipping-norm": 3.0, "sensitivity": "local", "adjacency": "replace-record"} | {
    "accountant": "rdp-classic"
}


@dataclass(frozen=True)
class AuditSpeedSetting:
    """One audit and its targets."""

    # `data`, `model`, `delta`: the configuration, as far as settings differ.
    data: Mapping[str, Any]
    model: str
    delta: float
    worlds: int  # worlds of a run
    authors_seconds: float  # seconds a repetition that the published code takes on one thread
    targets: Mapping[Engine, float]  # milliseconds a world on two cores, by engine
    local_actors: int = 1  # client calls at a time of the local engine in its target
    evaluate_every: int = 1  # rounds between evaluated releases


SETTINGS = {
    "adult": AuditSpeedSetting(
        {"name": "adult", "records": 1000}, "adult-mlp", 0.001, 1000, 30.0, {Engine.LOCAL: 22.0, Engine.RAY: 20.0}
    ),
    "mnist": AuditSpeedSetting(
        {"name": "mnist", "records": 100, "test-records": 100, "population-records": 100},
        "mnist-cnn", 0.01, 100, 145.0, {Engine.RAY: 500.0}, evaluate_every=_ROUNDS,
    ),
    "dense": AuditSpeedSetting(
        {"name": "npz", "records": 1000},
        "dense-128", 0.001, 100, 283.0, {Engine.LOCAL: 250.0, Engine.RAY: 600.0},
        local_actors=2, evaluate_every=_ROUNDS,
    ),
}  # fmt: skip


def configuration(name: str, worlds: int, engine: Engine, data_dir: Path | None, scratch: Path) -> RunConfig:
    """Return the configuration of a setting; random records are written to `scratch`.

    Parameters
    ----------
    name
        Which setting.
    worlds
        In how many worlds.
    engine
        On which engine.
    data_dir
        Where data sets lie; None is the default place.
    scratch
        Where random records may be written.
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
    return parse_config(
        {
            "data": data,
            "model": {"name": setting.model},
            "training": {"rounds": _ROUNDS, "learning-rate": 0.005},
            "privacy": _PRIVACY | {"delta": setting.delta},
            "audit": {"worlds": worlds, "neighbour": 0, "evaluate-every": setting.evaluate_every},
            "run": {"actors": setting.local_actors if engine is Engine.LOCAL else 0},
        }
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--only", choices=SETTINGS, help="one setting")
    parser.add_argument("--worlds", type=int, help="worlds a run (default: by setting)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each engine (default: 1)")
    options = parser.parse_args()
    table = Table(title=f"Milliseconds a world, {os.cpu_count()} cores")
    for column in ("setting", "engine", "worlds", "median", "range", "target", "share of target", "authors' code"):
        table.add_column(column, justify="right")
    for name in [options.only] if options.only else SETTINGS:
        worlds = options.worlds or SETTINGS[name].worlds
        measured: dict[Engine, list[float]] = {engine: [] for engine in SETTINGS[name].targets}
        for _ in range(options.repeat):
            for engine in measured:
                measured[engine].append(_milliseconds(name, worlds, engine, options.data_dir))
        for engine, values in measured.items():
            table.add_row(*_row(name, worlds, engine, values))
    Console(width=120).print(table)


def _row(name: str, worlds: int, engine: Engine, values: list[float]) -> list[str]:
    setting = SETTINGS[name]
    middle, target = median(values), setting.targets[engine]
    actors = f", {setting.local_actors} actor(s)" if engine is Engine.LOCAL else ""
    return [
        name,
        f"{engine}{actors}",
        str(worlds),
        f"{middle:.1f}",
        f"{min(values):.1f} - {max(values):.1f}",
        f"{target:g}",
        f"{middle / target:.2f}",
        f"{setting.authors_seconds * 1000 / middle:.0f}x the time",
    ]


def _milliseconds(name: str, worlds: int, engine: Engine, data_dir: Path | None) -> float:
    with tempfile.TemporaryDirectory() as directory:
        plan = resolve(configuration(name, worlds, engine, data_dir, Path(directory)))
        contents = run_audit(plan, Path(directory) / "run", engine, progress=progress_bar)
    return float(1000 * contents.summary["timing"]["training_seconds"] / worlds)


if __name__ == "__main__":
    guarded(main)
