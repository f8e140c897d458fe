"""Graphs as values, and COLLAB."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_audit.data.catalogue import is_found
from fl_audit.data.collab import load_collab, parse_graphs
from fl_audit.data.graph_records import GRAPH_NODES, cut_graph, graph_records
from fl_audit.data.graphs import Graphs
from fl_audit.errors import InputError
from fl_audit.learning.graph_convolutions import SORTED_NODES
from fl_audit.learning.packed_graphs import unpack_graph

TEXT = "2\n3 7\n0 2 1 2\n0 1 0\n0 2 2 0\n2 5\n0 0\n0 0\n"
"""A path of three nodes whose last one is joined to itself, and two nodes that are not joined."""
HERE = Path("graphs.txt")


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
    graphs = parse_graphs(TEXT.encode(), HERE).take([1, 0, 0])
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


def test_the_text_of_dgcnn() -> None:
    graphs = parse_graphs(TEXT.encode(), HERE)
    assert graphs.adjacency(0).astype(int).tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 1]]
    assert graphs.degrees(0).tolist() == [2, 1, 2]
    assert not graphs.adjacency(1).any()
    assert (graphs.labels.tolist(), graphs.classes) == ([1, 0], 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("0\n", "holds 0 graphs"),
        (TEXT.replace("7", "7.5"), "something else than whole numbers"),
        (TEXT.replace("7", "x"), "something else than whole numbers"),
        (TEXT[:-3], "ends within graph 2 of 2"),
        (TEXT[:10], "ends within graph 1 of 2"),
        (TEXT + "1\n", "goes on after its last graph"),
        (TEXT.replace("0 2 1 2", "0 2 1 3"), "graph 1 joins a node to one that it does not have: accepted are 0 to 2"),
        (TEXT.replace("0 2 1 2", "0 2 1 1"), "graph 1 joins a node twice to another"),
        (TEXT.replace("0 2 1 2", "0 1 1"), "graph 1 joins a node to another, and not back"),
        (TEXT.replace("0 2 1 2", "0 9 1 2"), "graph 1 joins node 0 to 9 nodes of 3"),
        (TEXT.replace("2 5\n0", "2 5\n1"), "has 2 different tags of nodes: accepted is one"),
        (TEXT.replace("3 7", "0 7"), "graph 1 has 0 nodes"),
    ],
)
def test_spoilt_texts_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse_graphs(text.encode(), HERE)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("graphs.txt")


def test_archives_are_read_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "collab" / "COLLAB.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("COLLAB/COLLAB.txt", TEXT)
    assert len(load_collab(tmp_path)) == 2
    assert [found.name for found in path.parent.iterdir()] == ["COLLAB.zip"]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="is a damaged archive"):
        load_collab(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", TEXT)
    with pytest.raises(InputError, match=r"has no file COLLAB/COLLAB\.txt"):
        load_collab(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"COLLAB.zip not found in"):
        load_collab(tmp_path)


def test_published_collab(published: str) -> None:
    if not is_found("collab", published):
        pytest.skip("no published COLLAB there")
    graphs = load_collab(Path(published))
    assert len(graphs) == 5000
    assert np.bincount(graphs.labels).tolist() == [2600, 775, 1625]
    assert (graphs.nodes.min(), graphs.nodes.max(), graphs.nodes.sum()) == (32, 492, 372_474)
    first, second = graphs.edges.T
    assert (len(graphs.edges), int((first == second).sum())) == (12_288_916, 2837)
    assert max(int(graphs.degrees(number).max()) for number in range(len(graphs))) == 491
    # What the defaults of the model and of the records say.
    assert (graphs.nodes <= SORTED_NODES).mean() >= 0.9 > (graphs.nodes < SORTED_NODES).mean()
    assert int((graphs.nodes > GRAPH_NODES).sum()) == 508
    some = graphs.take(np.arange(0, 5000, 100))
    records = graph_records(some)
    for number in range(len(some)):
        assert np.array_equal(unpack_graph(records.features[number]), cut_graph(some.adjacency(number), GRAPH_NODES))
