"""Graphs as records: cut to a largest number of nodes, packed, and compared node pair by node pair."""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.data.randomisers.edges import AdjacencyMatrix
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.learning.packed_graphs import pack_graph, packed_shape, unpack_graph

GRAPH_NODES = 128
"""Nodes that a graph keeps unless another number is named. Of COLLAB's 5,000 graphs 508 have more, and lose nodes.

With 64 nodes 1,857 lose some, with 200 nodes 285, with 492 none; a clipped gradient of DGCNN took 0.3 ms a graph and
world with 64 nodes, 0.6 with 128, 1.1 with 200 and 6 with 492 (one core). Accuracy was alike with 64, 128 and 200.
"""


_GRAPH = "accepted is a symmetric matrix (nodes, nodes) of truth values, or of 0 and 1"


def graph_records(
    matrices: Sequence[AdjacencyMatrix], labels: ArrayLike, classes: int, nodes: int = GRAPH_NODES
) -> Records:
    """Return graphs as packed records, of shape `packed_shape(nodes)`, those with more nodes cut by `cut_graph`.

    Parameters
    ----------
    matrices
        Adjacency matrices of the graphs, at least one: symmetric, truth values or 0 and 1, each of one node or more.
    labels, classes
        Class of each graph, shape (graphs,), whole numbers from 0; and the number of classes, at least 1.
    nodes
        N, how many nodes a graph keeps at most, at least 2; no more than the largest graph has are stored. The time of
        a model that multiplies by adjacency matrices grows with N^2, and a graph takes 4 (N + N^2 / 24) bytes.
    """
    require(isinstance(nodes, Integral) and nodes >= 2, f"graph-nodes is {nodes!r}: accepted are whole numbers from 2")
    require(len(matrices) > 0, "there is no graph: accepted are 1 and more")
    graphs = [_graph(number, matrix) for number, matrix in enumerate(matrices)]
    nodes = min(nodes, max(map(len, graphs)))
    features = np.empty((len(graphs), *packed_shape(nodes)), dtype=np.float32)
    for number, graph in enumerate(graphs):
        features[number] = pack_graph(cut_graph(graph, nodes), nodes)
    return Records(features, np.asarray(labels), classes, graphs=True)


def _graph(number: int, given: ArrayLike) -> AdjacencyMatrix:
    """Return an adjacency matrix as truth values, or refuse what is none."""
    try:
        matrix = np.asarray(given)
    except ValueError as error:
        raise InputError(f"graph {number} has rows of different lengths: {_GRAPH}") from error
    is_square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 1
    require(is_square, f"graph {number} is a matrix of shape {matrix.shape}: {_GRAPH}")
    others = matrix[~np.isin(matrix, (0, 1))] if matrix.dtype != np.bool_ else matrix[:0]
    require(others.size == 0, f"graph {number} has the entry {others[:1].tolist()}: {_GRAPH}")
    joined = matrix.astype(np.bool_)
    require(np.array_equal(joined, joined.T), f"graph {number} joins a node to another, and not back: {_GRAPH}")
    return joined


def cut_graph(adjacency: AdjacencyMatrix, nodes: int) -> AdjacencyMatrix:
    """Return the adjacency matrix among the nodes of highest degree, in their order; of equal degrees the first ones.

    Parameters
    ----------
    adjacency, nodes
        Shape (m, m), and how many nodes may remain. A graph with no more is returned as it is.
    """
    if len(adjacency) <= nodes:
        return adjacency
    kept = np.sort(np.argsort(-adjacency.sum(axis=1), kind="stable")[:nodes])
    return adjacency[np.ix_(kept, kept)]


def comparable(records: Records) -> Records:
    """Return records whose features, one by one, say how they differ.

    Those of packed graphs become truth values: which nodes are there, and which pairs of nodes are joined, each pair
    once. The Euclidean distance of two graphs is then the root of the number of these in which they differ, with nodes
    in the order in which the graphs have them. Other records are returned as they are.
    """
    if not records.graphs:
        return records
    nodes = records.shape[0]
    above = np.triu_indices(nodes)
    features = np.zeros((len(records), nodes + above[0].size), dtype=np.float32)
    for number, packed in enumerate(records.features):
        joined = unpack_graph(packed)
        whole = np.zeros((nodes, nodes), dtype=np.bool_)
        whole[: len(joined), : len(joined)] = joined
        features[number, : len(joined)] = 1.0
        features[number, nodes:] = whole[above]
    return replace(records, features=features, graphs=False)
