"""A model that replaces one that is not available."""

from collections.abc import Sequence

import torch
from torch import nn

SMALL_FACES = f"{__name__}:small_faces"  # the name of the network for faces in a configuration

_CHANNELS, _KERNEL, _STRIDE = 16, 8, 4


def small_faces(feature_shape: Sequence[int], classes: int) -> nn.Module:
    """Return a small convolutional network for grey images, in place of VGG-16 with weights learned from faces.

    A convolution of 16 channels over 8x8 pixels in steps of 4, rectified, a maximum over 2x2, and one dense layer:
    16,740 parameters on 64x64 pixels and 20 people. All of it is trained, where the paper trains the last layer alone.

    Parameters
    ----------
    feature_shape
        Channels, height and width of one image.
    classes
        Number of people, each of whom is a class.
    """
    convolved = nn.Sequential(
        nn.Conv2d(feature_shape[0], _CHANNELS, _KERNEL, stride=_STRIDE), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    width = convolved(torch.zeros(1, *feature_shape)).shape[1]
    return nn.Sequential(*convolved, nn.Linear(width, classes))
