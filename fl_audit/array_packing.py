"""Arrays as bytes of numpy's .npy format: written with one copy, and read without copies.

Rounds of large models consist mostly of messages, and every copy of stacked models takes as long as a good part of a
layer.
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


class PackedFields(NamedTuple):
    """The fields of a message's array: `flwr.app.Array(*pack(values))`."""

    dtype: str
    shape: tuple[int, ...]
    stype: str
    data: bytes


class PackedArray(Protocol):
    """An array in the form in which a message carries it: bytes, and the type of their serialisation."""

    stype: str
    data: bytes

    def numpy(self) -> NDArray[Any]:
        """Return a copy of its values."""


def pack(values: NDArray[Any]) -> PackedFields:
    """Return the message fields of an array without objects, of any shape; the bytes are those of `numpy.save`."""
    values = np.asarray(values, order="C")
    name, header = _header(values.dtype, values.shape)
    data = b"".join((header, values.reshape(-1).view(np.uint8).data))
    return PackedFields(name, values.shape, _KIND, data)


def unpack(array: PackedArray) -> NDArray[Any]:
    """Return the values of a message's array as a read-only view, which keeps the array alive.

    Arrays that `pack` does not write are copied; `ValueError` or `TypeError` report that the bytes are no array.
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
    """Return the values in memory of torch's own, whose alignment is always the same.

    The last bits of matrix products depend on the alignment.
    """
    import torch  # a client of somebody's app packs arrays without it

    owned = torch.from_numpy(np.empty(0, values.dtype)).new_empty(values.shape)
    np.copyto(owned.numpy(), values)
    return owned


@lru_cache(maxsize=64)
def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[str, bytes]:
    """Return name and header of an array stored by rows, cached because headers are few and slow to write."""
    header = BytesIO()
    fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(header, fields)
    return str(dtype), header.getvalue()


@lru_cache(maxsize=64)
def _read_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, order and type in a header, cached because headers are few and slow to parse."""
    shape, by_columns, dtype = npy.read_array_header_1_0(BytesIO(header))
    return shape, by_columns, dtype
