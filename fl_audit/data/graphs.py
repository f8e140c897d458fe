"""Graphs with one class label each: records that are no arrays of equal shape."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_audit.errors import InputError, require

Adjacency = NDArray[np.bool_]
"""Which pairs of a graph's nodes are joined: symmetric, shape (nodes, nodes); a node joined to itself is allowed."""

GRAPH_NODES = 128
"""Nodes that a graph keeps unless another number is named. Of COLLAB's 5,000 graphs 508 have more, and lose nodes.

With 64 nodes 1,857 lose some, with 200 nodes 285, with 492 none; a clipped gradient of DGCNN took 0.3 ms a graph and
world with 64 nodes, 0.6 with 128, 1.1 with 200 and 6 with 492 (one core). Accuracy was alike with 64, 128 and 200.
"""


# Compared by identity, as `Records` are.
@dataclass(frozen=True, eq=False)
class Graphs:
    """Undirected graphs with one class label each, as lists of edges.

    The edges of all graphs stand in one array, one graph after the other. An edge is a pair of nodes of its graph, the
    smaller position first, in rising order (by the first node, then by the second), without repetition. An edge from a
    node to itself is written once and adds 1 to the node's degree.

    Raises
    ------
    InputError
        If there is no graph, lengths differ, an edge names no node of its graph or stands out of order, or a label is
        out of range.

    Examples
    --------
    >>> triangle = Graphs(np.array([[0, 1], [0, 2], [1, 2]]), np.array([3]), np.array([3]), np.array([0]), classes=2)
    >>> triangle.degrees(0).tolist()
    [2, 2, 2]
    """

    edges: NDArray[np.int32]  # pairs of nodes, shape (edges, 2), positions from 0 within their graph; kept as int32
    edge_counts: NDArray[np.int64]  # number of edges of each graph, shape (graphs,), from 0; kept as int64
    nodes: NDArray[np.int64]  # number of nodes of each graph, shape (graphs,), from 1; kept as int64
    # Class of each graph, shape (graphs,), whole numbers from 0 to classes - 1; kept as int64.
    labels: NDArray[np.int64]
    classes: int  # number of classes, at least 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", np.ascontiguousarray(self.edges, dtype=np.int32).reshape(-1, 2))
        for name in ("edge_counts", "nodes", "labels"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64))
        self._check_graphs()
        self._check_edges()

    @classmethod
    def of_adjacency(cls, matrices: Iterable[Adjacency], labels: ArrayLike, classes: int) -> "Graphs":
        """Return the graphs of adjacency matrices, whose upper triangles with the diagonal are read.

        Parameters
        ----------
        matrices
            Truth values, each of shape (nodes, nodes); taken one after the other, so that they need not all be held.
        labels, classes
            As for `Graphs`.
        """
        nodes: list[int] = []
        edges: list[NDArray[np.int32]] = []
        for matrix in matrices:
            nodes.append(len(matrix))
            edges.append(np.argwhere(np.triu(matrix)).astype(np.int32))
        counts = [len(found) for found in edges]
        joined = np.concatenate(edges) if edges else np.empty((0, 2), dtype=np.int32)
        return cls(joined, np.array(counts), np.array(nodes), np.asarray(labels), classes)

    def __len__(self) -> int:
        return len(self.labels)

    def edges_of(self, graph: int) -> NDArray[np.int32]:
        """Return the edges of the graph at a position from 0, shape (edges, 2)."""
        self._check_graph(graph)
        return self.edges[self._starts[graph] : self._starts[graph + 1]]

    def adjacency(self, graph: int) -> Adjacency:
        """Return the adjacency matrix of the graph at a position from 0."""
        first, second = self.edges_of(graph).T
        matrix = np.zeros((self.nodes[graph], self.nodes[graph]), dtype=np.bool_)
        matrix[first, second] = matrix[second, first] = True
        return matrix

    def degrees(self, graph: int) -> NDArray[np.int64]:
        """Return how many nodes each node of a graph is joined to, itself included where it is: shape (nodes,)."""
        first, second = self.edges_of(graph).T
        ends = np.concatenate([first, second[first != second]])
        return np.bincount(ends, minlength=int(self.nodes[graph])).astype(np.int64)

    def take(self, indices: ArrayLike) -> "Graphs":
        """Return copies of the graphs at `indices`, positions from 0, at least one, in that order.

        Raises
        ------
        InputError
            If none is chosen.
        """
        chosen = np.asarray(indices, dtype=np.int64).reshape(-1)
        require(chosen.size > 0, "no graph is chosen: at least 1 is needed")
        edges = np.concatenate([self.edges_of(int(graph)) for graph in chosen])
        return Graphs(edges, self.edge_counts[chosen], self.nodes[chosen], self.labels[chosen], self.classes)

    def changed(self, change: Callable[[Adjacency], Adjacency]) -> "Graphs":
        """Return the graphs whose adjacency matrices are those of these graphs after a change, with the same labels."""
        return Graphs.of_adjacency(map(change, map(self.adjacency, range(len(self)))), self.labels, self.classes)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.edge_counts)]).astype(np.int64)

    def _check_graph(self, graph: int) -> None:
        require(0 <= graph < len(self), f"graph is {graph}: accepted are 0 to {len(self) - 1}")

    def _check_graphs(self) -> None:
        sizes = (self.labels.shape, self.nodes.shape, self.edge_counts.shape)
        require(
            self.labels.ndim == 1 and len(set(sizes)) == 1,
            f"labels, nodes and edge counts have shapes {_listed(sizes)}: accepted is one of each for every graph",
        )
        require(len(self) >= 1, "there are 0 graphs: at least 1 is needed")
        require(int(self.nodes.min()) >= 1, f"a graph has {self.nodes.min()} nodes: at least 1 is needed")
        counted = int(self.edge_counts.min()) >= 0 and int(self.edge_counts.sum()) == len(self.edges)
        require(counted, f"edge counts do not add up to the {len(self.edges)} edges: accepted is one count a graph")
        lowest, highest = int(self.labels.min()), int(self.labels.max())
        wrong = lowest if lowest < 0 else highest
        require(lowest >= 0 and highest < self.classes, f"a label is {wrong}: accepted are 0 to {self.classes - 1}")

    def _check_edges(self) -> None:
        # Graph by graph: numbers for all edges at a time would take several times the memory of the edges.
        for graph, nodes in enumerate(self.nodes.tolist()):
            first, second = self.edges_of(graph).astype(np.int64).T
            wrong = (first < 0) | (first > second) | (second >= nodes)
            wrong[1:] |= np.diff(first * nodes + second) <= 0
            if wrong.any():
                at = int(wrong.argmax())
                raise InputError(
                    f"edge {first[at]}-{second[at]} of graph {graph}: accepted are pairs of nodes from 0 to "
                    f"{nodes - 1}, the smaller first, in rising order, each once"
                )


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))
