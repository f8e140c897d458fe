"""Convert arrays to bytes in numpy's .npy format and back, with one copy for writing and none for reading.

Copies are avoided because, with a large model, messages cause most of the cost of a round. To copy the models of all
trials once takes a considerable part of the time that it takes to compute one layer.
"""

import threading
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

if TYPE_CHECKING:  # A client of somebody's app packs arrays without it.
    from torch import Tensor

_KIND = "numpy.ndarray"
_MAGIC = npy.magic(1, 0)
_PARSER = threading.Lock()
"""Lock for Python's parser, which reads headers and which CPython 3.11 may fail to run in two threads at once ("AST
constructor recursion depth mismatch").
"""
_LENGTH = slice(len(_MAGIC), len(_MAGIC) + 2)


class FlowerArrayArguments(NamedTuple):
    """Fields of an array in a Flower message, in the order that `flwr.app.Array` takes them: `Array(*pack(values))`."""

    dtype: str
    shape: tuple[int, ...]
    stype: str
    data: bytes


class FlowerArray(Protocol):
    """An array in a Flower message: its bytes, and the name of their format."""

    stype: str
    data: bytes

    def numpy(self) -> NDArray[Any]:
        """Return the values as a new numpy array."""


def pack(values: NDArray[Any]) -> FlowerArrayArguments:
    """Return the fields of `flwr.app.Array` for an array of any shape and of any dtype except object.

    The bytes are those that `numpy.save` writes.
    """
    values = np.asarray(values, order="C")
    name, header = _header(values.dtype, values.shape)
    data = b"".join((header, values.reshape(-1).view(np.uint8).data))
    return FlowerArrayArguments(name, values.shape, _KIND, data)


def unpack(array: FlowerArray) -> NDArray[Any]:
    """Return the values of an array in a message as a read-only view of its bytes, without a copy.

    Arrays in a layout that `pack` does not write are copied. `ValueError` or `TypeError` is raised for other bytes.
    """
    # Bytes that came by Ray may be a view of its object store, which has no methods of bytes.
    if array.stype != _KIND or bytes(array.data[: len(_MAGIC)]) != _MAGIC:
        return array.numpy()
    start = _LENGTH.stop + int.from_bytes(array.data[_LENGTH], "little")
    with _PARSER:
        shape, by_columns, dtype = _read_header(bytes(array.data[_LENGTH.start : start]))
    if by_columns or dtype.hasobject:
        return array.numpy()
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(array.data, dtype, count=count, offset=start).reshape(shape)


def copy_to_tensor(values: NDArray[Any]) -> "Tensor":
    """Return the values as a tensor in memory that torch allocates, so its alignment is always the same.

    The last bits of matrix products depend on the alignment.
    """
    import torch  # a client of somebody's app packs arrays without it  # noqa: PLC0415

    owned = torch.from_numpy(np.empty(0, values.dtype)).new_empty(values.shape)
    np.copyto(owned.numpy(), values)
    return owned


@lru_cache(maxsize=64)
def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[str, bytes]:
    """Return the dtype's name, and the magic string and header of a .npy file for a C-ordered array."""
    header = BytesIO()
    fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(header, fields)
    return str(dtype), header.getvalue()


@lru_cache(maxsize=64)
def _read_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order (True for columns first) and dtype; cached, because parsing is slow."""
    shape, by_columns, dtype = npy.read_array_header_1_0(BytesIO(header))
    return shape, by_columns, dtype
