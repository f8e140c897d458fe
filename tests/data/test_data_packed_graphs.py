"""Tests that adjacency matrices are packed into rows and unpacked again."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_audit.data.packed_graphs import is_packed_shape, pack_graph, packed_shape, unpack_graph, unpack_graphs


def graphs() -> st.SearchStrategy[np.ndarray]:
    matrices = st.integers(1, 60).flatmap(lambda nodes: arrays(np.bool_, (nodes, nodes)))
    return matrices.map(lambda matrix: matrix | matrix.T)


@given(graphs(), st.integers(0, 30))
def test_adjacency_matrices_come_back(matrix: np.ndarray, absent_nodes: int) -> None:
    nodes = len(matrix) + absent_nodes
    packed = pack_graph(matrix, nodes)
    assert packed.dtype == np.float32
    assert packed.shape == packed_shape(nodes)
    assert packed.min() >= 0
    assert packed[:, 1:].max() < 1
    assert np.array_equal(unpack_graph(packed), matrix)
    (whole,), (present,) = unpack_graphs(torch.from_numpy(packed).unsqueeze(0))
    assert np.array_equal(whole[: len(matrix), : len(matrix)].numpy(), matrix)
    assert whole.sum() == matrix.sum()
    assert np.array_equal(present.numpy(), np.arange(nodes) < len(matrix))


def test_the_digits_stand_where_they_should() -> None:
    matrix = np.zeros((26, 26), dtype=np.bool_)
    matrix[0, [0, 2, 23, 24]] = True
    row = pack_graph(matrix, 30)[0]
    assert row.tolist() == [1.0, 2**-1 + 2**-3 + 2**-24, 2**-1]
    assert pack_graph(np.ones((24, 24), dtype=np.bool_), 24)[0].tolist() == [1.0, 1 - 2**-24]


def test_uniform_numbers_are_random_graphs() -> None:
    """Uniform numbers are packed graphs with half of the nodes, and with half of the pairs of nodes joined.

    The means of 200 x 48 and of about 200 x 24^2 coins are off by 5 standard errors once in a million times.
    """
    packed = torch.rand(200, *packed_shape(48), generator=torch.Generator().manual_seed(0))
    joined, present = unpack_graphs(packed)
    there = present.unsqueeze(1) * present.unsqueeze(2)
    assert abs(float(present.mean()) - 0.5) < 5 * 0.5 / present.numel() ** 0.5
    assert abs(float(joined.sum() / there.sum()) - 0.5) < 5 * 0.5 / float(there.sum()) ** 0.5
    assert float((joined * (1 - there)).sum()) == 0


def test_absent_nodes_have_no_edges_whatever_stands_there() -> None:
    matrix = np.ones((3, 3), dtype=np.bool_)
    clean = pack_graph(matrix, 5)
    spoilt = pack_graph(matrix, 5)
    spoilt[3:, 1:] = 0.7
    spoilt[:3, 1] += 2**-4
    for unpacked_array, expected in zip(
        unpack_graphs(torch.from_numpy(spoilt[np.newaxis])),
        unpack_graphs(torch.from_numpy(clean[np.newaxis])),
        strict=True,
    ):
        assert torch.equal(unpacked_array, expected)
    assert np.array_equal(unpack_graph(spoilt), matrix)


def test_shapes_of_packed_graphs_are_known() -> None:
    assert is_packed_shape((24, 2))
    assert is_packed_shape((25, 3))
    assert not any(map(is_packed_shape, [(24, 3), (64,), (0, 1), (1, 8, 8), (28, 28)]))
