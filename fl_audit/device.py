"""Name the devices on which torch computes; this module does not import torch."""

from enum import StrEnum


class Device(StrEnum):
    """Device on which torch computes: the CPU, or a GPU under torch's name "cuda", which ROCm uses as well."""

    CPU = "cpu"
    CUDA = "cuda"
