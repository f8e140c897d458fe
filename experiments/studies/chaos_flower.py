"""Flower's own command, `flwr run`, whose SuperLink, app and client processes are killed."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import numpy as np
import psutil

from experiments.runs.run_directory import RunDirectory
from experiments.studies.chaos_cluster import SECONDS_TO_VANISH, Blow, Surroundings, kill, kill_one, until

ROOT = Path(__file__).parents[2]
SECONDS_TO_END = 180.0
"""So long a run may go on by itself before its process counts as left over."""
_BIN = Path(sys.executable).parent


class FlowerCommand(Surroundings):
    """The command and the SuperLink that it starts, with files of its own; the next command starts what has died.

    Flower's command has one SuperLink a machine, on a port of its own: no other may run meanwhile.
    """

    kinds: Sequence[Blow] = (Blow.SUPERLINK, Blow.DRIVER, Blow.ACTOR)

    def __init__(self, place: Path, clients: int) -> None:
        self._home, self._clients = place / "flower", clients
        own = {
            "FLWR_HOME": str(self._home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "PATH": f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self.environment = os.environ | own

    def stand(self) -> None:
        """Do nothing: the command starts what it needs."""

    def command(self, config: Path, run: Path) -> list[str]:
        size = f"num-supernodes={self._clients} client-resources-num-cpus=1"
        words = ("--stream", "--federation-config", size, "--run-config", f'config="{config}" out="{run}"')
        return [str(_BIN / "flwr"), "run", str(ROOT), *words]

    def strike(self, blow: Blow, draw: np.random.Generator, driver: subprocess.Popen[bytes]) -> bool:
        match blow:
            case Blow.SUPERLINK:
                found = self._running("flower-superlink")
            case Blow.DRIVER:  # the command only looks on: this process plays the app
                found = self._running("flwr-simulation")
            case Blow.ACTOR:
                found = self._running("ray::ClientProcess")
            case Blow.RAYLET | Blow.GCS | Blow.HEAD | Blow.PARTITION:
                found = []
            case _:
                assert_never(blow)
        return kill_one(found, draw)

    def left_of(self, driver: int) -> int:
        """Return how many processes of a run that has ended are left, after a while, beside the SuperLink's own.

        A run goes on without its SuperLink, and without the command that looks on: its end is waited for.
        """
        until(lambda: not self._running("flwr-simulation"), SECONDS_TO_END)
        until(lambda: not self._of_the_run(), SECONDS_TO_VANISH)
        return len(self._of_the_run())

    def is_over(self, status: int, run: Path) -> bool:
        """Return whether a run is finished; the command ends with 0 whatever becomes of the run."""
        return RunDirectory(run).summary.exists()

    def fall(self) -> None:
        for _ in range(3):  # what is killed last may have started something
            for one in self._running():
                kill(one)
            time.sleep(0.2)

    def _of_the_run(self) -> list[psutil.Process]:
        return [*self._running("flwr-simulation"), *self._running("ray::"), *self._running("raylet/raylet")]

    def _running(self, words: str = "") -> list[psutil.Process]:
        """Return the living processes that use these files and whose command lines hold some words."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                is_ours = one.environ().get("FLWR_HOME") == str(self._home) and one.status() != psutil.STATUS_ZOMBIE
                if is_ours and words in " ".join(one.cmdline()):
                    found.append(one)
        return found
