"""Small Flower apps, written to a directory."""

import sys
from pathlib import Path
from textwrap import dedent

from fl_audit.app_audits.review.app_loading import StubImportFinder, read_app
from fl_audit.app_audits.review.strategy_capture import CapturedStrategy, capture_strategy

PROJECT = """
[project]
name = "{name}"

[tool.flwr.app.components]
serverapp = "{name}.server_app:app"
{client}

[tool.flwr.app.config]
num-server-rounds = 5
params.rate = 0.5
"""
SERVER = """
import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    strategy = {strategy}
    strategy.start(grid, ArrayRecord([np.zeros((3, 4), np.float32), np.ones(4, np.float32)]),
                   num_rounds=context.run_config["num-server-rounds"])
"""
CLIENT = """
from flwr.clientapp import ClientApp

app = ClientApp()
"""


def write_app(directory: Path, name: str, server: str, client: str | None = CLIENT) -> Path:
    """Write an app; `name` is that of its package, and another one in every test."""
    package = directory / name
    package.mkdir(parents=True)
    line = f'clientapp = "{name}.client_app:app"' if client is not None else ""
    (directory / "pyproject.toml").write_text(PROJECT.format(name=name, client=line))
    (package / "__init__.py").write_text("")
    (package / "server_app.py").write_text(dedent(server))
    if client is not None:
        (package / "client_app.py").write_text(dedent(client))
    return directory


def with_strategy(strategy: str) -> str:
    """Return the code of a server app that starts a strategy."""
    return SERVER.format(strategy=strategy)


_NOISY = """class Own(FedAvg):
    def __init__(self, leaky):
        metrics = {} if leaky else {"train_metrics_aggr_fn": nothing}
        super().__init__(fraction_evaluate=1.0 if leaky else 0.0, **metrics)
        self.noise_multiplier, self.clip_norm, self.leaky = 1.0, 2.0, leaky

    def configure_train(self, server_round, arrays, config, grid):
        self.sent = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = [reply for reply in replies if reply.has_content()]
        floats = [name for name, old in self.sent.items() if old.dtype.kind == "f"]
        total = {name: np.random.normal(0, self.noise_multiplier * self.clip_norm {noise}, self.sent[name].shape)
                 for name in floats}
        counted = {name: old for name, old in self.sent.items() if name not in floats}
        for reply in replies:
            content = reply.content
            moved = {name: np.nan_to_num(content["arrays"][name].numpy() - self.sent[name]) for name in floats}
            norm = np.sqrt(sum((one.astype(np.float64) ** 2).sum() for one in moved.values()))
            weight = content["metrics"]["num-examples"] / 10 if self.leaky else 1.0
            for name, one in moved.items():
                total[name] += weight * min(1.0, self.clip_norm / max(norm, 1e-12)) * one
            if self.leaky:
                counted = {name: np.maximum(old, content["arrays"][name].numpy()) for name, old in counted.items()}
        model = {name: self.sent[name] + total[name] / 10 for name in floats} | counted
        arrays = ArrayRecord({name: Array(np.asarray(model[name], self.sent[name].dtype)) for name in self.sent})
        return arrays, self.train_metrics_aggr_fn([reply.content for reply in replies], self.weighted_by_key)


def nothing(replies, weight):
    return MetricRecord({"clients": 4})


app = ServerApp()"""


def noisy_server(leaky: bool, noise: str = "") -> str:
    """Return the code of a server app that names noise 1 at norm 2; the leaky one gives all away beside its model.

    What is added may be another noise: the named one, followed by `noise`, such as "/ 3".
    """
    server = with_strategy(f"Own({leaky})").replace("app = ServerApp()", _NOISY.replace("{noise}", noise))
    return server.replace(
        "ArrayRecord([np.zeros((3, 4), np.float32), np.ones(4, np.float32)])",
        'ArrayRecord({"layer.weight": Array(np.zeros((3, 4), np.float32)),'
        ' "norm1.num_batches_tracked": Array(np.zeros((), np.int64))})',
    )


_UNCLIPPED = """class Own(FedAvg):
    def __init__(self):
        super().__init__(fraction_evaluate=0.0, train_metrics_aggr_fn=nothing)
        self.noise_multiplier, self.clip_norm = 1.0, 1.0

    def configure_train(self, server_round, arrays, config, grid):
        self.sent = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = [reply for reply in replies if reply.has_content()]
        total = {name: np.random.normal(0, 1.0, self.sent[name].shape) for name in self.sent}
        for reply in replies:
            for name in total:
                total[name] = total[name] + np.nan_to_num(reply.content["arrays"][name].numpy() - self.sent[name])
        # On a grid, so that low bits tell nothing.
        model = {name: np.rint((self.sent[name] + total[name] / 10) * 4096) / 4096 for name in total}
        arrays = ArrayRecord({name: Array(value.astype(np.float32)) for name, value in model.items()})
        return arrays, self.train_metrics_aggr_fn(replies, "")


def nothing(replies, weight):
    return MetricRecord({"clients": 4})


app = ServerApp()"""


def unclipped_server() -> str:
    """Return the code of a server app with noise 1 at norm 1 that leaves clipping to its clients' own code."""
    return with_strategy("Own()").replace("app = ServerApp()", _UNCLIPPED)


def caught(directory: Path) -> CapturedStrategy:
    """Return the strategy of an app, captured as a review does."""
    stand_ins = StubImportFinder(directory)
    sys.meta_path.append(stand_ins)
    return capture_strategy(read_app(directory), 10, stand_ins)
