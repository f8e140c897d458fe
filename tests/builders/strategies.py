"""Servers that add the noise that they claim, or less."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, Strategy
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch


class HalvedNoise(TrialBatchStrategy):
    """Strategy that adds half of the noise of its mechanism."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: NDArray[np.float64]) -> Tensor:
        """Return sums with half of the noise."""
        return super().noise(batch, server_round, total, sigma / 2)


def central_noise(multiplier: float = 1.0, norm: float = 1.0, clients: int = 4) -> Strategy:
    """Return averaging in Flower's wrapper, which clips and adds Gaussian noise at the server."""
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), multiplier, norm, clients)


class NoisyMean(FedAvg):
    """Strategy that clips updates to norm 1 and adds noise 1 to their sum; its metrics are those of `aggregate`.

    Without `aggregate` it has the metrics that every FedAvg has: means of whatever clients report.
    """

    clients = 4

    def __init__(self, aggregate: Callable[[list[Any], str], MetricRecord] | None = None) -> None:
        super().__init__(fraction_evaluate=0.0, train_metrics_aggr_fn=aggregate)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Keep the model that is sent, and send it."""
        self.sent = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the noised mean of clipped updates, and metrics."""
        valid_replies = [reply for reply in replies if not reply.has_error()]
        self.validated(valid_replies)
        total = {name: torch.randn(old.shape, dtype=torch.float64).numpy() for name, old in self.sent.items()}
        for reply in valid_replies:
            for name, part in self.contribution(reply).items():
                total[name] += part
        model = {name: Array((old + total[name] / self.clients).astype(old.dtype)) for name, old in self.sent.items()}
        return ArrayRecord(model), self.train_metrics_aggr_fn(
            [reply.content for reply in valid_replies], self.weighted_by_key
        )

    def validated(self, replies: list[Message]) -> None:
        """Look at replies before they are added."""

    def contribution(self, reply: Message) -> dict[str, NDArray[np.float64]]:
        """Return the update of a client, clipped over all tensors together."""
        arrays = {name: array.numpy().astype(np.float64) for name, array in reply.content["arrays"].items()}
        update = {name: arrays[name] - old for name, old in self.sent.items()}
        length = np.sqrt(sum(float(np.sum(part**2)) for part in update.values()))
        return {name: part * min(1.0, 1 / max(length, 1e-12)) for name, part in update.items()}
