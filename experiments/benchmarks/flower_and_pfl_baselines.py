"""Reference implementations for the benchmark `fedavg_speed`: Flower's FedAvg by simulation, and pfl-research.

Flower's client trains a torch module with `torch.optim.SGD` on its own records and sends its weights; nothing is
clipped and no noise is added. The client has a module of its own so that client processes can import it.
"""

import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.typing import ConfigRecordValues
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from fl_audit.runs.cluster.ray_connection import ray_for
from fl_audit.runs.cluster.ray_options import RayOptions
from fl_audit.runs.verbosity import settle_flower

app = ClientApp()


def network(features: int, hidden: int, classes: int) -> nn.Module:
    """Return the network that all clients train: one hidden layer with ReLU and an output layer."""
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def train_epoch(module: nn.Module, features: Tensor, labels: Tensor, batch: int, rate: float) -> None:
    """Train a module in place for one epoch of plain mini-batch SGD, in random order.

    Shapes: `features` (n, features), `labels` (n,).
    """
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    for chosen in torch.split(torch.randperm(len(labels)), batch):
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(module(features[chosen]), labels[chosen]))
        optimizer.step()


@lru_cache(maxsize=1)
def load_records(path: str) -> tuple[Tensor, Tensor]:
    """Return the features `x` and labels `y` of a .npz archive."""
    with np.load(path) as arrays:
        return torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return a message with the received model after one epoch of training on the client's own records."""
    torch.set_num_threads(1)
    config = message.content.config_records["config"]
    records = int(str(config["records"]))
    batch = int(str(config["batch"]))
    first = int(context.node_config["partition-id"]) * records
    features, labels = load_records(str(config["path"]))
    module = network(features.shape[1], int(str(config["hidden"])), int(str(config["classes"])))
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    shard = slice(first, first + records)
    train_epoch(module, features[shard], labels[shard], batch, float(str(config["rate"])))
    reply = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": records})})
    return Message(reply, reply_to=message)


def stock_rounds(
    config: ConfigRecord, options: RayOptions, on_model: Callable[[nn.Module], None] = lambda module: None
) -> list[float]:
    """Train with Flower's FedAvg, and return the time at the end of each round (monotonic clock, seconds).

    `config`: Settings of the federation: the numbers "clients", "cohort" (clients in a round) and "rounds".

    `on_model`: It is called with the model after the last round.
    """
    over: list[float] = []
    clients, cohort, rounds = (int(str(config[name])) for name in ("clients", "cohort", "rounds"))

    def note(server_round: int, arrays: ArrayRecord) -> None:
        if server_round > 0:
            over.append(time.monotonic())
        if server_round == rounds:
            features, _ = load_records(str(config["path"]))
            module = network(features.shape[1], int(str(config["hidden"])), int(str(config["classes"])))
            module.load_state_dict(arrays.to_torch_state_dict())
            on_model(module)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        features, _ = load_records(str(config["path"]))
        initial = network(features.shape[1], int(str(config["hidden"])), int(str(config["classes"]))).state_dict()
        strategy = FedAvg(fraction_train=cohort / clients, fraction_evaluate=0.0, min_available_nodes=clients)
        strategy.start(grid, ArrayRecord(initial), rounds, train_config=config, evaluate_fn=note)

    settle_flower()
    with ray_for(options):
        resources: dict[str, ConfigRecordValues] = dict(
            options.share()
        )  # Flower uses the Ray that this process has joined
        run_simulation(server, app, clients, backend_config={"init_args": {}, "client_resources": resources})
    return over


PFL_SCRIPT = """
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Network(torch.nn.Sequential):
    def loss(self, features, labels):
        return F.cross_entropy(self(features), labels)

    def metrics(self, features, labels):
        return {}


class Noting(TrainingProcessCallback):
    def __init__(self):
        self.over = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.over.append(time.monotonic())
        return False, Metrics()


def main():
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    np.random.seed(0)
    torch.manual_seed(0)
    set_framework_module(pytorch_ops)
    with np.load(asked["path"]) as arrays:
        features, labels = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    records = asked["records"]

    def own(client):
        place = slice(client * records, (client + 1) * records)
        return Dataset((features[place], labels[place]), user_id=str(client))

    data = FederatedDataset(own, get_user_sampler("random", list(range(asked["clients"]))))
    hidden = asked["hidden"]
    network = Network(
        torch.nn.Linear(features.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, asked["classes"])
    )
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    noting = Noting()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=asked["rounds"],
            evaluation_frequency=10**9,
            train_cohort_size=asked["cohort"],
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=asked["rate"], local_batch_size=asked["batch"]
        ),
        NNEvalHyperParams(local_batch_size=asked["batch"]),
        [noting],
    )
    if get_ops().distributed.global_rank == 0:
        first = asked["clients"] * records
        with torch.no_grad():
            right = (network(features[first:]).argmax(1) == labels[first:]).double().mean()
        print(json.dumps({"over": noting.over, "accuracy": float(right)}), flush=True)
    # Threads of torch's process group are still alive, and a normal end would now and then abort because of them.
    os._exit(0)


if __name__ == "__main__":
    main()
"""
"""The same federation in pfl-research, as a script for an environment of its own: it is no dependency of ours. It takes
the settings as JSON, and prints as JSON when each round was over, by the monotonic clock, and the accuracy of the last
model on the records that no client has."""
