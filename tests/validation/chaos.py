"""Kills and partitions of a cluster during runs: how many change a result, lose a batch, hang or leave anything.

    python -m tests.validation chaos --out DIR [--kills 200] [--seed 0] [--minutes M] [--slowness F]

A cluster of a head and three workers plays the same small run over and over, and in each run several processes are
killed, or hosts cut off: the driver, client processes, raylets of workers, the GCS of the head, a whole head, or the
network of a host (only as root, where each worker is a host of its own network). Every fourth run is played by Flower's
own command, `flwr run`, where the SuperLink, the process of the app or its clients are killed. A blow falls when a
number of batches drawn beforehand is finished, so that blows are spread over the whole length of runs. A run that ends
is resumed, on a new cluster if need be, until it is finished; then it is held against the undisturbed run, played in
one process.

The counts are in DIR/chaos.jsonl, a line a run; the same command continues until there are enough kills.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from fl_audit.errors import InputError
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.runs.process_guard import nothing_outlives
from fl_audit.runs.run_directory import RunDirectory
from tests.validation.chaos_cluster import (
    COMMAND,
    WORKERS,
    ChaosEnvironment,
    Cluster,
    FlowerCommand,
    InjectedFault,
    end,
)
from tests.validation.network_hosts import Host, NoHostsError, other_hosts

BATCHES = 6
_CLIENTS = 4
_SECONDS_FOR_A_RUN = 300.0
AUDIT = f"""
data = {{name = "digits", records = 80, test-records = 40, population-records = 40, clients = {_CLIENTS}}}
model = {{name = "logistic"}}
training = {{rounds = 4, learning-rate = 1.0}}
privacy = {{noise-multiplier = 2.0, adjacency = "replace-record", delta = 0.01}}
audit = {{trials = {2 * BATCHES}, epsilon-star = false}}
run = {{seed = SEED, trials-per-batch = 2, client-time-limit = 60.0}}
"""
_FLOWERS_TURN = 4  # every so many runs are played by Flower's own command


@dataclass
class Outcome:
    """The outcome of one run."""

    number: int
    blows: list[tuple[str, int]] = field(default_factory=list)  # its faults, with the number of batches finished before
    identical: bool = False
    lost: int = 0  # finished batches that were not there any more, or were written again
    hangs: int = 0
    orphans: int = 0
    secrets: int = 0  # files in memory, or of Ray, that hold the seed or the token
    resumes: int = 0
    seconds: float = 0.0


def _finished(directory: Path) -> dict[str, int]:
    """Return the finished batches of a run, with the time at which each was written."""
    batch_times = {}
    for path in (directory / "challenger" / "batches").glob("batch-*"):
        with suppress(OSError):
            batch_times[path.name] = path.stat().st_mtime_ns
    return batch_times


def play(
    number: int, around: ChaosEnvironment, directory: Path, draw: np.random.Generator, slowness: float = 1.0
) -> tuple[Outcome, Path]:
    """Play one run under faults until it is finished, and return its outcome and its directory.

    A run whose head is killed is continued from a copy of its directory. `slowness` is the factor, at least 1, by which
    the machine may be slower than a quiet one before a run counts as a hang.
    """
    outcome = Outcome(number)
    began = time.monotonic()
    run = directory / f"run-{number}"
    count = int(draw.integers(3, BATCHES + 1))
    planned = sorted(draw.choice(BATCHES, size=count, replace=False).tolist())
    fault_kinds = [around.kinds[index] for index in draw.integers(len(around.kinds), size=count)]
    blows = [(batches, kind, float(draw.uniform(0, 0.8))) for batches, kind in zip(planned, fault_kinds, strict=True)]
    finished_batches: dict[str, int] = {}
    while time.monotonic() - began < slowness * _SECONDS_FOR_A_RUN:
        around.stand()
        outcome.resumes += RunDirectory(run).is_begun
        command = around.command(directory / "audit.toml", run)
        with (directory / f"run-{number}.log").open("ab") as log:
            driver = subprocess.Popen(command, env=around.environment, stdout=log, stderr=log, start_new_session=True)
        status = _watched(driver, run, around, blows, outcome, finished_batches, draw, slowness)
        outcome.orphans += around.processes_left_by(driver.pid)
        if around.is_over(status, run):
            break
        if outcome.blows and outcome.blows[-1][0] == InjectedFault.HEAD and run.exists():
            # Its files are copied, as from a machine that is lost to another one.
            lost = run
            run = run.with_name(f"{run.name}-copied")
            shutil.copytree(lost, run)
            shutil.rmtree(lost)
    outcome.seconds = time.monotonic() - began
    return outcome, run


def _watched(
    driver: subprocess.Popen[bytes],
    run: Path,
    around: ChaosEnvironment,
    blows: list[tuple[int, InjectedFault, float]],
    outcome: Outcome,
    finished_batches: dict[str, int],
    draw: np.random.Generator,
    slowness: float,
) -> int:
    """Watch a driver to its end, inject faults when their time has come, and return its status."""
    moved = time.monotonic()
    while driver.poll() is None:
        now = _finished(run)
        if now.keys() - finished_batches.keys():
            moved = time.monotonic()
        outcome.lost += sum(now.get(name) != written for name, written in finished_batches.items())
        finished_batches.update(now)
        if blows and len(finished_batches) >= blows[0][0]:
            _, blow, wait = blows.pop(0)
            time.sleep(wait)
            if around.strike(blow, draw, driver):
                outcome.blows.append((str(blow), len(finished_batches)))
                moved = time.monotonic()
        if time.monotonic() - moved > slowness * around.seconds_of_a_hang:
            outcome.hangs += 1
            end(driver)
        time.sleep(0.05)
    return driver.wait()


def _secrets_found(words: Sequence[bytes], directories: Sequence[Path]) -> int:
    """Return the number of files in some directories that hold one of some secrets."""
    count = 0
    for directory in directories:
        for path in directory.rglob("*") if directory.is_dir() else ():
            with suppress(OSError):
                content = path.read_bytes() if path.is_file() and path.stat().st_size < 2**28 else b""
                count += any(word in content for word in words)
    return count


def _is_identical(first_run: Path, second_run: Path) -> bool:
    """Return whether two runs have the same tables, to the last bit."""
    try:
        for name in ("trials", "rounds"):
            first_table, second_table = (pd.read_parquet(run / f"{name}.parquet") for run in (first_run, second_run))
            pd.testing.assert_frame_equal(first_table, second_table, check_exact=True)
    except (AssertionError, OSError):
        return False
    return True


@contextmanager
def _ends_at_sigterm() -> Iterator[None]:
    """Unwind the block at SIGTERM as at Ctrl-C, so that hosts and directories are removed."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def campaign(out: Path, kills: int, seed: int, minutes: float, slowness: float = 1.0) -> list[dict[str, Any]]:
    """Play runs until there are enough kills, or the time is over, and return the outcomes of all.

    Partitions count as kills. The counts are written to `out`; after so many minutes no further run begins.
    `InputError` is raised if the undisturbed run fails.
    """
    out.mkdir(parents=True, exist_ok=True)
    notes = out / "chaos.jsonl"
    deadline = time.monotonic() + 60 * minutes
    outcomes = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    with _ends_at_sigterm(), TemporaryDirectory(prefix="chaos-") as scratch, ExitStack() as stack, nothing_outlives():
        hosts: Sequence[Host] = ()  # one for every worker, where that can be done
        with suppress(NoHostsError):
            hosts = stack.enter_context(other_hosts(WORKERS))
        directory = Path(scratch)
        secret = int(np.random.default_rng([seed, 1]).integers(2**62, 2**63))
        (directory / "audit.toml").write_text(AUDIT.replace("SEED", str(secret)))
        command = [*COMMAND, str(directory / "audit.toml"), "--out", str(directory / "alone"), "--engine", "local"]
        if subprocess.run(command, capture_output=True).returncode:
            raise InputError("the undisturbed run failed: accepted is an installation whose demo runs")
        cluster = Cluster(directory, hosts)
        flower = FlowerCommand(directory, _CLIENTS)
        words = [str(secret).encode(), secret.to_bytes(8, "little"), cluster.environment["RAY_AUTH_TOKEN"].encode()]
        try:
            while sum(len(record["blows"]) for record in outcomes) < kills and time.monotonic() < deadline:
                number = len(outcomes)
                around = flower if number % _FLOWERS_TURN == _FLOWERS_TURN - 1 else cluster
                outcome, run = play(number, around, directory, np.random.default_rng([seed, 2, number]), slowness)
                outcome.identical = _is_identical(directory / "alone", run)
                outcome.secrets = _secrets_found(
                    words, [Path("/dev/shm"), *directory.glob("ray*"), directory / "flower"]
                )
                if not outcome.identical or outcome.hangs or outcome.lost:
                    (out / f"run-{number}.log").write_bytes((directory / f"run-{number}.log").read_bytes())
                outcomes.append(asdict(outcome))
                with notes.open("a") as file:
                    file.write(json.dumps(outcomes[-1]) + "\n")
                print(json.dumps(outcomes[-1]), flush=True)
        finally:
            cluster.fall()
            flower.fall()
    return outcomes


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the counts are kept")
    parser.add_argument("--kills", type=int, default=200, help="kills and partitions in all (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="of what befalls which run (default: 0)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so many minutes")
    slowness_help = (
        "how many times longer than on a quiet machine a run may take before it counts as a hang (default: 1)"
    )
    parser.add_argument("--slowness", type=float, default=1.0, help=slowness_help)
    chosen = parser.parse_args()
    outcomes = campaign(chosen.out, chosen.kills, chosen.seed, chosen.minutes, chosen.slowness)
    blows = [(kind, batches) for outcome in outcomes for kind, batches in outcome["blows"]]
    table = table_of(("what", "count"), "Kills and partitions", ("what", "count"))
    for row in (
        ("runs", len(outcomes)),
        *sorted(Counter(kind for kind, _ in blows).items()),
        ("kills and partitions", len(blows)),
        ("of these when finished batches existed", sum(batches > 0 for _, batches in blows)),
        ("identical results", f"{sum(outcome['identical'] for outcome in outcomes)} of {len(outcomes)}"),
        *((name, sum(outcome[name] for outcome in outcomes)) for name in ("lost", "hangs", "orphans", "secrets")),
    ):
        table.add_row(*map(str, row))
    Console(markup=False).print(table)
