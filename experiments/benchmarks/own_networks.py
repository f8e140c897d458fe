"""Two networks as users write them, for benchmarks: nothing in the software knows them."""

import torch.nn.functional as F
from torch import Tensor, nn


def group_norm_cnn() -> nn.Module:
    """Return a convolutional network with group normalisation, for images of 28 by 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


class ResidualBlock(nn.Module):
    """Two convolutions with group normalisation, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.first_norm, self.second_norm = (nn.GroupNorm(4, channels) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        """Apply the block to images (n, channels, height, width)."""
        inner = F.relu(self.first_norm(self.first(images)))
        return F.relu(images + self.second_norm(self.second(inner)))


def residual_net() -> nn.Module:
    """Return a residual network of two blocks, for images of 28 by 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, stride=2), nn.ReLU(), ResidualBlock(16), ResidualBlock(16)),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * 49, 10)),
    )
