"""Real federations on this machine: a SuperLink and four SuperNodes, with TLS and node authentication."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fl_audit.app_audits.live.live_audit import LiveFinding, measure_live
from fl_audit.app_audits.live.observer_store import seed_in
from fl_audit.experiments.examples.local_superlink import ROOT, LocalFlowerFederation, federation, write_node_key

pytestmark = [pytest.mark.long, pytest.mark.ray, pytest.mark.xdist_group("superlink"), pytest.mark.timeout(900)]


COINS = "6\n"
"""In three of the first five rounds the canary is in: with coins drawn anew it might be in none, and nothing told."""


def measured(local_federation: LocalFlowerFederation, name: str = "canaries") -> LiveFinding:
    return measure_live(local_federation.place / name, seed_in(local_federation.place / "coins"), is_over=True)


def files_of(directory: Path) -> dict[int, str]:
    return {int(path.stem[6:]): path.read_text() for path in (directory / "canaries").glob("round-*.json")}


def rounds_of(directory: Path) -> list[int]:
    return sorted(files_of(directory))


def present_in(text: str) -> list[int]:
    return [canary["number"] for canary in json.loads(text)["present"]]


def whole_rounds_of(directory: Path) -> list[int]:
    return [number for number, text in files_of(directory).items() if present_in(text) == [0]]


def wait_for(directory: Path, number: int) -> None:
    wait_until(lambda: number in rounds_of(directory), f"round {number}")


def wait_until(is_there: Callable[[], bool], event: str, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < end, f"{event} does not come"
        time.sleep(0.2)


def test_a_breach_is_found_without_an_extra_round_and_an_intruder_stays_out(tmp_path: Path) -> None:
    with federation(tmp_path, canaries=1) as local_federation:
        (tmp_path / "coins").write_text(COINS)
        log = local_federation.train(rounds=6, added=0.1)
        assert "[ROUND 6/6]" in log
        assert "[ROUND 7" not in log
        numbers = measured(local_federation)
        assert (numbers.verdict, numbers.bounds.rounds, numbers.last) == ("violated", 6, 6)
        accuracies = [json.loads(line)["accuracy"] for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
        assert len(accuracies) == 7
        # A node whose key nobody has registered is not let in.
        write_node_key(tmp_path / "node-9")
        shutil.copy(tmp_path / "shard-3.npz", tmp_path / "shard-9.npz")
        local_federation.start_node(9)
        stranger = local_federation.running["node-9"]
        assert stranger.wait(60) != 0


@pytest.mark.campaign
def test_what_is_kept_survives_whatever_is_killed_and_training_goes_on_with_a_node_that_comes_back(
    tmp_path: Path,
) -> None:
    """A SuperNode, the process of the ServerApp, the SuperLink: nothing that was kept is lost, changed or half."""
    with federation(tmp_path, canaries=1) as local_federation:
        training = threading.Thread(target=_quietly, args=(local_federation,))
        training.start()
        wait_for(tmp_path, 2)
        early = files_of(tmp_path)
        local_federation.kill("node-0")  # the one with the canary
        restart_node(local_federation, 0)
        # Rounds without it may release something, or not; two more with it have to come.
        wait_until(lambda: len(whole_rounds_of(tmp_path)) >= 4, "two rounds with the node that comes back")
        assert kill_serverapp(local_federation)
        time.sleep(5)
        after_serverapp = files_of(tmp_path)
        local_federation.kill("superlink")
        training.join(60)
        assert early.items() <= after_serverapp.items()
        assert after_serverapp == files_of(tmp_path)
        present = {number: present_in(text) for number, text in after_serverapp.items()}
        numbers = measured(local_federation)
        assert numbers.bounds.rounds == sum(canary_numbers == [0] for canary_numbers in present.values()) >= 4
        assert numbers.last == max(present)
        # The nodes find the SuperLink that was started again; what the next training keeps stands alone.
        local_federation.start_superlink()
        local_federation.train(rounds=2)
        assert rounds_of(tmp_path) == [1, 2]
        assert (
            measured(local_federation).bounds.rounds,
            len(list((tmp_path / "canaries" / "earlier-1").iterdir())),
        ) == (2, len(present))


def restart_node(local_federation: LocalFlowerFederation, node: int, seconds: float = 180.0) -> None:
    """Start a killed SuperNode until it is let in.

    For a minute after its last sign of life the SuperLink takes a node for present, and turns away a second one with
    the same key, which ends with an error. It fails if the node is not let in for so many seconds.
    """
    log = local_federation.place / f"node-{node}.log"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = log.stat().st_size
        local_federation.start_node(node)
        while local_federation.running[f"node-{node}"].poll() is None:
            if b"SuperNode ID" in log.read_bytes()[before:]:
                return
            time.sleep(0.2)
    raise AssertionError(f"SuperNode {node} is not let in: see {log}")


def kill_serverapp(local_federation: LocalFlowerFederation) -> bool:
    """End the process of the ServerApp alone; whether there was one. Whoever has just ended was called by nothing."""
    was_running = False
    for process in psutil.Process(local_federation.running["superlink"].pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "flwr-serverapp" in " ".join(process.cmdline()):
                process.kill()
                was_running = True
    return was_running


def _quietly(local_federation: LocalFlowerFederation) -> None:
    with contextlib.suppress(RuntimeError):
        local_federation.train(rounds=40)


@pytest.mark.campaign
def test_the_tutorial_is_followed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "live.md").read_text()
    blocks = [section.split("```")[0] for section in page.split("```sh\n")[1:]]
    script = "set -e\n" + "".join(blocks).replace("rounds=20", "rounds=5")
    script = script.replace("federation --prepare", f"{tmp_path}/federation --prepare").replace(
        "cd federation", f"cd {tmp_path}/federation"
    )
    script = script.replace("export FLWR_HOME", f"echo {COINS.strip()} > coins\nexport FLWR_HOME", 1)
    bin_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": bin_path}
    ran = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert re.search(r"violated: 5 .*of 5 claimed", ran.stdout)
    assert (tmp_path / "federation" / "tenth" / "canaries" / "report.html").is_file()
