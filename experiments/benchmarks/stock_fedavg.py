"""Flower's own FedAvg on its simulation runtime, as its documentation has it: what `fedavg_speed` is compared with.

The client trains a torch module with `torch.optim.SGD` on its own records and sends its state; nothing is clipped, and
no noise is added. It stands in a module of its own, which client processes can import.
"""

import time
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from experiments.runs.cluster.access import RayOptions, ray_for
from experiments.talk import settle_flower

app = ClientApp()


def network(features: int, hidden: int, classes: int) -> nn.Module:
    """Return the module that everybody trains.

    Parameters
    ----------
    features
        Number of features.
    hidden
        Width of the hidden layer.
    classes
        Number of classes.
    """
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def train_epoch(module: nn.Module, features: Tensor, labels: Tensor, batch: int, rate: float) -> None:
    """Train one epoch of plain SGD in a random order.

    Parameters
    ----------
    module
        Changed in place.
    features
        Features of the records, (n, features).
    labels
        Their classes, (n,).
    batch
        Number of records of a step.
    rate
        Learning rate.
    """
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    for chosen in torch.split(torch.randperm(len(labels)), batch):
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(module(features[chosen]), labels[chosen]))
        optimizer.step()


@lru_cache(maxsize=1)
def load_records(path: str) -> tuple[Tensor, Tensor]:
    """Return the records of an archive with the arrays `x` and `y`."""
    with np.load(path) as arrays:
        return torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model on the client's own records."""
    torch.set_num_threads(1)
    asked = message.content.config_records["config"]
    records, batch = int(str(asked["records"])), int(str(asked["batch"]))
    first = int(context.node_config["partition-id"]) * records
    features, labels = load_records(str(asked["path"]))
    module = network(features.shape[1], int(str(asked["hidden"])), int(str(asked["classes"])))
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    own = slice(first, first + records)
    train_epoch(module, features[own], labels[own], batch, float(str(asked["rate"])))
    reply = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": records})})
    return Message(reply, reply_to=message)


def stock_rounds(config: ConfigRecord, clients: int, cohort: int, rounds: int, options: RayOptions) -> list[float]:
    """Train with Flower's FedAvg, and return when each round was over, by the monotonic clock.

    Parameters
    ----------
    config
        What clients are told: path, records, batch, rate, hidden and classes.
    clients
        Number of clients of the federation.
    cohort
        Number of clients of a round.
    rounds
        Number of rounds.
    options
        Which Ray: the same as that of our own runs.
    """
    over: list[float] = []

    def note(server_round: int, arrays: ArrayRecord) -> None:
        if server_round > 0:
            over.append(time.monotonic())

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        features, _ = load_records(str(config["path"]))
        initial = network(features.shape[1], int(str(config["hidden"])), int(str(config["classes"]))).state_dict()
        strategy = FedAvg(fraction_train=cohort / clients, fraction_evaluate=0.0, min_available_nodes=clients)
        strategy.start(grid, ArrayRecord(initial), rounds, train_config=config, evaluate_fn=note)

    settle_flower()
    with ray_for(options):
        run_simulation(server, app, clients, backend_config=options.backend_config())
    return over
