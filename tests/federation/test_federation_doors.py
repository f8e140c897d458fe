"""Tests that a Ray cluster that a run has started refuses everybody without its token, from every network."""

import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import psutil
import pytest

from fl_audit.runs import process_guard
from fl_audit.runs.cluster import embedded_ray
from fl_audit.runs.cluster.embedded_ray import read_credentials_anew
from fl_audit.runs.cluster.ray_connection import cluster_at, ray_for
from fl_audit.runs.cluster.ray_options import RayOptions
from tests.builders.refusals import assert_refused
from tests.federation.hosts import other_hosts

pytestmark = [pytest.mark.long, pytest.mark.ray]
CALLS = (
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.InternalKVGcsService/InternalKVKeys",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
)
"""One call that each kind of listener of Ray answers: head, nodes, object stores, processes."""
JOIN = "import ray, sys; ray.init(sys.argv[1], logging_level=50); print('joined', len(ray.nodes()))"


def command_of(process: psutil.Process) -> str:
    """Return the command line of a process; empty if it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def listeners() -> Iterator[tuple[str, str, int]]:
    """Yield name, address and port of all listening sockets of this process and its descendants."""
    family = {process.pid: process.name() for process in (psutil.Process(), *psutil.Process().children(recursive=True))}
    for connection in psutil.net_connections("inet"):
        if connection.status == psutil.CONN_LISTEN and connection.pid in family:
            address, port = connection.laddr
            yield family[connection.pid], "127.0.0.1" if address in ("::", "0.0.0.0") else address, port


def grpc_answer(address: str, call: str, token: str | None) -> str:
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(call)(b"", timeout=3, metadata=metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def http_answer(address: str, token: str | None) -> int | None:
    """Return the HTTP status of an answer; None if the port does not speak HTTP."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with suppress(OSError):
        try:
            request = urllib.request.Request(f"http://{address}/get_or_create_runtime_env", b"", headers)
            return int(urllib.request.urlopen(request, timeout=3).status)
        except urllib.error.HTTPError as error:
            return error.code
        except Exception:  # no HTTP is spoken there
            return None
    return None


def answers(token: str | None) -> dict[str, list[str]]:
    """Return the answers of every listener to calls that it knows, by its name and port."""
    answers_by_listener: dict[str, list[str]] = {}
    for name, host, port in listeners():
        endpoint = f"{host}:{port}"
        replies = [reply for call in CALLS if (reply := grpc_answer(endpoint, call, token)) != "UNIMPLEMENTED"]
        status = http_answer(endpoint, token) if set(replies) == {"UNAVAILABLE"} else None
        answers_by_listener[f"{name} {port}"] = replies if status is None else [f"HTTP {status}"]
    return answers_by_listener


def refused(answers_by_listener: dict[str, list[str]], expected_statuses: set[str]) -> None:
    assert len(answers_by_listener) >= 5, (
        answers_by_listener
    )  # head, two of the node, its agent for environments, this process
    for name, replies in answers_by_listener.items():
        assert replies, f"{name} answers a call that this test does not know"
        assert set(replies) <= expected_statuses, f"{name} answers {replies}"


def test_no_listener_answers_without_the_token_and_nothing_of_it_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ray._private.worker import global_worker

    monkeypatch.setenv("HOME", str(tmp_path))  # Ray keeps tokens of its own in the user's directory

    with ray_for(RayOptions(actors=1)):
        import ray

        token = os.environ["RAY_AUTH_TOKEN"]
        ray_directory = Path(os.environ["RAY_TMPDIR"])
        head = ray.get_runtime_context().gcs_address
        session = Path(global_worker.node.get_session_dir_path())
        # Ray makes its own directories writable for everybody: what no other account can enter is the one around them.
        assert session.is_relative_to(ray_directory)
        assert stat.S_IMODE(ray_directory.stat().st_mode) == 0o700
        assert any(path.is_socket() for path in session.rglob("*"))
        refused(answers(None), {"UNAUTHENTICATED", "HTTP 401"})
        refused(answers("0" * len(token)), {"UNAUTHENTICATED", "HTTP 403"})
        assert grpc_answer(head, CALLS[0], token) == "OK"  # so it is the token that decides
        commands = [command_of(process) for process in psutil.Process().children(recursive=True)]
        assert not any(token in line for line in commands)
        mark = os.environ[process_guard._MARK]
        assert (
            len(process_guard.marked_processes(mark)) >= 2
        )  # the head and the node at least: whatever bears it ends with this process
        files = [path for path in session.rglob("*") if path.is_file()]
        assert [path for path in files if token.encode() in path.read_bytes()] == []
    assert process_guard.marked_processes(mark) == []
    assert not any(name.startswith("RAY_AUTH") for name in os.environ)
    assert not (Path.home() / ".ray" / "auth_token").exists()
    assert not ray_directory.exists()
    with embedded_ray.embedded_ray(RayOptions(actors=1)):  # the token is drawn before Ray starts, which takes seconds
        assert os.environ["RAY_AUTH_TOKEN"] not in (token, "")


def test_a_stranger_in_another_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger has no token or a wrong one. The same stranger is let in by a Ray that asks for none."""

    def join(environment: dict[str, str]) -> str:
        address = ray.get_runtime_context().gcs_address
        clean = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
        command = host.command(sys.executable, "-c", JOIN, address)
        environment |= {"RAY_gcs_rpc_server_connect_timeout_s": "3", "RAY_ENABLE_AUTO_CONNECT": "0"}
        return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=90).stdout

    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 64}
    with other_hosts(1) as (host,):
        with ray_for(RayOptions(actors=1)):
            import ray

            head = ray.get_runtime_context().gcs_address
            program = "import sys; sys.path[:0] = sys.argv[2].split(':'); "
            program += "from tests.federation import test_federation_doors as t; "
            program += "print(t.grpc_answer(sys.argv[1], t.CALLS[0], None))"
            paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
            reached = subprocess.run(
                host.command(sys.executable, "-c", program, head, paths), capture_output=True, text=True
            )
            assert reached.stdout.strip() == "UNAUTHENTICATED"  # the network lets it through, and Ray does not
            assert join({}) == ""
            assert join(wrong) == ""
        # Later versions of Ray ask for a token unless they are told not to.
        monkeypatch.setattr(embedded_ray, "new_token", lambda: {"RAY_AUTH_MODE": "disabled"})
        with ray_for(RayOptions(actors=1)):
            reached = subprocess.run(
                host.command(sys.executable, "-c", program, ray.get_runtime_context().gcs_address, paths),
                capture_output=True,
                text=True,
            )
            assert reached.stdout.strip() == "OK"


def test_a_cluster_that_asks_for_a_token_is_joined_with_it_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each mistake is reported at once in one line, and so is a cluster that asks for no token."""

    def joined(address: str) -> None:
        import ray

        with ray_for(RayOptions(cluster_at(address))):
            assert len(ray.nodes()) == 1

    token = "c" * 64
    started: list[Callable[[], object]] = []
    try:
        for name, environment in {"closed": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}, "open": {}}.items():
            from ray.cluster_utils import Cluster

            for key in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
                monkeypatch.delenv(key, raising=False)
            for key, value in environment.items():
                monkeypatch.setenv(key, value)
            read_credentials_anew()
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
            started.append(cluster.shutdown)
            capfd.readouterr()
            joined(cluster.address)
            assert ("no token" in capfd.readouterr().err) == (name == "open")
            if name == "closed":
                monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
                assert_refused("refuses the token", joined, cluster.address)
                monkeypatch.delenv("RAY_AUTH_MODE")
                assert_refused("set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN", joined, cluster.address)
                monkeypatch.setenv("RAY_AUTH_MODE", "token")
                monkeypatch.setenv("RAY_AUTH_TOKEN", token)
                read_credentials_anew()
            cluster.shutdown()
    finally:
        for end in started:
            with suppress(Exception):
                end()
        for key in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            monkeypatch.delenv(key, raising=False)
        read_credentials_anew()
