"""Small Flower apps, written to a directory."""

from pathlib import Path
from textwrap import dedent

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
