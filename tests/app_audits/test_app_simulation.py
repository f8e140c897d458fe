"""Tests of whole Flower apps on our engines: contexts, states, run configuration, failures, and equal results."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from fl_audit.app_audits.app_simulation import run_config_values, simulate_app
from fl_audit.cli.simulate import simulate
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.verbosity import with_verbosity
from tests.app_audits.review.apps import write_app
from tests.builders.refusals import assert_refused

SERVER = """
import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    if context.run_config["fails"]:
        raise ValueError("no data\\nhere")
    initial = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    result = FedAvg(fraction_evaluate=0.0).start(grid, initial, context.run_config["num-server-rounds"])
    told = {number: dict(one) for number, one in result.train_metrics_clientapp.items()}
    found = {"w": result.arrays["w"].numpy().tolist(), "metrics": told, "rate": context.run_config["params.rate"]}
    Path("found.json").write_text(json.dumps(found))
"""
CLIENT = """
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from PACKAGE.task import step

app = ClientApp()


@app.train()
def train(message, context):
    trained = context.state.config_records.get("rounds", ConfigRecord({"trained": 0}))["trained"] + 1
    context.state["rounds"] = ConfigRecord({"trained": trained})
    part, parts = context.node_config["partition-id"], context.node_config["num-partitions"]
    weights = message.content.array_records["arrays"]["w"].numpy()
    arrays = ArrayRecord({"w": Array(step(weights, context.run_config["params.rate"], part))})
    metrics = MetricRecord({"num-examples": 1, "trained": trained, "part": part, "parts": parts})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
"""
LEGACY_SERVER = """
from pathlib import Path

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


class Noting(FedAvg):
    def aggregate_fit(self, server_round, results, failures):
        Path("found.json").write_text(f'{{"clients": {len(results)}, "failures": {len(failures)}}}')
        return super().aggregate_fit(server_round, results, failures)


def server_fn(context):
    strategy = Noting(initial_parameters=ndarrays_to_parameters([np.zeros(3)]))
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


app = ServerApp(server_fn=server_fn)
"""
LEGACY_CLIENT = """
from flwr.client import ClientApp, NumPyClient


class Client(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] + 1], 1, {}

    def evaluate(self, parameters, config):
        return 1.0, 1, {}


def client_fn(context):
    return Client().to_client()


app = ClientApp(client_fn=client_fn)
"""
SETTINGS = """fails = false

[tool.flwr.federations]
default = "local-simulation"

[tool.flwr.federations.local-simulation]
options.num-supernodes = 4
"""


def _app(directory: Path, name: str, server: str = SERVER, client: str = CLIENT) -> Path:
    write_app(directory, name, server, client.replace("PACKAGE", name))
    (directory / name / "task.py").write_text("def step(weights, rate, part): return weights + rate * (part + 1)\n")
    with (directory / "pyproject.toml").open("a") as file:
        file.write(SETTINGS)
    return directory


@pytest.fixture(autouse=True)
def _quiet_and_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Apps are found by the path of imports, write where the command was given, and show Flower's log."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    with with_verbosity(None, quiet=True):
        yield


def test_an_app_gets_the_contexts_of_flowers_simulation(tmp_path: Path) -> None:
    app = _app(tmp_path / "app", "contexts")
    played = simulate_app(app, Engine.LOCAL, ["num-server-rounds=2 params.rate=0.25"])
    assert (played.app.name, played.clients, played.failed_calls) == ("contexts", 4, {})
    app_output = json.loads(Path("found.json").read_text())
    assert app_output["rate"] == 0.25
    # Every round adds the mean of rate * (part + 1) over the four parts.
    assert app_output["w"] == pytest.approx([2 * 0.25 * 2.5] * 3)
    assert app_output["metrics"] == {
        "1": pytest.approx({"trained": 1, "part": 1.5, "parts": 4}),
        "2": pytest.approx({"trained": 2, "part": 1.5, "parts": 4}),
    }


FAILING_CLIENT = """
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    raise ValueError(f"no data\\nof client {context.node_config['partition-id'] // 2}")
"""


@pytest.mark.parametrize("engine", [Engine.LOCAL, pytest.param(Engine.RAY, marks=[pytest.mark.ray, pytest.mark.long])])
def test_calls_of_clients_that_failed_are_counted(engine: Engine, tmp_path: Path) -> None:
    name = f"failing_on_{engine}"
    app = _app(tmp_path / "app", name, SERVER.replace('result.arrays["w"]', 'initial["w"]'), FAILING_CLIENT)
    played = simulate_app(app, engine, ["num-server-rounds=2"])
    assert played.failed_calls == {"no data of client 0": 4, "no data of client 1": 4}


def test_the_command_warns_of_calls_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = SERVER.replace('result.arrays["w"]', 'initial["w"]')
    simulate(_app(tmp_path / "app", "warned", server, FAILING_CLIENT), engine=Engine.LOCAL)
    assert "20 calls of clients failed" in (output := capsys.readouterr().out)
    assert "no data of client" in output


@pytest.mark.ray
@pytest.mark.long
def test_processes_of_ray_give_the_same(tmp_path: Path) -> None:
    app = _app(tmp_path / "app", "on_ray")
    results = list[object]()
    for engine in Engine:
        simulate_app(app, engine, clients=3)
        results.append(json.loads(Path("found.json").read_text()))
    assert results[0] == results[1]
    assert results[0]["metrics"]["5"] == pytest.approx({"trained": 5, "part": 1, "parts": 3})  # type: ignore[index]


@pytest.mark.long
def test_the_command_shows_flowers_log_and_ends_with_a_line(tmp_path: Path) -> None:
    app = _app(tmp_path / "app", "by_command")
    command = [sys.executable, "-m", "fl_audit.cli.main", "simulate", str(app), "--engine", "local"]
    played = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert played.returncode == 0, played.stderr
    assert "by_command: played with 4 clients on engine local in" in played.stdout
    assert "INFO :      aggregate_train: Received 4 results and 0 failures" in played.stderr


def test_an_app_of_flowers_former_interface_is_played_too(tmp_path: Path) -> None:
    app = _app(tmp_path / "app", "legacy", LEGACY_SERVER, LEGACY_CLIENT)
    simulate_app(app, Engine.LOCAL)
    assert json.loads(Path("found.json").read_text()) == {"clients": 4, "failures": 0}


@pytest.mark.parametrize(
    ("name", "run_config", "expected_message"),
    [
        ("other_key", "num-rounds=2", "key 'num-rounds': accepted are num-server-rounds, params.rate and fails"),
        ("no_value", "num-server-rounds=two", "'num-server-rounds=two' cannot be read: accepted are texts such as"),
        ("no_pair", "num-server-rounds 2", "'num-server-rounds 2' cannot be read: accepted are texts such as"),
        ("a_list", "num-server-rounds=[2]", r"--run-config, num-server-rounds is \[2\]: accepted are numbers, texts"),
        ("no_file", "missing.toml", "'missing.toml' cannot be read: .* or one TOML file"),
        ("failing", "fails=true", r"of failing raised ValueError: no data here \(server_app.py, line \d+\)$"),
    ],
)
def test_what_cannot_be_played_is_said_in_a_line(
    name: str, run_config: str, expected_message: str, tmp_path: Path
) -> None:
    assert_refused(expected_message, lambda: simulate_app(_app(tmp_path / "app", name), Engine.LOCAL, [run_config]))


@pytest.mark.parametrize(
    "texts",
    [
        ["num-server-rounds=2 params.rate=0.25"],
        ["fails=true", "params.rate=1e-3"],
        ["name=\"two words\" other='single quotes' params.rate=5"],
        ["params.rate=0.1", "params.rate=0.2"],
        ["values.toml"],
    ],
)
def test_run_configurations_are_read_as_by_flower(texts: list[str]) -> None:
    Path("values.toml").write_text("num-server-rounds = 4\n[params]\nrate = 0.75\n")
    assert run_config_values(texts) == parse_config_args(texts)
