"""Loader of COLLAB: 5,000 graphs, each the coauthors of one researcher, labelled with one of three fields of physics.

Yanardag & Vishwanathan 2015, "Deep graph kernels". The loader reads the text file of integers that Zhang et al. 2018
(DGCNN) publish:

    5000                    number of graphs
    45 0                    a graph: number of nodes, label
    0 44 1 2 3 ...          a node: its tag, its degree, and the indices of its neighbours, from 0
"""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Integers
from fl_audit.data.data_files import locate_any, read_zip_member
from fl_audit.data.encoding import encode_labels
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.packed_graphs import GRAPH_NODES, AdjacencyMatrix, graph_records
from fl_audit.errors import InputError, require

COLLAB_FILE = "COLLAB.zip"
_MEMBER = "COLLAB/COLLAB.txt"
_FORM = "accepted is the text of DGCNN without features of nodes"


def collab(directory: Path | None, *, graph_nodes: int = GRAPH_NODES) -> LoadedDataset:
    """Return COLLAB: 5,000 packed graphs, labelled with three fields of physics (2,600, 775 and 1,625 graphs).

    In the file the graphs have 32 to 492 nodes and together 12,288,916 edges, 2,837 of which are self-loops. The
    largest degree is 491, while Bernau et al. 2019 state 2,000. All nodes have the same tag, so tags are left out.
    There is no official test split. Loading takes a few seconds.

    `directory`: The archive is unpacked in memory (84 MB).
    """
    path = locate_any(directory, "collab", (COLLAB_FILE,))
    # The text is let go before the graphs are made.
    matrices, labels, classes = _Reader(_numbers(read_zip_member(path, _MEMBER), path), path).graphs()
    cut = sum(len(matrix) > graph_nodes for matrix in matrices)
    description = f"COLLAB, {len(matrices):,} graphs of up to {graph_nodes} nodes, {cut:,} of them cut to that"
    return LoadedDataset("collab", graph_records(matrices, labels, classes, nodes=graph_nodes), None, description)


def _numbers(text: bytes, path: Path) -> NDArray[np.int32]:
    try:
        with warnings.catch_warnings():
            # NumPy only warns of words that are no numbers, and stops there.
            warnings.simplefilter("error")
            numbers = np.fromstring(text, dtype=np.int32, sep=" ")
    except (DeprecationWarning, ValueError) as error:
        raise InputError(f"{path} holds something else than whole numbers: {_FORM}") from error
    require(numbers.size > 0, f"{path} is empty: {_FORM}")
    return numbers


class _Reader:
    """Reader of the integers of COLLAB's text file, in one pass."""

    def __init__(self, numbers: NDArray[np.int32], path: Path) -> None:
        # Single elements of a memory view are read several times faster than those of an array.
        self.numbers, self.view, self.path = numbers, numbers.data, path
        self.labels: list[int] = []
        self.tags: set[int] = set()
        self.at = 1

    def graphs(self) -> tuple[list[AdjacencyMatrix], Integers, int]:
        """Return the graphs' adjacency matrices (nodes, nodes), their classes (graphs,) and the number of classes."""
        count = self.view[0]
        require(count >= 1, f"{self.path} holds {count} graphs: at least 1 is needed")
        try:
            matrices = [self._graph(number) for number in range(count)]
        except IndexError as error:
            raise InputError(f"{self.path} ends within graph {len(self.labels)} of {count}: {_FORM}") from error
        require(self.at == self.numbers.size, f"{self.path} goes on after its last graph: {_FORM}")
        require(len(self.tags) == 1, f"{self.path} has {len(self.tags)} different tags of nodes: accepted is one")
        codes, _, classes = encode_labels(np.array(self.labels), None, self.path)
        return matrices, codes, classes

    def _graph(self, number: int) -> AdjacencyMatrix:
        nodes = self.view[self.at]
        label = self.view[self.at + 1]
        where = f"{self.path}, graph {number + 1}"
        require(nodes >= 1, f"{where} has {nodes} nodes: at least 1 is needed")
        self.labels.append(label)
        self.at += 2
        starts, degrees = self._rows(nodes, where)
        positions = np.arange(int(degrees.sum())) - np.repeat(np.cumsum(degrees) - degrees - starts, degrees)
        joined = self.numbers[positions]
        is_valid = bool(np.all((joined >= 0) & (joined < nodes)))
        require(is_valid, f"{where} joins a node to one that it does not have: accepted are 0 to {nodes - 1}")
        matrix = np.zeros((nodes, nodes), dtype=np.bool_)
        matrix[np.repeat(np.arange(nodes), degrees), joined] = True
        require(np.count_nonzero(matrix) == joined.size, f"{where} joins a node twice to another: {_FORM}")
        require(bool((matrix == matrix.T).all()), f"{where} joins a node to another, and not back: {_FORM}")
        return matrix

    def _rows(self, nodes: int, where: str) -> tuple[Integers, Integers]:
        """Return the position and length of each node's list of neighbours, and move the reader past the graph."""
        starts = np.empty(nodes, dtype=np.int64)
        degrees = np.empty(nodes, dtype=np.int64)
        for node in range(nodes):
            degree = self.view[self.at + 1]
            require(0 <= degree <= nodes, f"{where} joins node {node} to {degree} nodes of {nodes}: {_FORM}")
            self.tags.add(self.view[self.at])
            starts[node], degrees[node] = self.at + 2, degree
            self.at += 2 + degree
        return starts, degrees
