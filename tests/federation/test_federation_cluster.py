"""Tests of runs on a Ray cluster of two nodes: both run clients, and the trials equal those of one process."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fl_audit import trial_batches
from fl_audit.clients.app import build_app
from fl_audit.errors import FederationError
from fl_audit.message_keys import Key, MessageRecordName
from fl_audit.runs.cluster import call_scheduling
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.run import ClientAppAndStrategy, run_audit
from fl_audit.strategies.simulated_grid import SimulatedGrid
from fl_audit.trial_batches import TrialBatch
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.federation.faults import faulty_app
from tests.federation.hosts import other_hosts
from tests.federation.test_federation_engines import assert_same
from tests.validation.chaos import AUDIT, _is_identical, campaign, play
from tests.validation.chaos_cluster import FlowerCommand, InjectedFault

pytestmark = pytest.mark.ray
SECONDS_TO_GO_ON = 90.0
"""From the death of a node to the end of the run: Ray takes up to half a minute to notice."""
SOON_GIVEN_UP = {"health_check_period_ms": 500, "health_check_timeout_ms": 1000, "health_check_failure_threshold": 3}
"""By itself Ray takes about a minute to give up a node that only falls silent."""


@contextmanager
def ray_cluster(**head: Any) -> Iterator[Any]:
    """Yield a cluster of one node with one core, unless other arguments of the node are given."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1} | head)
    try:
        yield cluster
    finally:
        cluster.shutdown()


def noting_app(directory: Path, lasts: Callable[[], bool] = lambda: False, longest_seconds: float = 100.0) -> ClientApp:
    """Return an app whose calls from round 2 on note their node, and last as long as a function says."""

    def note(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        import ray

        if int(str(message.content.config_records[MessageRecordName.CONFIG].get(Key.ROUND, 0))) >= 2:
            (directory / str(ray.get_runtime_context().get_node_id())).touch()
            deadline = time.monotonic() + longest_seconds
            while lasts() and time.monotonic() < deadline:
                time.sleep(0.1)
        return call_next(message, context)

    return build_app(mods=[note])


def killing_app(head: str, mark: Path) -> ClientApp:
    """Return an app that kills a node in the first call of round 2 that is not on the head node `head`."""

    def kill(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        import ray

        is_round = message.content.config_records[MessageRecordName.CONFIG][Key.ROUND] == 2
        if is_round and not mark.exists() and str(ray.get_runtime_context().get_node_id()) != head:
            mark.touch()
            os.kill(os.getppid(), signal.SIGKILL)  # the raylet, with which its processes end
            time.sleep(60)
        return call_next(message, context)

    return build_app(mods=[kill])


def stop_a_frozen_client(address: str, tmp_path: Path) -> None:
    """Check that a frozen client ends the run, even if its process cannot be ended from here."""
    mark = tmp_path / "frozen"
    plan = small_plan(run={"client-time-limit": 5.0, "trials-per-batch": 6})
    with pytest.raises(FederationError, match=r"no answer .*client\(s\)"):
        run_audit(
            plan,
            tmp_path / "freezes",
            Engine.RAY,
            address,
            parties=ClientAppAndStrategy(client_app=faulty_app("freezes", mark)),
            with_report=False,
        )
    assert time.time() - mark.stat().st_mtime < 10.0 + 15.0


@pytest.mark.campaign
def test_two_nodes_share_the_clients_and_a_frozen_one_ends_the_run(tmp_path: Path) -> None:
    notes = tmp_path / "nodes"
    notes.mkdir()
    plan = small_plan(data={"clients": 4}, run={"trials-per-batch": 6})
    with ray_cluster() as cluster:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        parties = ClientAppAndStrategy(client_app=noting_app(notes))
        contents = run_audit(plan, tmp_path / "run", Engine.RAY, cluster.address, parties=parties, with_report=False)
        stop_a_frozen_client(cluster.address, tmp_path)
    assert len(list(notes.iterdir())) == 2
    assert_same(contents, run_locally(plan, tmp_path / "alone"))


@pytest.mark.campaign
def test_a_node_that_is_killed_costs_only_its_calls(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without retries for calls whose process died, the run still ends with the trials of an undisturbed one."""
    monkeypatch.setattr(call_scheduling, "RETRIES", 0)
    plan = small_plan(data={"clients": 4}, run={"trials-per-batch": 6})
    with ray_cluster() as cluster:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        mark = tmp_path / "killed"
        parties = ClientAppAndStrategy(client_app=killing_app(cluster.head_node.node_id, mark))
        contents = run_audit(plan, tmp_path / "run", Engine.RAY, cluster.address, parties=parties, with_report=False)
        took = time.time() - mark.stat().st_mtime
    assert "is lost: " in capfd.readouterr().err
    assert took < SECONDS_TO_GO_ON
    assert_same(contents, run_locally(plan, tmp_path / "alone"))


@pytest.mark.campaign
def test_a_node_that_joins_is_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = {"trials-per-batch": 6, "client-time-limit": 150.0}
    plan = small_plan(data={"clients": 6}, run=settings)
    mark = tmp_path / "on"
    mark.mkdir()
    joined: list[subprocess.Popen[bytes]] = []

    def join() -> None:
        while not list(mark.iterdir()):
            time.sleep(0.05)
        search_paths = os.pathsep.join(entry for entry in sys.path if entry)
        joined.append(start_node(cluster, directory=tmp_path, paths=search_paths))

    with ray_cluster() as cluster:
        try:
            threading.Thread(target=join, daemon=True).start()
            client_app = noting_app(mark, lambda: len(list(mark.iterdir())) < 2)
            parties = ClientAppAndStrategy(client_app=client_app)
            contents = run_audit(
                plan, tmp_path / "run", Engine.RAY, cluster.address, parties=parties, with_report=False
            )
        finally:
            for node in joined:
                os.killpg(node.pid, signal.SIGKILL)
    assert len(list(mark.iterdir())) == 2
    assert " has joined\n" in capfd.readouterr().err
    assert_same(contents, run_locally(plan, tmp_path / "alone"))


@pytest.mark.campaign
def test_hosts_reach_each_other_unless_one_is_cut_off() -> None:
    """Otherwise a campaign would measure how long Ray waits for a host that nobody can reach."""
    listen = "import socket; server = socket.create_server(('', 40404)); print('on', flush=True); server.accept()"
    call = "import socket, sys; socket.create_connection((sys.argv[1], 40404), timeout=2).close()"
    with other_hosts(2) as (listening_host, calling_host):

        def reached(*, cut_off: bool) -> bool:
            command = listening_host.command(sys.executable, "-c", listen)
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdout is not None
                assert server.stdout.readline() == "on\n"
                if cut_off:
                    listening_host.cut_off()
                words = calling_host.command(sys.executable, "-c", call, listening_host.address)
                status = subprocess.run(words, stderr=subprocess.DEVNULL).returncode
                server.kill()
            return status == 0

        assert reached(cut_off=False)
        assert not reached(cut_off=True)


def _marked(words: str) -> list[str]:
    """Return the command lines of this machine's processes that contain some words."""
    command_lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return [line for line in command_lines if words in line]


@pytest.mark.campaign
def test_a_campaign_that_is_ended_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # Ray's sockets have short names
        command = [sys.executable, "-m", "tests.validation", "chaos", "--out", f"{directory}/out"]
        root = Path(__file__).resolve().parents[2]  # where the campaigns are found
        ended = subprocess.Popen(command, cwd=root, env=os.environ | {"TMPDIR": directory}, start_new_session=True)
        deadline = time.monotonic() + 120.0
        before = set(Path("/run/netns").glob("*"))
        while not list(Path(directory).glob("chaos-*/run-0.log")) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [line for line in _marked(f"{directory}/chaos-") if "gcs_server" in line]
        ended.terminate()
        assert ended.wait(60.0) == 128 + signal.SIGTERM
        assert not _marked(f"{directory}/chaos-")
        assert not list(Path(directory).glob("chaos-*"))
        assert set(Path("/run/netns").glob("*")) <= before


def filling_app() -> ClientApp:
    """Return an app whose calls of the second batch fill the remaining object store."""

    def fill(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        import ray
        from ray.exceptions import ObjectStoreFullError, OutOfDiskError

        if message.content.config_records[MessageRecordName.CONFIG][Key.BATCH] == TrialBatch(1, 12, 12).name:
            for size in (10_000_000, 1_000_000, 110_000):
                with suppress(ObjectStoreFullError, OutOfDiskError):
                    while True:
                        HELD.append(ray.put(bytes(size)))
        return call_next(message, context)

    return build_app(mods=[fill])


HELD: list[Any] = []


@pytest.mark.campaign
def test_a_run_of_flowers_own_command_outlives_its_superlink_or_goes_on() -> None:
    """The SuperLink, the process of the app and its clients are killed during a run from its start to its report."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # Ray's sockets have short names
        directory = Path(name)
        (directory / "audit.toml").write_text(AUDIT.replace("SEED", "5"))
        alone = run_locally(plan_run(load_config(directory / "audit.toml")), directory / "alone")
        around = FlowerCommand(directory, 4)
        try:
            outcome, run = play(0, around, directory, np.random.default_rng(255))
        finally:
            around.fall()
        faults = {InjectedFault.SUPERLINK, InjectedFault.DRIVER, InjectedFault.ACTOR}
        assert {blow for blow, _ in outcome.blows} == faults
        assert (outcome.lost, outcome.hangs, outcome.orphans) == (0, 0, 0)
        assert _is_identical(directory / "alone", run)
        assert alone.summary["verdict"] in (run / "report.html").read_text()


@pytest.mark.timeout(600)
@pytest.mark.campaign
def test_an_object_store_that_is_full_ends_the_run_with_a_line_and_it_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_batches, "BATCHES_IN_FLIGHT", 1)
    audit = {"trials": 36, "epsilon-star": False}
    run = {"trials-per-batch": 12}
    # Ray asks a full store again for seconds before it gives up; on a busy machine that adds up to more than a minute.
    plan = small_plan(model={"name": "dense-128"}, audit=audit, run=run | {"client-time-limit": 400.0})
    batch_paths: list[Path] = []
    # The smallest store that Ray makes, and no disk for what does not fit.
    smallest = {"object_store_memory": 78_643_200, "_system_config": {"local_fs_capacity_threshold": 1e-6}}
    for arguments in (smallest, {}):
        parties = ClientAppAndStrategy(client_app=filling_app() if arguments else build_app())
        settings = {"resume": bool(batch_paths), "parties": parties, "with_report": False}
        with ray_cluster(num_cpus=2, **arguments) as cluster:
            if not arguments:
                contents = run_audit(plan, tmp_path / "run", Engine.RAY, cluster.address, **settings)
            else:
                with pytest.raises(FederationError, match=r"object store .*run\.trials-per-batch") as error_info:
                    run_audit(plan, tmp_path / "run", Engine.RAY, cluster.address, **settings)
                batch_paths = list((tmp_path / "run").glob("challenger/batches/batch-*"))
    assert "\n" not in str(error_info.value)
    assert [path.name for path in batch_paths] == ["batch-00000"]
    assert_same(contents, run_locally(plan, tmp_path / "alone"))


@pytest.mark.timeout(900)
@pytest.mark.campaign
def test_a_small_campaign_of_kills_loses_nothing(tmp_path: Path) -> None:
    """The study is run with the kill of a raylet, a host, the head and a client process in turn."""
    run_records = campaign(tmp_path, kills=3, seed=650, minutes=4.0)
    assert sum(len(record["blows"]) for record in run_records) >= 3
    assert all(record["identical"] for record in run_records)
    assert not any(record[name] for record in run_records for name in ("lost", "hangs", "orphans", "secrets"))


@pytest.mark.campaign
def test_a_node_that_is_cut_off_for_good_costs_only_its_calls(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A host in a network of its own joins, takes calls, and is cut off without any notice."""
    plan = small_plan(data={"clients": 4}, run={"trials-per-batch": 6})
    with other_hosts(1) as (host,), ray_cluster(node_ip_address=host.gateway, _system_config=SOON_GIVEN_UP) as cluster:
        program = "from ray.scripts.scripts import main; main()"
        start = (sys.executable, "-c", program, "start", f"--address={cluster.address}", "--num-cpus=1", "--block")
        worker = subprocess.Popen(
            host.command(*start, f"--node-ip-address={host.address}"), stdout=subprocess.DEVNULL, start_new_session=True
        )
        mark = tmp_path / "nodes"
        cut_at = list[float]()
        mark.mkdir()

        def cut() -> None:
            while len(list(mark.iterdir())) < 2:
                time.sleep(0.05)
            host.cut_off()
            cut_at.append(time.monotonic())

        try:
            threading.Thread(target=cut, daemon=True).start()
            wait_for_nodes(cluster, 2)
            parties = ClientAppAndStrategy(client_app=noting_app(mark, lambda: True, longest_seconds=0.5))
            contents = run_audit(
                plan, tmp_path / "run", Engine.RAY, cluster.address, parties=parties, with_report=False
            )
            took = time.monotonic() - cut_at[0]
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            subprocess.run(host.command("sh", "-c", f"kill -9 $(ip netns pids {host.name})"), capture_output=True)
    assert f"node {host.address} is lost: " in capfd.readouterr().err
    assert 0 < took < SECONDS_TO_GO_ON
    assert_same(contents, run_locally(plan, tmp_path / "alone"))


def wait_for_nodes(cluster: Any, count: int) -> None:
    """Wait until a cluster has the given number of nodes."""
    import ray

    ray.init(cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    deadline = time.monotonic() + 60.0
    while sum(row["Alive"] for row in ray.nodes()) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    ray.shutdown()


NETWORK = """
import torch


def build(feature_shape, classes):
    from bare_parts import HIDDEN

    layers = torch.nn.Flatten(), torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, classes)
    return torch.nn.Sequential(*layers)
"""


def start_node(cluster: Any, *before: str, directory: Path, paths: str) -> subprocess.Popen[bytes]:
    """Start a worker node as a process in a directory, with its own module search path."""
    program = "from ray.scripts.scripts import main; main()"
    start = (sys.executable, "-P", "-c", program, "start", f"--address={cluster.address}", "--num-cpus=2", "--block")
    environment = {key: value for key, value in os.environ.items() if key not in ("FL_AUDIT_DATA", "PYTHONPATH")}
    return subprocess.Popen(
        [*before, *start],
        cwd=directory,
        env=environment | {"PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.long
def test_a_node_needs_neither_the_data_nor_the_modules_nor_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All clients run on a host that sees an empty directory in place of the driver's."""
    from sklearn.datasets import load_digits

    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("a host with other files is a mount namespace, which needs root")
    mine = tmp_path / "mine"
    elsewhere = tmp_path / "elsewhere"
    for directory in (mine, elsewhere):
        directory.mkdir()
    digits = load_digits()
    np.savez(mine / "digits.npz", x=digits.data.astype("float32") / 16, y=digits.target)
    (mine / "bare_network.py").write_text(NETWORK)
    (mine / "bare_parts.py").write_text("HIDDEN = 9\n")
    (mine / "audit.toml").write_text(
        """
        data = {name = "npz", path = "digits.npz", records = 60, test-records = 20, clients = 3}
        model = {name = "bare_network:build"}
        training = {rounds = 2, learning-rate = 1.0}
        privacy = {noise-multiplier = 2.0, adjacency = "replace-record", delta = 0.01}
        audit = {trials = 4}
        run = {seed = 1}
        """
    )
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "path", [*sys.path, str(mine)])
    plan = plan_run(load_config(mine / "audit.toml"))
    search_paths = os.pathsep.join(entry for entry in sys.path if entry and entry != str(mine))
    hidden = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{mine}" && exec "$@"', "sh")
    with ray_cluster(num_cpus=0) as cluster:
        node = start_node(cluster, *hidden, directory=elsewhere, paths=search_paths)
        try:
            wait_for_nodes(cluster, 2)
            contents = run_audit(plan, tmp_path / "run", Engine.RAY, cluster.address, with_report=False)
        finally:
            os.killpg(node.pid, signal.SIGKILL)
    assert_same(contents, run_locally(plan, tmp_path / "alone"))


@pytest.mark.long
def test_a_node_with_other_packages_is_named_and_refused(tmp_path: Path) -> None:
    for package in ("flwr", "numpy", "torch"):
        package_directory = tmp_path / "other" / f"{package}-9.9.9.dist-info"
        package_directory.mkdir(parents=True)
        (package_directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 9.9.9\n")
    named = r"node \S+ has flwr 9\.9\.9, numpy 9\.9\.9 and torch 9\.9\.9: accepted"
    with ray_cluster() as cluster:
        # Ray has added the directory of its own packages.
        paths = os.pathsep.join([str(package_directory.parent), *(entry for entry in sys.path if entry)])
        node = start_node(cluster, directory=tmp_path, paths=paths)
        try:
            wait_for_nodes(cluster, 2)
            options = {"ray_address": cluster.address, "with_report": False}
            assert_refused(named, run_audit, small_plan(), tmp_path / "run", Engine.RAY, **options)
        finally:
            os.killpg(node.pid, signal.SIGKILL)
    assert not (tmp_path / "run" / "challenger" / "batches").exists()


def freeze_and_thaw_raylet(node: subprocess.Popen[bytes], mark: Path, thawed: Path) -> None:
    """Stop a node's raylet once clients run on two nodes, until Ray has declared it dead, and let it go on."""
    import ray

    while len(list(mark.iterdir())) < 2:
        time.sleep(0.05)
    family = psutil.Process(node.pid).children(recursive=True)
    raylet = next(process for process in family if process.name() == "raylet")
    raylet.suspend()
    while sum(row["Alive"] for row in ray.nodes()) > 1:
        time.sleep(0.1)
    raylet.resume()
    thawed.touch()


@pytest.mark.timeout(600)
@pytest.mark.campaign
def test_a_node_that_stands_still_and_goes_on_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The processes of the node go on while its raylet stands still, so late replies exist (ray-project/ray#54035)."""
    plan = small_plan(data={"clients": 4}, run={"trials-per-batch": 6})
    mark = tmp_path / "on"
    thawed = tmp_path / "thawed"
    mark.mkdir()
    sent = list[str]()
    received = list[str]()
    push_messages = SimulatedGrid.push_messages
    pull = SimulatedGrid._pulled

    def pushing(grid: SimulatedGrid, messages: Iterable[Message]) -> list[str]:
        identities = push_messages(grid, messages)
        sent.extend(identities)
        return identities

    def pulling(grid: SimulatedGrid, identities: Collection[str] | None) -> list[Message]:
        replies = pull(grid, identities)
        received.extend(reply.metadata.reply_to_message_id for reply in replies)
        return replies

    monkeypatch.setattr(SimulatedGrid, "push_messages", pushing)
    monkeypatch.setattr(SimulatedGrid, "_pulled", pulling)
    search_paths = os.pathsep.join(entry for entry in sys.path if entry)
    with ray_cluster(_system_config=SOON_GIVEN_UP) as cluster:
        node = start_node(cluster, directory=tmp_path, paths=search_paths)
        try:
            wait_for_nodes(cluster, 2)
            threading.Thread(target=freeze_and_thaw_raylet, args=(node, mark, thawed), daemon=True).start()
            parties = ClientAppAndStrategy(client_app=noting_app(mark, lambda: not thawed.exists()))
            contents = run_audit(
                plan, tmp_path / "run", Engine.RAY, cluster.address, parties=parties, with_report=False
            )
        finally:
            os.killpg(node.pid, signal.SIGKILL)
    assert thawed.exists()
    assert "is lost: " in capfd.readouterr().err
    assert len(received) == len(set(received))
    assert set(received) == set(sent)
    assert_same(contents, run_locally(plan, tmp_path / "alone"))


@pytest.mark.timeout(600)
@pytest.mark.campaign
def test_two_runs_at_once_on_one_cluster_both_end_with_their_own_trials(tmp_path: Path) -> None:
    """The cluster has a core for one client: the second run shares it, since the first keeps it to its end."""
    configs = {"one": AUDIT.replace("SEED", "5"), "other": AUDIT.replace("SEED", "6")}
    program = "from fl_audit.cli.main import main; main()"
    runs = list[subprocess.Popen[bytes]]()
    with ray_cluster() as cluster:
        try:
            for name, text in configs.items():
                (tmp_path / f"{name}.toml").write_text(text)
                words = ["run", f"{name}.toml", "--out", name, "--ray-address", cluster.address]
                runs.append(subprocess.Popen([sys.executable, "-c", program, *words], cwd=tmp_path))
            assert [run.wait(500.0) for run in runs] == [0, 0]
        finally:
            for run in runs:
                run.kill()
    for name in configs:
        plan = plan_run(load_config(tmp_path / f"{name}.toml"))
        run_locally(plan, tmp_path / f"{name}-alone")
        assert _is_identical(tmp_path / f"{name}-alone", tmp_path / name)


@pytest.mark.long
def test_a_run_shares_cores_that_another_program_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    keep = (
        "import ray, sys, time\nray.init(sys.argv[1])\n@ray.remote(num_cpus=1)\nclass Keeper:\n"
        "    def has_it(self): pass\nkeeper = Keeper.remote()\nray.get(keeper.has_it.remote())\n"
        "print('kept', flush=True)\ntime.sleep(1000)"
    )
    monkeypatch.setattr("fl_audit.runs.cluster.pool._SECONDS_FOR_CORES", 2.0)
    plan = small_plan()
    with ray_cluster() as cluster:
        keeper = subprocess.Popen([sys.executable, "-c", keep, cluster.address], stdout=subprocess.PIPE, text=True)
        try:
            assert keeper.stdout is not None
            assert "kept\n" in iter(keeper.stdout.readline, "")
            contents = run_audit(plan, tmp_path / "run", Engine.RAY, cluster.address, with_report=False)
        finally:
            keeper.kill()
            keeper.communicate()
    assert "have taken its cores" in capfd.readouterr().err
    assert_same(contents, run_locally(plan, tmp_path / "alone"))
