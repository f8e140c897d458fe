"""Contents of the file of a released model: its digest, and the number of its tensors and parameters."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from fl_audit.array_files import open_tensors, read_arrays
from fl_audit.errors import require
from fl_audit.ordinary_files import require_ordinary, sha256_of

_SAFETENSORS = ".safetensors"
_NUMPY = ".npz"


@dataclass(frozen=True)
class Checkpoint:
    """The file of a released model, by which others recognise it."""

    file: str  # name of the file, without its directory
    sha256: str  # digest of the file, hexadecimal
    tensors: int  # number of tensors
    parameters: int  # number of values in all tensors, buffers included

    def to_json(self) -> dict[str, Any]:
        """Return the entry `model` of `summary.json`."""
        return asdict(self)


def read_checkpoint(path: Path) -> Checkpoint:
    """Return what the file of a model holds; raise `InputError` unless it is a readable .safetensors or .npz file."""
    require_ordinary("model", path)
    require(path.is_file(), f"model {path} is missing: accepted is a file {_SAFETENSORS} or {_NUMPY}")
    is_known = path.suffix in (_SAFETENSORS, _NUMPY)
    # Other formats, such as those of torch.save, are pickles, which run code when they are read.
    require(
        is_known, f"model {path} is a file {path.suffix or 'without a suffix'}: accepted is {_SAFETENSORS} or {_NUMPY}"
    )
    shapes = list(_shapes(path))
    require(bool(shapes), f"model {path} has no tensors: accepted is a file with the parameters of a model")
    return Checkpoint(path.name, sha256_of(path), len(shapes), sum(map(prod, shapes)))


def _shapes(path: Path) -> Iterable[tuple[int, ...]]:
    if path.suffix == _NUMPY:
        return [array.shape for array in read_arrays(path).values()]
    with open_tensors(path) as file:
        return [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
