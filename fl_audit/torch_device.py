"""Check that a torch device is available, and preparation of this process to compute on it."""

import torch

from fl_audit.device import Device
from fl_audit.errors import require


def require_device(device: Device) -> None:
    """Raise `InputError` if this machine does not offer a device."""
    is_there = device is Device.CPU or torch.cuda.is_available()
    what = f"device is {str(device)!r}, but torch {torch.__version__} finds none on this machine"
    require(is_there, f"{what}: accepted is 'cpu', or a build of torch for the graphics card")


def settle_device(device: Device, tf32: bool = False) -> None:
    """Prepare this process to compute on a device.

    Raises `InputError` if this machine does not have the device.

    By default torch lets a GPU round the factors of convolutions to ten bits (TF32), but not those of matrix products.

    Parameters
    ----------
    device
        The device on which torch computes.
    tf32
        Whether a GPU may use TF32 for convolutions and matrix products.
    """
    require_device(device)
    if device is Device.CUDA:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
