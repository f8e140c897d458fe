"""Servers that do not do what they say."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.strategies.dp_strategy import DPStrategy
from fl_audit.trials import TrialBatch


class HalvedNoise(DPStrategy):
    """Adds half of the noise that its mechanism names."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: NDArray[np.float64]) -> Tensor:
        """Return sums with half of the noise."""
        return super().noise(batch, server_round, total, sigma / 2)
