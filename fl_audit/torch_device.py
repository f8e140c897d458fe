"""Check that a torch device exists, prepare this process to compute on it, and move arrays to and from it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.array_packing import copy_to_tensor
from fl_audit.device import Device
from fl_audit.errors import require


def require_device(device: Device) -> None:
    """Raise `InputError` if this machine does not have a device."""
    is_there = device is Device.CPU or torch.cuda.is_available()
    problem = f"device is {str(device)!r}, but torch {torch.__version__} finds none on this machine"
    require(is_there, f"{problem}: accepted is 'cpu', or a build of torch for the graphics card")


def settle_device(device: Device) -> None:
    """Prepare this process to compute on a device; raise `InputError` if this machine does not have it.

    A graphics card does not round the factors of products (TF32), which torch allows for convolutions by default.
    """
    require_device(device)
    if device is Device.CUDA:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False


def to_device(values: NDArray[Any], device: Device) -> Tensor:
    """Return a copy of an array as a tensor on a device.

    A GPU reads the values from page-locked memory, several times as fast as from other memory.
    """
    if device is Device.CPU:
        return copy_to_tensor(values)
    staged = _page_locked(values.shape, torch.from_numpy(np.empty(0, values.dtype)).dtype)
    np.copyto(staged.numpy(), values)
    return staged.to(device, non_blocking=True)


def to_numpy(values: Tensor) -> NDArray[Any]:
    """Return the values of a tensor as an array, which shares the tensor's memory if it is on the CPU.

    Otherwise the array is a copy in page-locked memory, which is scarce, so do not keep the array.
    """
    if values.device.type == "cpu":
        return values.numpy()
    staged = _page_locked(values.shape, values.dtype)
    return staged.copy_(values).numpy()


def _page_locked(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised tensor in memory that the operating system does not move."""
    return torch.empty(shape, dtype=dtype, pin_memory=True)
