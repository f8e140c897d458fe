"""What the parties compute on."""

from enum import StrEnum

from fl_audit.errors import require


class Device(StrEnum):
    """A processor, or a graphics card that torch reaches through CUDA (or ROCm, which goes by the same name)."""

    CPU = "cpu"
    CUDA = "cuda"


def require_device(device: Device) -> None:
    """Raise `InputError` if this machine does not offer a device."""
    # Commands that only name devices would wait for it.
    import torch

    is_there = device is Device.CPU or torch.cuda.is_available()
    what = f"device is {str(device)!r}, but torch {torch.__version__} finds none on this machine"
    require(is_there, f"{what}: accepted is 'cpu', or a build of torch for the graphics card")
