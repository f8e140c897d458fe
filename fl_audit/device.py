"""What the parties can compute on; torch, which does, is no part of this module."""

from enum import StrEnum


class Device(StrEnum):
    """A processor, or a graphics card that torch reaches through CUDA (or ROCm, which goes by the same name)."""

    CPU = "cpu"
    CUDA = "cuda"
