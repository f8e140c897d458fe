"""Benchmark of a whole Flower app: `fl-audit simulate` on both engines beside `flwr run`, with the same app.

    python -m fl_audit.experiments.benchmarks.app_simulation_speed [--repeat N] [--rounds K]

The app is `experiments/examples/digits`: ten clients train and evaluate in every round, and its server stores when each
round was over. The ways take turns. The time of a round is counted from the end of the first round; the whole is the
time of the command. `flwr run` starts a SuperLink in a directory of its own, which is ended after it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from rich.console import Console

from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.runs.cluster.ray_options import usable_cores
from fl_audit.runs.expected_errors import guarded

_APP = Path(__file__).resolve().parents[1] / "examples" / "digits"
_SIMULATE = (sys.executable, "-m", "fl_audit.cli.main", "--quiet", "simulate")
FLOWER = "flwr run"
WAYS = {
    "fl-audit simulate --engine local": (*_SIMULATE, "APP", "--engine", "local"),
    "fl-audit simulate --engine ray": (*_SIMULATE, "APP", "--engine", "ray"),
    FLOWER: (str(Path(sys.executable).with_name("flwr")), "run", "APP", "--stream"),
}
"""The command of each way; APP stands for the directory of the app."""


@dataclass
class MeasuredApp:
    """Times of one way in all its turns, in seconds."""

    rounds: list[float] = field(default_factory=list)  # each round after the first
    whole: list[float] = field(default_factory=list)  # the command


def _play(command: tuple[str, ...], rounds: int) -> tuple[list[float], float]:
    """Run a command on a copy of the app, and return the times of its rounds and of the whole."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch)
        # A copy, since Flower writes into the project's file.
        app = shutil.copytree(_APP, path / "digits")
        out = path / "rounds.json"
        home = path / "flower"
        words = [str(app) if word == "APP" else word for word in command]
        words += ["--run-config", f'num-server-rounds={rounds} out="{out}"']
        switches = {"FLWR_HOME": str(home), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
        environment = os.environ | switches | {"FLWR_TELEMETRY_ENABLED": "0"}
        began = time.monotonic()
        try:
            done = subprocess.run(words, cwd=path, env=environment, capture_output=True, text=True, timeout=900)
            whole = time.monotonic() - began
        finally:
            _end_processes_of(home)
        if not out.is_file():
            raise SystemExit(f"{' '.join(words)} wrote no rounds:\n{(done.stdout + done.stderr)[-2000:]}")
        times = [load["time"] for load in json.loads(out.read_text())]
    return np.diff(times)[1:].tolist(), whole


def _end_processes_of(home: Path) -> None:
    """End the SuperLink that `flwr run` has started with a directory of ours, and all that it has started."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("FLWR_HOME") == str(home):
                process.send_signal(signal.SIGKILL)


def main() -> None:
    parser = parser_of(__doc__, "one turn of five rounds")
    parser.add_argument("--repeat", type=int, help="turns (default: 3, quick: 1)")
    parser.add_argument("--rounds", type=int, help="rounds of a turn, from 3 (default: 10, quick: 5)")
    options = parser.parse_args()
    apps = {way_name: MeasuredApp() for way_name in WAYS}
    for _ in range(options.repeat or (1 if options.quick else 3)):
        for name, app in apps.items():
            rounds, whole = _play(WAYS[name], options.rounds or (5 if options.quick else 10))
            app.rounds += rounds
            app.whole.append(whole)
            print(f"{name}: a round {median(app.rounds):.3f} s, the whole {whole:.1f} s", file=sys.stderr, flush=True)
    table = table_of(("way", "round s", "flwr run over it", "whole s"), f"The digits app, {usable_cores()} cores")
    base = median(apps[FLOWER].rounds)
    for name, app in apps.items():
        middle = median(app.rounds)
        table.add_row(name, f"{middle:.3f}", f"{base / middle:.1f}", f"{median(app.whole):.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    guarded(main)
