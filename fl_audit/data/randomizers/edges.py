"""Randomise graphs by randomised response on their edges."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.data.packed_graphs import AdjacencyMatrix, pack_graph, unpack_graph
from fl_audit.data.randomizers.randomized_responses import draws_above, responses
from fl_audit.data.randomizers.record_shapes import require_pair
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.identifiability_bounds import truth_probability

_FEWEST_NODES = 2


@dataclass(frozen=True)
class RandomisedEdges:
    """Randomised response on every pair of nodes of an undirected graph: edge-local differential privacy.

    For each pair of different nodes, the randomizer reports whether they are joined, truthfully with probability
    e^epsilon / (1 + e^epsilon). The matrix stays symmetric, and self-loops are left out. Then every node gets "at least
    one symmetric edge" (Bernau et al. 2019, section 4.3, which does not say how): in the order of the nodes, each node
    without an edge is joined to the next node, and the last node to the one before it. This post-processing costs no
    privacy. It hides the randomised response of some pairs: where it would add the edge anyway, the observed edge
    carries no information.

    Graphs are packed as in `fl_audit.data.packed_graphs`. The number of nodes is not randomised, so graphs of different
    sizes are distinguished with certainty. Raises `InputError` if epsilon is negative or not finite.
    """

    epsilon: float  # epsilon_i of one pair of nodes, from 0 (a random graph that tells nothing)
    kind: Literal["randomised-edges"] = "randomised-edges"

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)

    def require_records(self, records: Records) -> None:
        """Raise `InputError` unless records are graphs of at least two nodes each."""
        name = self.kind
        require(
            records.graphs, f"local-randomizer is '{name}' and the records are no graphs: accepted are graphs alone"
        )
        fewest = min(len(unpack_graph(packed)) for packed in records.features)
        accepted = f"accepted are {_FEWEST_NODES} and more"
        require(fewest >= _FEWEST_NODES, f"local-randomizer is '{name}' and a graph has {fewest} nodes: {accepted}")

    def perturb(self, features: Floats32, generator: np.random.Generator) -> Floats32:
        """Return graphs with randomised edges, packed like `features` and in the same shape.

        Each pair of nodes is randomised. A node that then has no edge is joined to another node.

        Shapes: `generator` (0, 1).

        `features`: Raises `InputError` unless each is symmetric and has at least two nodes.
        """
        perturbed = np.empty_like(features)
        for number, packed in enumerate(features):
            adjacency = _graph(packed)
            above = np.triu_indices(len(adjacency), 1)
            lies = draws_above(truth_probability(self.epsilon), above[0].size, generator)
            matrix = np.zeros_like(adjacency)
            matrix[above] = adjacency[above] ^ lies
            perturbed[number] = pack_graph(_without_lonely_nodes(matrix | matrix.T), len(packed))
        return perturbed

    def log_odds(self, observed: NDArray[Any], first: Floats32, second: Floats32) -> Floats:
        """Return log P(observed | first) / P(observed | second) of randomised graphs, in nats, shape (graphs,).

        Each pair of nodes in which `first` and `second` differ adds epsilon if the observed graph agrees with `first`,
        and subtracts epsilon otherwise. If a node has no edge after randomisation, `perturb` adds an edge between it
        and another node. An edge that may come from this step adds 0, because the graph would have it in any case.
        Raises `InputError` if a graph is not symmetric, if the graphs have different numbers of nodes, or if an
        observed node has no edge.

        Shapes: `observed` (graphs, nodes, width).
        """
        observed_graphs = np.stack([_graph(packed) for packed in observed])
        first_graph = _graph(first)
        second_graph = _graph(second)
        require_pair(observed_graphs, first_graph, second_graph)
        require(
            bool(observed_graphs.any(axis=-1).all()), "an observed node has no edge: accepted is what `perturb` returns"
        )
        agreeing = (observed_graphs == first_graph).astype(np.int64) - (observed_graphs == second_graph)
        agreeing[_repaired_edges(observed_graphs)] = 0
        return np.asarray(self.epsilon * np.triu(agreeing, 1).sum(axis=(-2, -1)), dtype=np.float64)

    def differing(self, first: Floats32, second: Floats32) -> int | None:
        """Return how many pairs of nodes have an edge in only one of two graphs; None if the numbers of nodes differ.

        Shapes: `first` (nodes, width), `second` (nodes, width).
        """
        first_graph = _graph(first)
        second_graph = _graph(second)
        return (
            int(np.count_nonzero(np.triu(first_graph != second_graph, 1)))
            if first_graph.shape == second_graph.shape
            else None
        )

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return the releases by which Bernau et al. 2019 compute their guarantee.

        There is one randomised response for each edge that a node can have, in a graph of shape (nodes, nodes). The
        paper assumes a largest degree of 2,000, and multiplies epsilon by this degree. COLLAB's largest graph has 492
        nodes, and its largest degree is 491.
        """
        return responses(self.epsilon, shape[-1] - 1)

    def events_of_opposite_records(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return the release event of a whole graph: one randomised response for every pair of nodes.

        The event compares two graphs that differ at every pair. `shape` is the shape (nodes, nodes) of both graphs.
        """
        return responses(self.epsilon, shape[-1] * (shape[-1] - 1) // 2)

    def pair_events(self, first: Floats32, second: Floats32) -> tuple[ReleaseEvent, ...]:
        """Return the releases that tell two graphs apart: one randomised response for each pair of nodes that differs.

        A pair of nodes differs if an edge joins it in only one of the graphs. All responses are one event. Their number
        is an upper bound, because edges that are added after randomization may hide responses. Raises `InputError` if
        the graphs have different numbers of nodes.

        Shapes: `first` (nodes, width), `second` (nodes, width).
        """
        differing = self.differing(first, second)
        require(differing is not None, "graphs have different numbers of nodes: accepted are two of equally many")
        return responses(self.epsilon, differing or 0)


def _graph(packed: NDArray[Any]) -> AdjacencyMatrix:
    """Return the adjacency matrix of a packed graph, which must be symmetric with 2 or more nodes."""
    matrix = unpack_graph(packed.astype(np.float32, copy=False))
    require(len(matrix) >= _FEWEST_NODES, f"a graph has {len(matrix)} nodes: accepted are {_FEWEST_NODES} and more")
    require(np.array_equal(matrix, matrix.T), "a graph is not symmetric: accepted are undirected graphs")
    return matrix


def _partners(nodes: int) -> Integers:
    """Return for each node its neighbour by number, to which it is joined if it has no edge.

    The neighbour is the next node, or the previous one for the last node.
    """
    return np.append(np.arange(1, nodes), nodes - 2)


def _without_lonely_nodes(graph: AdjacencyMatrix) -> AdjacencyMatrix:
    joined = graph.copy()
    for node, partner in enumerate(_partners(len(graph)).tolist()):
        # Asked in order: a node may have been joined to the one before it.
        if not joined[node].any():
            joined[node, partner] = joined[partner, node] = True
    return joined


def _repaired_edges(observed: AdjacencyMatrix) -> AdjacencyMatrix:
    """Return a mask of the edges that may have been added after randomization, to nodes without an edge.

    A node without an edge is joined to its partner (see `_partners`). So the mask is True for an edge that joins a node
    to its partner and is the only edge of the node.
    """
    nodes = np.arange(observed.shape[-1])
    partners = _partners(nodes.size)
    only = observed[..., nodes, partners] & (observed.sum(axis=-1) == 1)
    repaired = np.zeros_like(observed)
    repaired[..., nodes, partners] = only
    repaired |= repaired.swapaxes(-1, -2)
    return repaired
