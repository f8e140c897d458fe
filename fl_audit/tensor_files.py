"""Read files of tensors."""

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from fl_audit.ordinary_files import open_file, readable

_LARGEST = 2**63  # a file of tensors is not compressed, and takes no more memory than it has bytes


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file by name; raise `InputError` if the file cannot be read."""
    with readable(path, "no file of tensors that can be read", "a complete file"):
        open_file(path, _LARGEST).close()
        stored: dict[str, Tensor] = load_file(path)
        return stored
