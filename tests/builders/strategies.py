"""Servers that add the noise that they claim, or less."""

import numpy as np
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
