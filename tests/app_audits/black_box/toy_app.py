"""A Flower app whose clients work in no time: each moves the model towards its own point, and some are odd."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from fl_audit.app_audits.black_box import Audit, StatedClaim, insider
from fl_audit.runs.local_engine import run_locally

CLIENTS = 3


@dataclass
class Heard:
    """Observations of the app's own code: contents of messages and group ids, by round, of training and trials."""

    messages: list[tuple[int, tuple[str, ...], str]] = field(default_factory=list)
    states: list[float] = field(default_factory=list)


def toy_client(mods: list[Any], heard: Heard, size: int = 6) -> ClientApp:
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        before = context.state.metric_records.get("calls", MetricRecord({"calls": 0}))
        context.state["calls"] = MetricRecord({"calls": before["calls"] + 1})
        heard.messages.append((partition, tuple(sorted(message.content)), message.metadata.group_id))
        heard.states.append(before["calls"])
        model = message.content["arrays"].to_numpy_ndarrays()[0]
        model = model + 0.1 * (np.arange(size, dtype=np.float32) == partition)
        metrics = MetricRecord({"loss": float(partition), "num-examples": 10})
        content = RecordDict({"arrays": ArrayRecord([model.astype(np.float32)]), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"size": float(len(message.content)), "num-examples": 10})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def toy_audit(directory: Path, **changes: Any) -> Audit:
    settings: dict[str, Any] = {"trials": 60, "seed": 1, "directory": directory}
    return Audit(**({"claim": StatedClaim("add-remove-client", epsilon=1.0)} | settings | changes))


def kept_in(directory: Path) -> Path:
    """Return where the trials of the last version of an app are kept."""
    return max(directory.glob("*/campaign.json"), key=lambda path: path.stat().st_mtime_ns).parent


def summary_of(directory: Path) -> dict[str, Any]:
    """Return what was found in the trials of the last version of an app."""
    found: dict[str, Any] = json.loads((kept_in(directory) / "summary.json").read_text())
    return found


def reply_with(message: Message, arrays: ArrayRecord, examples: int = 10) -> Message:
    """Return the reply of a client with a model and its number of examples."""
    content = {"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})}
    return Message(RecordDict(content), reply_to=message)


def toy_run(
    strategy: Callable[[], Strategy],
    audit: Audit | None,
    mods: list[Any] | None = None,
    heard: Heard | None = None,
    rounds: int = 2,
    start: dict[str, np.ndarray[Any, Any]] | None = None,
) -> Result:
    """Run the app in this process with the same seed as ever; return the result of its own training."""
    random.seed(0)
    results: list[Result] = []
    server = ServerApp()
    model = {"0": np.zeros(6, np.float32)} if start is None else start
    arrays = ArrayRecord({name: Array(value) for name, value in model.items()})

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        inner = strategy()
        watched = inner if audit is None else audit.watch(inner)
        results.append(watched.start(grid, arrays, num_rounds=rounds))

    client = toy_client([insider] if mods is None else mods, Heard() if heard is None else heard)
    run_locally(server, client, CLIENTS, 30.0)
    return results[0]


class Noisy(FedAvg):
    """A mean with Gaussian noise of one's own generator, as in many apps."""

    def __init__(self, spread: float) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.spread, self.random = spread, np.random.default_rng()

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        value = arrays.to_numpy_ndarrays()[0]
        return ArrayRecord([value + self.noise(value.shape).astype(np.float32)]), metrics

    def noise(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self.random.normal(0, self.spread, shape)
