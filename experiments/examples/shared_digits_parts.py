"""Shared parts of the example apps: scikit-learn's digits divided among clients, a small network, and its training."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message
from flwr.serverapp.strategy import Result
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

_TEST = 300


@cache
def _digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels


class DigitsNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(images)))


def shard(context: Context, largest: int = 100) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the training images and labels of a client.

    Parameters
    ----------
    context
        Flower context of the client, which has its partition number.
    largest
        Largest number of images to return.

    Returns
    -------
    tuple
        Images with values from 0 to 1, float32 of shape (n, 64), and labels from 0 to 9, shape (n,).
    """
    partition = int(context.node_config["partition-id"])
    partitions = int(context.node_config["num-partitions"])
    images, labels = _digits()
    chosen = np.arange(_TEST + partition, len(images), partitions)[:largest]
    return images[chosen], labels[chosen]


def test_set() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return 300 test images, shape (300, 64), and their labels, shape (300,), which no client has."""
    images, labels = _digits()
    return images[:_TEST], labels[:_TEST]


def dataset(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> TensorDataset:
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


def train(net: nn.Module, records: TensorDataset, rate: float) -> float:
    """Train a network in place for one epoch with SGD, and return the loss of the last mini-batch.

    Parameters
    ----------
    net
        The network to train.
    records
        Images, shape (n, 64), and labels, shape (n,).
    rate
        Learning rate of SGD.
    """
    loader: DataLoader[Any] = DataLoader(records, batch_size=20, shuffle=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    loss = torch.zeros(())
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def evaluate(net: nn.Module, records: TensorDataset) -> tuple[float, float]:
    """Return the mean cross-entropy loss and the accuracy (0 to 1) of a network on records."""
    images, labels = records.tensors
    with torch.no_grad():
        scores = net(images)
    return float(nn.functional.cross_entropy(scores, labels)), float((scores.argmax(1) == labels).double().mean())


def seeded(message: Message, context: Context) -> None:
    """Seed torch's global random number generator if the server's message contains a seed.

    The generator's seed also depends on the round and the partition number, so that runs are reproducible.

    Parameters
    ----------
    message
        Message of the server.
    context
        Flower context of the client.
    """
    config = message.content.config_records["config"]
    if "seed" in config:
        round = int(str(config["server-round"]))
        partition = int(context.node_config["partition-id"])
        torch.manual_seed(int(str(config["seed"])) + 1000 * round + partition)


def rate(message: Message) -> float:
    """Return the learning rate that the server's message contains."""
    return float(str(message.content.config_records["config"]["lr"]))


def train_settings(rate: float) -> ConfigRecord:
    """Return the settings that the server sends to clients: a learning rate, and a seed if EXAMPLE_SEED is set."""
    seed = os.environ.get("EXAMPLE_SEED")
    return ConfigRecord({"lr": rate} | ({} if seed is None else {"seed": int(seed)}))


def save(result: Result) -> None:
    """Write the final model to `final_model.npz` and all metrics to `metrics.json`, in the working directory."""
    np.savez("final_model.npz", **{name: array.numpy() for name, array in result.arrays.items()})
    kinds = (result.train_metrics_clientapp, result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp)
    metrics = [{str(round): dict(record) for round, record in kind.items()} for kind in kinds]
    Path("metrics.json").write_text(json.dumps(metrics))
