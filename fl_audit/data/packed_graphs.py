"""Store graphs as records: cut to a largest number of nodes, packed into bits, and compared by their edges.

All records are float32 arrays of one shape. As numbers, the adjacency matrix of COLLAB's largest graph, with 492 nodes,
would take 242,064 entries, and 5,000 such matrices 4.8 GB. A float32 number holds 24 bits exactly. So the packed graph
takes 10,824 numbers, and 5,000 such graphs 216 MB.

A graph of up to N nodes has one row for each node, shape (N, 1 + ceil(N / 24)). The first number of a row is 1 if the
node is present and 0 if the row is padding. The other numbers lie in [0, 1). Their 24 bits after the binary point are
the node's row of the adjacency matrix, in the order of the nodes. Present nodes come before padding.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_audit.array_types import Flags, Floats32
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.value_checks import require_number

if TYPE_CHECKING:
    from torch import Tensor

AdjacencyMatrix = NDArray[np.bool_]
"""Adjacency matrix of a graph, bool, symmetric, shape (nodes, nodes); self-loops are allowed."""
GRAPH_NODES = 128
"""Default of the largest number of nodes that a graph keeps. Of COLLAB's 5,000 graphs, 508 have more and lose nodes.

With a limit of 64 nodes 1,857 graphs lose nodes, with 200 nodes 285, with 492 none. A clipped gradient of DGCNN took
0.3 ms per graph and trial with 64 nodes, 0.6 with 128, 1.1 with 200 and 6 with 492 (one core). Accuracy was alike with
64, 128 and 200 nodes.
"""
DIGITS = 24  # binary digits in a number: as many as a 32-bit floating-point number holds exactly
_IS_THERE = 0.5  # a row belongs to a node that is there if its first number is at least this
_GRAPH = "accepted is a symmetric matrix (nodes, nodes) of truth values, or of 0 and 1"


def graph_records(matrices: Sequence[AdjacencyMatrix], labels: ArrayLike, classes: int, nodes: int) -> Records:
    """Return graphs as `Records` with packed features of shape `packed_shape(nodes)`.

    Graphs with more than `nodes` nodes are cut by `cut_graph`.

    Shapes: `labels` (graphs,).

    `nodes`: If the largest graph has fewer nodes, its size is used instead. With N nodes, a graph takes 4 (N + N^2 /
    24) bytes, and the time of models that multiply by adjacency matrices grows with N^2.
    """
    require_number("graph-nodes is", nodes, "whole numbers from 2")
    require(len(matrices) > 0, "there is no graph: accepted are 1 and more")
    graphs = [_graph(number, matrix) for number, matrix in enumerate(matrices)]
    nodes = min(nodes, max(map(len, graphs)))
    features = np.empty((len(graphs), *packed_shape(nodes)), dtype=np.float32)
    for number, graph in enumerate(graphs):
        features[number] = pack_graph(cut_graph(graph, nodes), nodes)
    return Records(features, np.asarray(labels), classes, graphs=True)


def _graph(number: int, matrix_given: ArrayLike) -> AdjacencyMatrix:
    """Return the adjacency matrix of graph `number` as a bool array, after checks of its form."""
    try:
        matrix = np.asarray(matrix_given)
    except ValueError as error:
        raise InputError(f"graph {number} has rows of different lengths: {_GRAPH}") from error
    is_square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 1
    require(is_square, f"graph {number} is a matrix of shape {matrix.shape}: {_GRAPH}")
    other_values = matrix[~np.isin(matrix, (0, 1))] if matrix.dtype != np.bool_ else matrix[:0]
    require(other_values.size == 0, f"graph {number} has the entry {other_values[:1].tolist()}: {_GRAPH}")
    joined = matrix.astype(np.bool_)
    require(np.array_equal(joined, joined.T), f"graph {number} joins a node to another, and not back: {_GRAPH}")
    return joined


def cut_graph(adjacency: AdjacencyMatrix, nodes: int) -> AdjacencyMatrix:
    """Return the subgraph of the nodes with the highest degrees, in their original order, as an adjacency matrix.

    Of nodes with equal degrees the first ones are kept.

    Shapes: `adjacency` (m, m).
    """
    if len(adjacency) <= nodes:
        return adjacency
    kept_nodes = np.sort(np.argsort(-adjacency.sum(axis=1), kind="stable")[:nodes])
    return adjacency[np.ix_(kept_nodes, kept_nodes)]


def comparable(records: Records) -> Records:
    """Return records with graphs unpacked, so that two records can be compared feature by feature.

    A packed graph becomes a vector of 0 and 1: for each node whether it is present, and for each pair of nodes whether
    they are joined. The squared Euclidean distance of two graphs then counts the nodes and pairs in which they differ.
    Nodes are not matched. Records without graphs are unchanged.
    """
    if not records.graphs:
        return records
    nodes = records.shape[0]
    above = np.triu_indices(nodes)
    features = np.zeros((len(records), nodes + above[0].size), dtype=np.float32)
    for row, joined in zip(features, map(unpack_graph, records.features), strict=True):
        whole = np.zeros((nodes, nodes), dtype=np.bool_)
        whole[: len(joined), : len(joined)] = joined
        row[: len(joined)] = 1.0
        row[nodes:] = whole[above]
    return replace(records, features=features, graphs=False)


def packed_shape(nodes: int) -> tuple[int, int]:
    """Return the shape (nodes, 1 + ceil(nodes / 24)) of a packed graph with up to the given number of nodes.

    Examples
    --------
    >>> packed_shape(128)
    (128, 7)
    """
    return nodes, 1 + ceil(nodes / DIGITS)


def is_packed_shape(shape: tuple[int, ...]) -> bool:
    """Return True if a shape is that of a packed graph, which is (nodes, 1 + ceil(nodes / 24))."""
    return len(shape) == 2 and shape[0] >= 1 and shape == packed_shape(shape[0])


def pack_graph(adjacency: Flags, nodes: int) -> Floats32:
    """Return an adjacency matrix packed into float32 numbers, of shape `packed_shape(nodes)`; padding is 0.

    Shapes: `adjacency` (m, m).

    Examples
    --------
    >>> pack_graph(np.array([[False, True], [True, True]]), 3).tolist()
    [[1.0, 0.25], [1.0, 0.75], [0.0, 0.0]]
    """
    present = len(adjacency)
    require(1 <= present <= nodes, f"a graph has {present} nodes: accepted are 1 to {nodes}")
    _, width = packed_shape(nodes)
    digits = np.zeros((present, (width - 1) * DIGITS), dtype=np.bool_)
    digits[:, :present] = adjacency
    packed = np.zeros((nodes, width), dtype=np.float32)
    packed[:present, 0] = 1.0
    packed[:present, 1:] = digits.reshape(present, width - 1, DIGITS) @ 0.5 ** np.arange(1, DIGITS + 1)
    return packed


def unpack_graph(packed: Floats32) -> Flags:
    """Return the adjacency matrix of a packed graph without padding, bool (m, m): the inverse of `pack_graph`."""
    present = int(np.count_nonzero(packed[:, 0] >= _IS_THERE))
    whole = (packed[:present, 1:] * np.float32(2**DIGITS)).astype(np.int32)
    digits = whole[:, :, np.newaxis] >> np.arange(DIGITS - 1, -1, -1) & 1
    return digits.reshape(present, -1)[:, :present].astype(np.bool_)


def unpack_graphs(packed: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return the adjacency matrices of packed graphs, and for each row whether its node is present.

    Both tensors hold 0 and 1 in the dtype of `packed`, with the shapes (n, nodes, nodes) and (n, nodes). Padding has no
    edges. Only the first 24 bits are read, so uniform random numbers in [0, 1), shape (n, *packed_shape(nodes)), give
    random graphs, on which models can be tested.
    """
    # Imported here, because code that only names a randomizer would otherwise wait for the import.
    import torch  # noqa: PLC0415

    nodes = packed.shape[1]
    tensor = torch.arange(DIGITS - 1, -1, -1, dtype=torch.int32, device=packed.device)
    whole = (packed[:, :, 1:] * 2.0**DIGITS).to(torch.int32)
    digits = (whole.unsqueeze(3) >> tensor) & 1
    present = (packed[:, :, 0] >= _IS_THERE).to(packed.dtype)
    joined = digits.flatten(2)[:, :, :nodes].to(packed.dtype)
    return joined * present.unsqueeze(1) * present.unsqueeze(2), present
