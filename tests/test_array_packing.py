"""Arrays as bytes of messages: the bytes of numpy's own format, written and read without needless copies."""

from io import BytesIO

import numpy as np
import pytest
from flwr.app import Array

from fl_audit.array_packing import copy_to_tensor, pack, unpack

SOURCE = np.random.default_rng(0)
ARRAYS = [
    SOURCE.normal(size=(3, 5)).astype(np.float32),
    SOURCE.normal(size=(7,)),
    SOURCE.normal(size=(4, 6))[::2, ::3],
    np.asfortranarray(SOURCE.normal(size=(3, 4))),
    np.empty((0, 5), dtype=np.float32),
    np.array(2.5),
    np.array([True, False]),
]


@pytest.mark.parametrize("values", ARRAYS, ids=str)
def test_bytes_are_those_of_numpy(values: np.ndarray) -> None:
    expected = BytesIO()
    np.save(expected, np.ascontiguousarray(values).reshape(values.shape))
    assert pack(values).data == expected.getvalue()
    assert Array(*pack(values)).numpy().tobytes() == values.tobytes()


@pytest.mark.parametrize("values", ARRAYS, ids=str)
def test_a_view_holds_what_was_packed_in_the_memory_of_the_message(values: np.ndarray) -> None:
    array = Array(*pack(values))
    view = unpack(array)
    assert (view.dtype, view.shape) == (values.dtype, values.shape)
    assert np.array_equal(view, values)
    assert not view.flags.writeable
    assert values.size == 0 or np.shares_memory(view, np.frombuffer(array.data, np.uint8))


def test_what_others_packed_is_read_as_flower_reads_it() -> None:
    by_columns = np.asfortranarray(SOURCE.normal(size=(3, 4)))
    assert np.array_equal(unpack(Array(by_columns)), by_columns)
    with pytest.raises(TypeError, match="serialization"):
        unpack(Array("float32", (1,), "other", b"1234"))
    with pytest.raises(ValueError, match="buffer is smaller"):
        unpack(Array("float64", (2,), "numpy.ndarray", pack(np.zeros(2)).data[:-4]))
    objects = BytesIO()
    np.save(objects, np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="Object arrays"):
        unpack(Array("object", (1,), "numpy.ndarray", objects.getvalue()))


def test_a_tensor_of_a_view_is_its_own_and_aligned() -> None:
    values = ARRAYS[0]
    tensor = copy_to_tensor(unpack(Array(*pack(values))))
    assert tensor.data_ptr() % 64 == 0
    tensor += 1
    assert np.array_equal(tensor.numpy(), values + 1)
