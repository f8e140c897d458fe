"""The devices that parties can compute on; this module does not import torch."""

from enum import StrEnum


class Device(StrEnum):
    """A processor, or a graphics card that torch reaches through CUDA (or ROCm, which goes by the same name)."""

    CPU = "cpu"
    CUDA = "cuda"
