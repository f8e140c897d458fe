"""A small network that replaces the paper's pretrained VGG-16, whose weights are not available."""

from collections.abc import Sequence

import torch
from torch import nn

SMALL_FACES = f"{__name__}:small_faces"  # the name of the network for faces in a configuration

_CHANNELS = 16
_KERNEL = 8
_STRIDE = 4


def small_faces(feature_shape: Sequence[int], classes: int) -> nn.Module:
    """Return a small convolutional network with random weights for grey images, which replaces the pretrained VGG-16.

    The layers are a convolution with 16 channels, 8x8 kernel and stride 4, ReLU, 2x2 max pooling and one dense layer:
    16,740 parameters with 64x64 pixels and 20 people. All layers are trained; the paper trains only the last of VGG-16.
    """
    convolved = nn.Sequential(
        nn.Conv2d(feature_shape[0], _CHANNELS, _KERNEL, stride=_STRIDE), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    width = convolved(torch.zeros(1, *feature_shape)).shape[1]
    return nn.Sequential(*convolved, nn.Linear(width, classes))
