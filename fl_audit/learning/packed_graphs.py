"""Graphs as arrays of one shape: packed rows of adjacency matrices, 24 pairs of nodes in a number.

Records are arrays of 32-bit floating-point numbers, all of one shape. The adjacency matrix of COLLAB's largest graph,
of 492 nodes, would be 242,064 such numbers, and 5,000 of them 4.8 GB. Such a number holds 24 binary digits exactly, so
that the same graph takes 10,824 packed numbers and 5,000 of them 216 MB.

A graph of up to N nodes is a row for each node, shape (N, 1 + N / 24 rounded up). A row begins with 1 if its node is
there and with 0 if not; the others are numbers in [0, 1) whose 24 binary digits after the point say to which nodes it
is joined, those with lower positions first. Nodes that are there come first.
"""

from math import ceil

import numpy as np
import torch
from torch import Tensor

from fl_audit.arrays import Flags, Floats32
from fl_audit.errors import require

DIGITS = 24  # binary digits in a number: as many as a 32-bit floating-point number holds exactly
_IS_THERE = 0.5  # a row belongs to a node that is there if its first number is at least this


def packed_shape(nodes: int) -> tuple[int, int]:
    """Return the shape of a packed graph of up to so many nodes.

    Examples
    --------
    >>> packed_shape(128)
    (128, 7)
    """
    return nodes, 1 + ceil(nodes / DIGITS)


def is_packed_shape(shape: tuple[int, ...]) -> bool:
    """Return whether a shape is that of a packed graph."""
    return len(shape) == 2 and shape[0] >= 1 and shape == packed_shape(shape[0])


def pack_graph(adjacency: Flags, nodes: int) -> Floats32:
    """Return the packed rows of an adjacency matrix, padded with absent nodes, float32 of shape `packed_shape(nodes)`.

    Parameters
    ----------
    adjacency, nodes
        Which nodes are joined, truth values of shape (m, m), m from 1 to N, the number of rows.

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
    """Return the adjacency matrix of a packed graph, without its absent nodes: what `pack_graph` was given."""
    present = int(np.count_nonzero(packed[:, 0] >= _IS_THERE))
    whole = (packed[:present, 1:] * np.float32(2**DIGITS)).astype(np.int32)
    digits = whole[:, :, np.newaxis] >> np.arange(DIGITS - 1, -1, -1) & 1
    return digits.reshape(present, -1)[:, :present].astype(np.bool_)


def unpack_graphs(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Return the adjacency matrices of packed graphs with their absent nodes, and which nodes are there.

    They are 0 and 1 in the type of `packed`, shapes (n, nodes, nodes) and (n, nodes); no node is joined to an absent
    one. Any numbers from 0 to below 1, shape (n, *packed_shape(nodes)), are graphs, of which the first 24 binary digits
    count; uniform ones are random graphs, so that whoever tries a model on random numbers tries it on graphs.
    """
    nodes = packed.shape[1]
    places = torch.arange(DIGITS - 1, -1, -1, dtype=torch.int32, device=packed.device)
    whole = (packed[:, :, 1:] * 2.0**DIGITS).to(torch.int32)
    digits = (whole.unsqueeze(3) >> places) & 1
    present = (packed[:, :, 0] >= _IS_THERE).to(packed.dtype)
    joined = digits.flatten(2)[:, :, :nodes].to(packed.dtype)
    return joined * present.unsqueeze(1) * present.unsqueeze(2), present
