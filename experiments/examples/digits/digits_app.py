"""A Flower app like Flower's PyTorch quickstart, on digits of scikit-learn, which need no download."""

import json
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.datasets import load_digits
from torch import Tensor, nn

_TEST = 300
client_app = ClientApp()
server_app = ServerApp()


def network(arrays: ArrayRecord | None = None) -> nn.Module:
    """Return a network with one hidden layer for images of 8 by 8 pixels, with the given weights if there are any."""
    sequential = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    if arrays is not None:
        sequential.load_state_dict(arrays.to_torch_state_dict())
    return sequential


@cache
def _digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy((images / 16).astype(np.float32)), torch.from_numpy(labels)


def client_records(context: Context) -> tuple[Tensor, Tensor]:
    """Return the images, float32 (n, 64), and the labels, int64 (n,), of a client; 300 images are left for tests."""
    partition, partitions = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    images, labels = _digits()
    return images[_TEST + partition :: partitions], labels[_TEST + partition :: partitions]


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that a model reads rightly."""
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Return the model after one epoch on the client's records, with the number of rounds that it has trained."""
    torch.set_num_threads(1)
    rounds = int(str(context.state.config_records.get("rounds", ConfigRecord({"trained": 0}))["trained"])) + 1
    context.state["rounds"] = ConfigRecord({"trained": rounds})
    # Clients may share a process, so nothing is drawn from torch's own generator.
    draws = torch.Generator().manual_seed(1000 * int(context.node_config["partition-id"]) + rounds)
    model = network(message.content.array_records["arrays"])
    images, labels = client_records(context)
    optimizer = torch.optim.SGD(model.parameters(), lr=float(context.run_config["lr"]))
    for rows in torch.split(torch.randperm(len(labels), generator=draws), 10):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        torch.autograd.backward(loss)
        optimizer.step()
    metrics = MetricRecord({"train_loss": float(loss.detach()), "rounds": rounds, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return the accuracy of the model on the client's records."""
    images, labels = client_records(context)
    right = accuracy(network(message.content.array_records["arrays"]), images, labels)
    metrics = MetricRecord({"accuracy": right, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Train by FedAvg, and store the accuracy and the time of every round in the file `out`."""
    torch.manual_seed(0)
    rounds = list[dict[str, float]]()

    def evaluate_model(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        images, labels = _digits()
        right = accuracy(network(arrays), images[:_TEST], labels[:_TEST])
        rounds.append({"round": server_round, "accuracy": right, "time": time.time()})
        return MetricRecord({"accuracy": right})

    initial = ArrayRecord(network().state_dict())
    FedAvg().start(grid, initial, int(context.run_config["num-server-rounds"]), evaluate_fn=evaluate_model)
    Path(str(context.run_config["out"])).write_text(json.dumps(rounds))
