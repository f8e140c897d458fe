"""Torch devices on which the parties compute; this module does not import torch."""

from enum import StrEnum


class Device(StrEnum):
    """The CPU, or a GPU under torch's device name "cuda", which ROCm uses as well."""

    CPU = "cpu"
    CUDA = "cuda"
