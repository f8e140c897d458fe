"""Networks that are not built into fl_audit, written for benchmarks as a user would write them."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn


def group_norm_cnn() -> nn.Module:
    """Return a convolutional network with group normalisation and random weights, for images of 28 by 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


class ResidualBlock(nn.Module):
    """Residual block of two convolutions with group normalisation, whose result is added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.first_norm, self.second_norm = (nn.GroupNorm(4, channels) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        """Apply the block to images (n, channels, height, width)."""
        inner = F.relu(self.first_norm(self.first(images)))
        return F.relu(images + self.second_norm(self.second(inner)))


def residual_net() -> nn.Module:
    """Return a residual network of two blocks with random weights, for images of 28 by 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, stride=2), nn.ReLU(), ResidualBlock(16), ResidualBlock(16)),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * 49, 10)),
    )


def _dense(parameters: int) -> nn.Module:
    """Return a dense network of about this many parameters, on 100 features for ten classes."""
    hidden = max(1, round((parameters - 10) / 111))
    return nn.Sequential(nn.Linear(100, hidden), nn.ReLU(), nn.Linear(hidden, 10))


dense_3, dense_4, dense_5, dense_6, dense_7 = (partial(_dense, 10**power) for power in range(3, 8))
"""Dense networks of 10^3 to 10^7 parameters."""
