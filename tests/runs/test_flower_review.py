"""Reviews in Flower's own form: Flower's code, and a real SuperNode, accept and refuse them."""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.supercore.fab import Fab
from flwr.superlink.servicer.control.control_handlers import _format_verification
from flwr.supernode.start_client_internal import _verify_fab
from typer.testing import CliRunner

from fl_audit.cli.main import app
from fl_audit.errors import InputError
from fl_audit.experiments.examples.review_server import review_server
from fl_audit.runs.flower_review import add_flower_review, read_flower_reviews, trusted_entity
from fl_audit.runs.signed_statement import verify
from fl_audit.verdict.audit_result import AuditedKind, AuditResult
from fl_audit.verdict.verdict import Verdict
from tests.builders.refusals import assert_refused

BUNDLE = b"the content of a bundle"
RESULT = AuditResult(
    AuditedKind.APP, "tiny", Verdict.CONSISTENT, "Consistent.", bundle=hashlib.sha256(BUNDLE).hexdigest()
)


def is_accepted(content: bytes, reviews: Path, key: Path) -> bool:
    """Return whether Flower's own code accepts a bundle with reviews where one key is trusted."""
    verification = _format_verification(read_flower_reviews(reviews))
    fab = Fab(hashlib.sha256(content).hexdigest(), content, verification)
    # A line of the YAML file is a member of a JSON object too.
    return _verify_fab(fab, json.loads(f"{{{trusted_entity(key)}}}"))


def test_flowers_code_accepts_the_reviewed_bundle_by_a_trusted_key_alone(tmp_path: Path, keys: dict[str, Path]) -> None:
    reviews = tmp_path / "reviews.json"
    bundle = str(RESULT.bundle)
    add_flower_review(reviews, bundle, keys["officer"])
    assert is_accepted(BUNDLE, reviews, keys["officer"])
    assert is_accepted(BUNDLE, reviews, keys["officer"].with_suffix(".pub"))
    assert not is_accepted(BUNDLE, reviews, keys["engineer"])
    assert not is_accepted(BUNDLE + b".", reviews, keys["officer"])
    for _ in range(2):  # a second review by the same key takes the place of its first
        add_flower_review(reviews, bundle, keys["engineer"])
    assert len(read_flower_reviews(reviews)) == 2
    assert is_accepted(BUNDLE, reviews, keys["officer"])
    assert is_accepted(BUNDLE, reviews, keys["engineer"])
    forged = [review | {"signed_at": review["signed_at"] + 1} for review in read_flower_reviews(reviews)]
    reviews.write_text(json.dumps(forged))
    assert not is_accepted(BUNDLE, reviews, keys["officer"])


def signed_with_review(directory: Path, result: AuditResult, key: Path) -> Any:
    directory.mkdir()
    (directory / "summary.json").write_text(json.dumps(result.to_json()))
    return CliRunner().invoke(
        app,
        [
            "sign",
            str(directory),
            "--key",
            str(key),
            "--flower-review",
            str(directory.parent / f"{directory.name}.json"),
        ],
    )


def test_the_command_signs_both(tmp_path: Path, keys: dict[str, Path]) -> None:
    done = signed_with_review(tmp_path / "app", RESULT, keys["officer"])
    assert done.exit_code == 0, done.exception
    assert trusted_entity(keys["officer"]) in done.stdout
    assert verify(tmp_path / "app")[0].statement["predicate"]["bundle"] == RESULT.bundle
    assert is_accepted(BUNDLE, tmp_path / "app.json", keys["officer"])


@pytest.mark.parametrize(
    ("result", "expected_message"),
    [
        (replace(RESULT, verdict=Verdict.VIOLATED), "violated"),
        (replace(RESULT, bundle=None), "not known"),
        (replace(RESULT, kind=AuditedKind.STRATEGY), "strategy"),
    ],
)
def test_nothing_is_signed_where_no_review_can_be(
    result: AuditResult, expected_message: str, tmp_path: Path, keys: dict[str, Path]
) -> None:
    done = signed_with_review(tmp_path / "it", result, keys["officer"])
    assert isinstance(done.exception, InputError)
    assert expected_message in str(done.exception)
    assert {path.name for path in tmp_path.iterdir()} == {"it"}
    assert not (tmp_path / "it" / "statements.intoto.jsonl").exists()


def test_a_file_of_something_else_is_refused(tmp_path: Path, keys: dict[str, Path]) -> None:
    for text in ("[1]", "{}", "no JSON", '[{"signature": "x"}]'):
        (tmp_path / "reviews.json").write_text(text)
        named = "has no reviews"
        assert_refused(named, add_flower_review, tmp_path / "reviews.json", str(RESULT.bundle), keys["officer"])


SERVER = """
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()
@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.2)
    asked = [Message(RecordDict({"c": ConfigRecord({"x": 1})}), node, "query") for node in nodes]
    for reply in grid.send_and_receive(asked, timeout=120):
        print("REPLY", f"error {reply.error.code}" if reply.has_error() else reply.content["c"]["x"], flush=True)
"""
CLIENT = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()
@app.query()
def query(message, context):
    return Message(RecordDict({"c": ConfigRecord({"x": 2})}), reply_to=message)
"""
PROJECT = """
[project]
name = "tiny"
version = "1.0.0"
license = { file = "LICENSE" }
dependencies = ["flwr"]
[tool.flwr.app]
publisher = "site"
[tool.flwr.app.components]
serverapp = "tiny.server:app"
clientapp = "tiny.client:app"
[tool.flwr.app.config]
x = 1
"""
PROGRAMS = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return int(probe_socket.getsockname()[1])


@contextmanager
def running(directory: Path, environment: dict[str, str], *command: str) -> Iterator[None]:
    with (directory / f"{command[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(PROGRAMS / command[0]), *command[1:]],
            env=environment,
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.long
@pytest.mark.skipif(not (PROGRAMS / "flower-superlink").exists(), reason="Flower's programs are not here")
def test_a_real_supernode_trains_by_a_trusted_review_and_refuses_without(tmp_path: Path, keys: dict[str, Path]) -> None:
    """Play a SuperLink and SuperNodes on this machine, with a server of reviews in the place of Flower's Hub."""
    package = tmp_path / "app" / "tiny"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("server", SERVER), ("client", CLIENT)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "app" / "pyproject.toml").write_text(PROJECT)
    shutil.copy(Path(__file__).parents[2] / "LICENSE", tmp_path / "app")
    port = free_port()
    node_port = free_port()
    (tmp_path / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = os.environ | {"FLWR_HOME": str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"}
    environment["PATH"] = f"{PROGRAMS}{os.pathsep}{environment['PATH']}"
    subprocess.run([PROGRAMS / "flwr", "build"], cwd=tmp_path / "app", env=environment, check=True, timeout=120)
    (bundle,) = (tmp_path / "app").glob("*.fab")
    # The review is that of an audit whose result binds the hash of this bundle.
    result = replace(RESULT, bundle=hashlib.sha256(bundle.read_bytes()).hexdigest())
    assert signed_with_review(tmp_path / "audit", result, keys["officer"]).exit_code == 0
    server = review_server(bundle, tmp_path / "audit.json")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment["FLWR_SUPERGRID_API_URL"] = f"http://127.0.0.1:{server.server_address[1]}"
    replies = {}
    link = ("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port))
    with running(tmp_path, environment, *link, "--disable-runtime-dependency-installation"):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.5)
        for name, key in keys.items():
            (tmp_path / "trusted.yaml").write_text(trusted_entity(key) + "\n")
            node = ("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(node_port))
            with running(tmp_path, environment, *node, "--trusted-entities", "trusted.yaml"):
                done = subprocess.run(
                    [PROGRAMS / "flwr", "run", "@site/tiny", "here", "--stream"],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                replies[name] = re.findall(r"REPLY (.*)", done.stdout)
    server.shutdown()
    # 7 is Flower's `ErrorCode.INVALID_FAB`. The node that ended before may still be asked, and does not answer.
    assert replies["officer"] == ["2"]
    assert "error 7" in replies["engineer"]
    assert "2" not in replies["engineer"]
