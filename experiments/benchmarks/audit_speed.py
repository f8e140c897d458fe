"""Milliseconds a world of the Adult audit on both engines, beside their targets.

    python -m experiments.benchmarks.audit_speed [--data-dir DIR] [--worlds N] [--repeat N]

The setting is `experiments/configs/adult.toml` (n = 1000, 104-6-6-2, 30 rounds, 10 clients, replace-record, local
sensitivity). Time counts from the moment all clients stand ready to the last stored batch, with Epsilon* and accuracy
of every release. The engines take turns, so that both see the same machine.
"""

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from experiments.cli import guarded
from experiments.engines import Engine
from experiments.law_study import plan_of
from experiments.progress import progress_bar
from experiments.run import run_audit

TARGETS = {Engine.LOCAL: 22.0, Engine.RAY: 20.0}
"""Milliseconds a world on two cores: one thread for the local engine, two clients at a time on Ray."""
AUTHORS_SECONDS = 30.0
"""Seconds a repetition that the published code of Bernau et al. 2021 takes on one thread."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--worlds", type=int, default=1000, help="worlds a run (default: 1000)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each engine (default: 1)")
    options = parser.parse_args()
    measured: dict[Engine, list[float]] = {engine: [] for engine in TARGETS}
    for _ in range(options.repeat):
        for engine in TARGETS:
            measured[engine].append(_milliseconds(engine, options.data_dir, options.worlds))
    table = Table(title=f"Adult audit, {options.worlds} worlds, {os.cpu_count()} cores")
    for column in ("engine", "ms a world (median)", "range", "target", "share of the target", "authors' code, ratio"):
        table.add_column(column, justify="right")
    for engine, values in measured.items():
        middle, target = median(values), TARGETS[engine]
        table.add_row(
            str(engine),
            f"{middle:.1f}",
            f"{min(values):.1f} - {max(values):.1f}",
            f"{target:g}",
            f"{middle / target:.2f}",
            f"{AUTHORS_SECONDS * 1000 / middle:.0f}x",
        )
    Console(width=120).print(table)


def _milliseconds(engine: Engine, data_dir: Path | None, worlds: int) -> float:
    plan = plan_of("adult", data_dir, [f"audit.worlds={worlds}"])
    with tempfile.TemporaryDirectory() as directory:
        contents = run_audit(plan, Path(directory) / "run", engine, progress=progress_bar)
    return float(1000 * contents.summary["timing"]["training_seconds"] / worlds)


if __name__ == "__main__":
    guarded(main)
