"""Randomised response on the edges of graphs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fl_audit.arrays import Floats, Integers
from fl_audit.data.randomisers.common import draws_above, require_pair, responses
from fl_audit.errors import require
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.randomised_response import truth_probability

AdjacencyMatrix = NDArray[np.bool_]
"""Which pairs of a graph's nodes are joined: symmetric, shape (nodes, nodes); a node joined to itself is allowed."""


@dataclass(frozen=True)
class RandomisedEdges:
    """Randomised response on every pair of nodes of an undirected graph: edge-local differential privacy.

    Each pair of different nodes is told truly, joined or not, with probability e^epsilon / (1 + e^epsilon); the matrix
    stays symmetric. Edges from a node to itself are left out. Then every node gets "at least one symmetric edge"
    (section 4.3 of the paper, which does not say how): going through the nodes in order, one without an edge is joined
    to the next node, the last one to the one before it. This rule looks at the randomised matrix alone, so it costs no
    privacy, and it leaves the exact log-odds simple: an edge that the rule may have made is there whether or not the
    randomised matrix had it, so that seeing it tells nothing.

    Raises
    ------
    InputError
        If epsilon is negative or not finite.
    """

    epsilon: float  # epsilon_i of one pair of nodes, from 0 (a random graph that tells nothing)
    kind: Literal["randomised-edges"] = "randomised-edges"

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)

    def perturb(self, adjacency: AdjacencyMatrix, generator: np.random.Generator) -> AdjacencyMatrix:
        """Return a randomised adjacency matrix.

        Parameters
        ----------
        adjacency
            Symmetric truth values, shape (nodes, nodes), at least two nodes.
        generator
            Where one number a pair of nodes is drawn from: (0, 1), (0, 2), ..., (1, 2), ...

        Raises
        ------
        InputError
            If the matrix is not symmetric, or there are fewer than two nodes.
        """
        _require_graph(adjacency)
        above = np.triu_indices(len(adjacency), 1)
        lies = draws_above(truth_probability(self.epsilon), above[0].size, generator)
        told = np.zeros_like(adjacency)
        told[above] = adjacency[above] ^ lies
        return _without_lonely_nodes(told | told.T)

    def log_odds(self, observed: AdjacencyMatrix, first: AdjacencyMatrix, second: AdjacencyMatrix) -> Floats:
        """Return log P(observed | first) / P(observed | second) of what `perturb` returns, in nats.

        Each pair of nodes in which the graphs differ counts as a bit does (`RandomisedBits.log_odds`), except the only
        edge of a node that leads to the next node (of the last node: to the one before it): it would be there anyhow.

        Parameters
        ----------
        observed
            Randomised matrices, shape (..., nodes, nodes).
        first, second
            The two matrices that they can come from, shape (nodes, nodes).

        Returns
        -------
        NDArray
            Shape (...): one number for each observed matrix.

        Raises
        ------
        InputError
            If a matrix is not symmetric, shapes do not fit, or an observed node has no edge.
        """
        require_pair(observed, first, second)
        for matrices in (observed, first, second):
            _require_graph(matrices)
        require(bool(observed.any(axis=-1).all()), "an observed node has no edge: accepted is what `perturb` returns")
        agreeing = (observed == first).astype(np.int64) - (observed == second)
        agreeing[_made_anyhow(observed)] = 0
        return np.asarray(self.epsilon * np.triu(agreeing, 1).sum(axis=(-2, -1)), dtype=np.float64)

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what the paper promises for graphs of up to `shape` = (nodes, nodes): a release for each edge.

        It counts the edges that one node can have. The paper multiplies epsilon_i by a largest degree of 2,000.
        COLLAB's largest graph has 492 nodes, and its largest degree is 491.
        """
        return responses(self.epsilon, shape[-1] - 1)

    def whole_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what tells two graphs of `shape` = (nodes, nodes) apart at most: graphs that differ everywhere."""
        nodes = shape[-1]
        return responses(self.epsilon, nodes * (nodes - 1) // 2)

    def pair_events(self, first: AdjacencyMatrix, second: AdjacencyMatrix) -> tuple[ReleaseEvent, ...]:
        """Return what tells two graphs apart at most: a release for each pair of nodes in which they differ.

        Parameters
        ----------
        first, second
            Two graphs on the same nodes.
        """
        require_pair(first, first, second)
        for matrices in (first, second):
            _require_graph(matrices)
        return responses(self.epsilon, int(np.count_nonzero(np.triu(first != second, 1))))


def _require_graph(matrices: AdjacencyMatrix) -> None:
    square = matrices.ndim >= 2 and matrices.shape[-1] == matrices.shape[-2] >= 2 and matrices.dtype == np.bool_
    require(
        square,
        f"adjacency matrices have shape {matrices.shape} of {matrices.dtype}: accepted are truth values of shape "
        "(nodes, nodes), at least two nodes",
    )
    require(
        bool((matrices == matrices.swapaxes(-1, -2)).all()),
        "an adjacency matrix is not symmetric: accepted are undirected graphs",
    )


def _partners(nodes: int) -> Integers:
    """Return whom each node is joined to where it has no edge: the next node, of the last one the node before it."""
    partners = np.arange(1, nodes + 1)
    partners[-1] = nodes - 2
    return partners


def _without_lonely_nodes(told: AdjacencyMatrix) -> AdjacencyMatrix:
    joined = told.copy()
    for node, partner in enumerate(_partners(len(told)).tolist()):
        # Asked in order: a node may have been joined to the one before it.
        if not joined[node].any():
            joined[node, partner] = joined[partner, node] = True
    return joined


def _made_anyhow(observed: AdjacencyMatrix) -> AdjacencyMatrix:
    """Return which edges would be there even if the randomised matrix had not had them; shape of `observed`."""
    nodes = np.arange(observed.shape[-1])
    partners = _partners(nodes.size)
    only = observed[..., nodes, partners] & (observed.sum(axis=-1) == 1)
    made = np.zeros_like(observed)
    made[..., nodes, partners] = only
    made |= made.swapaxes(-1, -2)
    return made
