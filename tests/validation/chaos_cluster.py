"""Environments of runs during which processes are killed: a cluster, whose hosts are also cut off, and `flwr run`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Protocol, assert_never

import numpy as np
import psutil
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_PATIENCE

from fl_audit.runs.cluster.embedded_ray import new_token
from fl_audit.runs.run_directory import RunDirectory
from tests.validation.network_hosts import Host

WORKERS = 3
_SECONDS_TO_VANISH = 40.0
"""Seconds after which a host that is cut off gives up its head, after `_NOTICING`, and learns that the run is over."""
_NOTICING = {
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 5,
    "grpc_client_keepalive_time_ms": 1000,
    "grpc_client_keepalive_timeout_ms": 5000,
    "gcs_rpc_server_reconnect_timeout_s": 20,
}
"""Ray's intervals for noticing a lost machine: by default it takes about a minute to give up a machine that only falls
silent, and that machine takes three minutes to give up its head. Variables of the environment reach every process;
`--system-config` of the head does not change how long workers wait.
"""
_ROOT = Path(__file__).resolve().parents[2]
_SECONDS_TO_END = 180.0
"""Seconds for which a run may go on by itself before its process counts as left over."""
_BIN = Path(sys.executable).parent
COMMAND = (sys.executable, "-P", "-c", "from fl_audit.cli.main import main; main()", "run")
_RAY = (sys.executable, "-P", "-c", "from ray.scripts.scripts import main; main()")


class InjectedFault(StrEnum):
    """A fault that is injected into a run."""

    DRIVER = "driver killed"
    ACTOR = "client process killed"
    RAYLET = "raylet of a worker killed"
    GCS = "GCS killed"
    HEAD = "head killed"
    PARTITION = "host cut off"
    SUPERLINK = "SuperLink killed"


class ChaosEnvironment(Protocol):
    """The environment of runs, and the faults that it can inject."""

    kinds: Sequence[InjectedFault]  # its possible faults
    environment: dict[str, str]  # of the commands that play runs
    # So long after its start, a batch or a blow a run must have gone on, or have ended: a batch more, or a status.
    seconds_of_a_hang: float = 60.0

    def stand(self) -> None:
        """Start processes that have died, and reconnect hosts that were cut off."""

    def command(self, config: Path, run: Path) -> list[str]:
        """Return the command that plays a run, or the rest of it."""

    def strike(self, blow: InjectedFault, draw: np.random.Generator, driver: subprocess.Popen[bytes]) -> bool:
        """Inject a fault, and return whether it had a victim.

        `driver` is the process that plays the run, or waits while another process does.
        """

    def processes_left_by(self, driver: int) -> int:
        """Return the number of processes left by a finished run, after a while."""

    def is_over(self, status: int, run: Path) -> bool:
        """Return whether a run is finished."""

    def fall(self) -> None:
        """End everything."""


def _kill_one(processes: Sequence[psutil.Process], draw: np.random.Generator) -> bool:
    """Kill one of some processes, and return whether there was any."""
    if processes:
        _kill(processes[int(draw.integers(len(processes)))])
    return bool(processes)


class Cluster(ChaosEnvironment):
    """A head and workers, each a `ray start` of its own; dead ones are started again."""

    def __init__(self, directory: Path, hosts: Sequence[Host]) -> None:
        self._place, self._hosts = directory, list(hosts)
        self.environment = os.environ | new_token() | {f"RAY_{name}": str(value) for name, value in _NOTICING.items()}
        self.head: subprocess.Popen[bytes] | None = None
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self.kinds = [
            fault
            for fault in InjectedFault
            if fault is not InjectedFault.SUPERLINK and (hosts or fault is not InjectedFault.PARTITION)
        ]

    @property
    def address(self) -> str:
        """Address of the head."""
        return f"{self._hosts[0].gateway if self._hosts else '127.0.0.1'}:{self._port}"

    def command(self, config: Path, run: Path) -> list[str]:
        resume = ["--resume"] if RunDirectory(run).is_begun else []
        return [*COMMAND, str(config), "--out", str(run), "--ray-address", self.address, *resume]

    def is_over(self, status: int, run: Path) -> bool:
        return status == 0

    def stand(self) -> None:
        """Start what is missing: everything, if the head is missing. Hosts that were cut off are connected again."""
        if self.head is None or self._is_dead(self.head) or not self._gcs():
            self.fall()
            self._starts += 1
            self._port = 20000 + os.getpid() % 5000 + 7 * self._starts
            self.head = self._start(
                "--head",
                f"--port={self._port}",
                "--num-cpus=1",
                "--include-dashboard=false",
                f"--temp-dir={self._place}/ray{self._starts}",
                f"--node-ip-address={self.address.partition(':')[0]}",
            )
            _until(lambda: bool(self._gcs()), 30.0)
            time.sleep(2.0)
        for number in range(WORKERS):
            is_cut_off = bool(self._hosts) and self._hosts[number].is_cut_off
            if number not in self.workers or is_cut_off or self._is_dead(self.workers[number]):
                self._start_worker(number)

    def _start_worker(self, number: int) -> None:
        host = self._hosts[number] if self._hosts else None
        if number in self.workers:
            end(self.workers[number])
        if host is not None:
            host.join()
        address_options = () if host is None else (f"--node-ip-address={host.address}",)
        arguments = ("--num-cpus=1", f"--address={self.address}", *address_options)
        self.workers[number] = self._start(*arguments, before=() if host is None else host.command())

    def _start(self, *arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        command = [*before, *_RAY, "start", "--block", "--disable-usage-stats", *arguments]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, env=self.environment, stdout=quiet, stderr=quiet, start_new_session=True)

    def fall(self) -> None:
        for process in (*self.workers.values(), *([self.head] if self.head else [])):
            end(process)
        self.workers = {}
        self.head = None

    def strike(self, blow: InjectedFault, draw: np.random.Generator, driver: subprocess.Popen[bytes]) -> bool:
        match blow:
            case InjectedFault.DRIVER:
                driver.kill()
                return True
            case InjectedFault.ACTOR:
                processes = self._clients()
            case InjectedFault.RAYLET:
                processes = [process for node in self.workers.values() for process in _below(node, "raylet/raylet")]
            case InjectedFault.GCS:
                processes = self._gcs()
            case InjectedFault.HEAD:
                processes = [psutil.Process(self.head.pid)] if self.head else []
                for process in _below(self.head) if self.head else []:
                    _kill(process)
            case InjectedFault.SUPERLINK:
                return False
            case InjectedFault.PARTITION:
                if self._hosts:
                    self._hosts[int(draw.integers(len(self._hosts)))].cut_off()
                return bool(self._hosts)
            case _:
                assert_never(blow)
        return _kill_one(processes, draw)

    def processes_left_by(self, driver: int) -> int:
        """Return the number of client processes and helpers left by a finished driver, after a while."""
        _until(lambda: not self._clients(), _SECONDS_TO_VANISH)
        is_alive = False
        with suppress(psutil.Error):
            is_alive = psutil.Process(driver).status() != psutil.STATUS_ZOMBIE
        return len(self._clients()) + is_alive

    def _clients(self) -> list[psutil.Process]:
        return [process for node in self._nodes() for process in _below(node, "ray::ClientActor")]

    def _nodes(self) -> list[subprocess.Popen[bytes]]:
        return [*([self.head] if self.head else []), *self.workers.values()]

    def _gcs(self) -> list[psutil.Process]:
        return [] if self.head is None else _below(self.head, "gcs_server")

    def _is_dead(self, process: subprocess.Popen[bytes]) -> bool:
        return process.poll() is not None or not _below(process, "raylet/raylet")


class FlowerCommand(ChaosEnvironment):
    """The command and the SuperLink that it starts, with files of its own; the next command restarts dead ones.

    Flower's command has one SuperLink a machine, on a port of its own: no other may run meanwhile.
    """

    kinds: Sequence[InjectedFault] = (InjectedFault.SUPERLINK, InjectedFault.DRIVER, InjectedFault.ACTOR)
    # The SuperLink gives up the process of an app, and with it the command that looks on, so long after its last sign.
    seconds_of_a_hang = ChaosEnvironment.seconds_of_a_hang + HEARTBEAT_PATIENCE * HEARTBEAT_DEFAULT_INTERVAL

    def __init__(self, directory: Path, clients: int) -> None:
        self._home = directory / "flower"
        self._clients = clients
        variables = {
            "FLWR_HOME": str(self._home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "PATH": f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self.environment = os.environ | variables

    def stand(self) -> None:
        """Do nothing, because the command starts what it needs."""

    def command(self, config: Path, run: Path) -> list[str]:
        size = f"num-supernodes={self._clients} client-resources-num-cpus=1"
        words = ("--stream", "--federation-config", size, "--run-config", f'config="{config}" out="{run}"')
        return [str(_BIN / "flwr"), "run", str(_ROOT), *words]

    def strike(self, blow: InjectedFault, draw: np.random.Generator, driver: subprocess.Popen[bytes]) -> bool:
        match blow:
            case InjectedFault.SUPERLINK:
                processes = self._running("flower-superlink")
            case InjectedFault.DRIVER:  # the command only looks on: this process plays the app
                processes = self._running("flwr-simulation")
            case InjectedFault.ACTOR:
                processes = self._running("ray::ClientActor")
            case InjectedFault.RAYLET | InjectedFault.GCS | InjectedFault.HEAD | InjectedFault.PARTITION:
                processes = []
            case _:
                assert_never(blow)
        return _kill_one(processes, draw)

    def processes_left_by(self, driver: int) -> int:
        """Return the number of processes left by a finished run, after a while, besides the SuperLink's own.

        A run goes on without its SuperLink, and without the command that looks on, so its end is waited for.
        """
        _until(lambda: not self._running("flwr-simulation"), _SECONDS_TO_END)
        _until(lambda: not self._of_the_run(), _SECONDS_TO_VANISH)
        return len(self._of_the_run())

    def is_over(self, status: int, run: Path) -> bool:
        """Return whether a run is finished; the command ends with 0 whatever the result of the run."""
        return RunDirectory(run).summary.exists()

    def fall(self) -> None:
        for _ in range(3):  # the last killed process may have started another one
            for process in self._running():
                _kill(process)
            time.sleep(0.2)

    def _of_the_run(self) -> list[psutil.Process]:
        return [*self._running("flwr-simulation"), *self._running("ray::"), *self._running("raylet/raylet")]

    def _running(self, words: str = "") -> list[psutil.Process]:
        """Return the living processes that use these files and whose command lines hold some words."""
        processes = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_ours = (
                    process.environ().get("FLWR_HOME") == str(self._home) and process.status() != psutil.STATUS_ZOMBIE
                )
                if is_ours and words in " ".join(process.cmdline()):
                    processes.append(process)
        return processes


def _below(process: subprocess.Popen[bytes], words: str = "") -> list[psutil.Process]:
    """Return the living descendants of a process whose command lines hold some words."""
    descendants = []
    with suppress(psutil.Error):
        for descendant in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if words in " ".join(descendant.cmdline()) and descendant.status() != psutil.STATUS_ZOMBIE:
                    descendants.append(descendant)
    return descendants


def _kill(process: psutil.Process) -> None:
    """Kill a process, if it is still there."""
    with suppress(psutil.Error):
        process.kill()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all its children."""
    for descendant in _below(process):
        _kill(descendant)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds, which is tested ten times a second, or the time is over."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
