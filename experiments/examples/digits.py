"""Shared parts of the example apps: scikit-learn's digits in shards, a small network, and storage of results."""

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


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(images)))


def shard(context: Context, most: int = 100) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images and labels of one client."""
    part, parts = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    images, labels = _digits()
    chosen = np.arange(_TEST + part, len(images), parts)[:most]
    return images[chosen], labels[chosen]


def test_set() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images and labels that no client has."""
    images, labels = _digits()
    return images[:_TEST], labels[:_TEST]


def dataset(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> TensorDataset:
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


def train(net: nn.Module, records: TensorDataset, rate: float) -> float:
    """Train the network in place for one epoch, and return the loss of the last mini-batch."""
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
    """Return loss and accuracy."""
    images, labels = records.tensors
    with torch.no_grad():
        scores = net(images)
    return float(nn.functional.cross_entropy(scores, labels)), float((scores.argmax(1) == labels).double().mean())


def seeded(message: Message, context: Context) -> None:
    """Seed the random number generators of a client if the message contains a seed, for reproducible runs."""
    config = message.content.config_records["config"]
    if "seed" in config:
        round, part = int(str(config["server-round"])), int(context.node_config["partition-id"])
        torch.manual_seed(int(str(config["seed"])) + 1000 * round + part)


def rate(message: Message) -> float:
    """Return the learning rate in the server's message."""
    return float(str(message.content.config_records["config"]["lr"]))


def train_settings(rate: float) -> ConfigRecord:
    """Return the configuration for clients: their learning rate, and a seed if EXAMPLE_SEED is set."""
    seed = os.environ.get("EXAMPLE_SEED")
    return ConfigRecord({"lr": rate} | ({} if seed is None else {"seed": int(seed)}))


def save(result: Result) -> None:
    """Write the final model and all metrics into the working directory."""
    np.savez("final_model.npz", **{name: array.numpy() for name, array in result.arrays.items()})
    kinds = (result.train_metrics_clientapp, result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp)
    metrics = [{str(round): dict(record) for round, record in kind.items()} for kind in kinds]
    Path("metrics.json").write_text(json.dumps(metrics))
