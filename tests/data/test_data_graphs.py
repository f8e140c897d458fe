"""Graphs as values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_audit.data.graphs import Graphs
from fl_audit.errors import InputError


def matrices() -> st.SearchStrategy[list[np.ndarray]]:
    one = st.integers(1, 6).flatmap(lambda nodes: arrays(np.bool_, (nodes, nodes)))
    return st.lists(one.map(lambda matrix: matrix | matrix.T), min_size=1, max_size=5)


@given(matrices())
def test_adjacency_matrices_come_back(found: list[np.ndarray]) -> None:
    graphs = Graphs.of_adjacency(found, np.zeros(len(found)), 1)
    for number, matrix in enumerate(found):
        assert np.array_equal(graphs.adjacency(number), matrix)
        assert graphs.degrees(number).tolist() == matrix.sum(axis=1).tolist()
        assert len(graphs.edges_of(number)) == np.triu(matrix).sum()
    assert np.array_equal(graphs.changed(np.logical_not).adjacency(0), ~found[0])


def test_graphs_are_taken_in_order() -> None:
    path = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 1]], dtype=np.bool_)
    graphs = Graphs.of_adjacency([path, np.zeros((2, 2), dtype=np.bool_)], [1, 0], 2).take([1, 0, 0])
    assert graphs.nodes.tolist() == [2, 3, 3]
    assert graphs.labels.tolist() == [0, 1, 1]
    assert np.array_equal(graphs.adjacency(1), graphs.adjacency(2))
    with pytest.raises(InputError, match="graph is 3: accepted are 0 to 2"):
        graphs.edges_of(3)
    with pytest.raises(InputError, match="no graph is chosen"):
        graphs.take([])


@pytest.mark.parametrize(
    ("edges", "counts", "nodes", "labels", "words"),
    [
        ([[0, 3]], [1], [3], [0], "edge 0-3 of graph 0: accepted are pairs of nodes from 0 to 2"),
        ([[1, 0]], [1], [3], [0], "edge 1-0 of graph 0"),
        ([[0, 1], [0, 1]], [2], [3], [0], "edge 0-1 of graph 0: .* each once"),
        ([[0, 1], [0, 1]], [1, 0], [3, 3], [0, 0], "edge counts do not add up to the 2 edges"),
        ([[0, 1]], [1], [3, 3], [0], r"shapes \(1,\), \(2,\), \(1,\)"),
        ([], [], [], [], "there are 0 graphs"),
        ([], [0], [0], [0], "a graph has 0 nodes"),
        ([], [0], [1], [2], "a label is 2: accepted are 0 to 1"),
    ],
)
def test_impossible_graphs_are_refused(edges: list, counts: list, nodes: list, labels: list, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Graphs(np.array(edges), np.array(counts), np.array(nodes), np.array(labels), 2)
