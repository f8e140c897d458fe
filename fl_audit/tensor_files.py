"""Read files of tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from fl_audit.ordinary_files import open_file, readable

_LARGEST = 2**63  # a file of tensors is not compressed, and takes no more memory than it has bytes


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Yield an open safetensors file; errors of the block become an `InputError` about the file."""
    with readable(path, "no file of tensors that can be read", "a complete file"):
        open_file(path, _LARGEST).close()
        with safe_open(path, "pt") as file:
            yield file


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file by name; raise `InputError` if the file cannot be read."""
    with open_tensors(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
