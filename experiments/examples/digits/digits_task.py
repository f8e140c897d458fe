"""The network of the digits app, the records of a client, and their training."""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

_TEST = 300


class Network(nn.Module):
    """A network with one hidden layer for images of 8 by 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.relu(self.hidden(images)))
        return logits


@cache
def _digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy((images / 16).astype(np.float32)), torch.from_numpy(labels)


def client_records(partition: int, partitions: int) -> tuple[Tensor, Tensor]:
    """Return the images, float32 (n, 64), and the labels, int64 (n,), of one of `partitions` clients."""
    images, labels = _digits()
    return images[_TEST + partition :: partitions], labels[_TEST + partition :: partitions]


def test_records() -> tuple[Tensor, Tensor]:
    """Return 300 images, float32 (300, 64), and their labels, int64 (300,), which no client has."""
    images, labels = _digits()
    return images[:_TEST], labels[:_TEST]


def train(network: nn.Module, images: Tensor, labels: Tensor, rate: float, seed: int) -> float:
    """Train a network in place for one epoch in batches of 10, and return the mean loss of its steps.

    `seed`: It orders the records. Clients may share a process, so nothing is drawn from torch's own generator.
    """
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    losses = []
    for rows in torch.split(torch.randperm(len(labels), generator=draws), 10):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images[rows]), labels[rows])
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses))


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that a network reads rightly."""
    with torch.no_grad():
        return float((network(images).argmax(1) == labels).float().mean())
