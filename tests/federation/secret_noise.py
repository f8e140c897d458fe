"""Servers that do not do what they say."""

import numpy as np
from numpy.typing import NDArray

from strategies.dp_fedsgd import DPFedSGD


class HalvedNoise(DPFedSGD):
    """Adds half of the noise that its law names."""

    def noise_scale(self, local_sensitivity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return half of sigma_i."""
        return super().noise_scale(local_sensitivity) / 2
