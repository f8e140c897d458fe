"""The graph classifier DGCNN: graph convolutions, sort pooling and one-dimensional convolutions.

The network is that of Zhang et al. 2018, "An end-to-end deep learning architecture for graph classification" (AAAI),
without its dropout layer, as Bernau et al. 2019 (section 4.3) use it on COLLAB.

All layers with weights are two-dimensional convolutions or dense layers. `StackedModel` can therefore train all trials
together without storing per-sample gradients.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log1p

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_audit.data.packed_graphs import is_packed_shape, unpack_graphs
from fl_audit.errors import require
from fl_audit.learning.models import glorot

SORTED_NODES = 130
"""Default k of the sort pooling, from the authors' .9: the number of nodes that 90 % of COLLAB's graphs do not
exceed.
"""
_NODE_FEATURES = 2
_WIDTHS = (32, 32, 32, 1)
_CHANNELS = (16, 32)
_REACH = 5
_HIDDEN = 128
_FEWEST_SORTED = 2 * _REACH  # of fewer nodes, in pairs, none would be left for the last convolution
_LARGEST_DEGREE = 491  # the largest degree in COLLAB
_BEHIND_ALL = -2.0  # the key of absent nodes; those of others are hyperbolic tangents


def dgcnn(feature_shape: Sequence[int], classes: int, sorted_nodes: int | None = None) -> nn.Module:
    """Return the graph classifier DGCNN with random weights; on COLLAB it has 256,675 parameters by default.

    `sorted_nodes`: None means 130, or the largest number of nodes of a graph if that is smaller. To use another k in a
    configuration, name a function of your own that calls this one.
    """
    shape = tuple(feature_shape)
    require(is_packed_shape(shape), f"dgcnn: examples have shape {shape}: accepted are graphs, as of COLLAB")
    usual = max(_FEWEST_SORTED, min(SORTED_NODES, shape[0]))
    return glorot(DeepGraphCNN(classes, usual if sorted_nodes is None else sorted_nodes))


class DeepGraphCNN(nn.Module):
    """The graph classifier DGCNN, which takes packed graphs (`fl_audit.data.packed_graphs`).

    The network has three parts:

    * Four graph convolutions H' = tanh(D^-1 (A + I) H W) of widths 32, 32, 32 and 1, where D holds the row sums of
      A + I (Zhang et al. 2018, Eq. 1). Their outputs are concatenated to 97 numbers for each node.
    * Sort pooling, which sorts the nodes by the last of these numbers in descending order, keeps the first k, and pads
      with zeros.
    * A convolution with 16 channels whose kernel and stride are the 97 numbers of a node, max pooling over pairs of
      nodes, a convolution with 32 channels and kernel size 5, 128 dense units, and the output layer. All but the output
      layer use ReLU.

    Nodes have no labels here. A node has two features: a constant 1, which gives the first convolution a bias, and
    log(1 + degree) / log(492). (In the authors' code features are constant, and biases are divided by the degree.)

    Padding nodes have no effect: they are 0 in all graph convolutions, which have no biases, and are sorted last. The
    order of the nodes has no effect either, unless different nodes have equal sort keys.

    Parameters
    ----------
    classes
        Number of classes.
    kept
        k, number of nodes that sort pooling keeps, at least 10. It is the same for all graphs and does not depend on
        them. The authors of DGCNN choose k such that a given share of the graphs has at most k nodes: 0.9 for COLLAB,
        0.6 for others.

    Raises
    ------
    InputError
        If `kept` is less than 10.
    """

    def __init__(self, classes: int, sorted_nodes: int = SORTED_NODES) -> None:
        super().__init__()
        require(
            sorted_nodes >= _FEWEST_SORTED,
            f"sort pooling keeps {sorted_nodes} nodes: accepted are {_FEWEST_SORTED} and more",
        )
        self.kept = sorted_nodes
        pairs = pairwise((_NODE_FEATURES, *_WIDTHS))
        # The same dense layer on every node is a convolution over one place.
        self.graph = nn.ModuleList(nn.Conv2d(inputs, outputs, 1, bias=False) for inputs, outputs in pairs)
        self.rows = nn.Conv2d(sum(_WIDTHS), _CHANNELS[0], 1)
        self.places = nn.Conv2d(_CHANNELS[0], _CHANNELS[1], (_REACH, 1))
        self.hidden = nn.Linear(_CHANNELS[1] * (sorted_nodes // 2 - _REACH + 1), _HIDDEN)
        self.outputs = nn.Linear(_HIDDEN, classes)

    def forward(self, packed: Tensor) -> Tensor:
        """Return the logits (n, classes) of n packed graphs (n, nodes, numbers per node)."""
        adjacency, present = unpack_graphs(packed)
        looped = adjacency + torch.diag_embed(present)
        averaging = looped / looped.sum(2, keepdim=True).clamp(min=1.0)
        degrees = torch.log1p(adjacency.sum(2)) / log1p(_LARGEST_DEGREE)
        values = torch.stack([present, degrees], dim=1)
        outputs = []
        for layer in self.graph:
            values = torch.tanh(layer(_averaged(values, averaging).unsqueeze(3)).squeeze(3))
            outputs.append(values)
        rows = self._sort_pooled(torch.cat(outputs, dim=1), present)
        pooled = F.max_pool2d(torch.relu(self.rows(rows.unsqueeze(3))), (2, 1))
        tensor = torch.relu(self.places(pooled)).flatten(1)
        logits: Tensor = self.outputs(torch.relu(self.hidden(tensor)))
        return logits

    def _sort_pooled(self, rows: Tensor, present: Tensor) -> Tensor:
        """Return the values of the k nodes of each graph that have the largest last value, sorted, (m, 97, k).

        `rows` holds the 97 values of each node, (m, 97, nodes). `present` is above 0 for real nodes, and 0 for nodes
        that pad a small graph; these come last.
        """
        is_real = present.repeat(len(rows) // len(present), 1)
        keys = torch.where(is_real > 0, rows[:, -1], _BEHIND_ALL)
        order = keys.argsort(dim=1, descending=True, stable=True)[:, : self.kept]
        sorted_rows = rows.gather(2, order.unsqueeze(1).expand(-1, rows.shape[1], -1))
        return F.pad(sorted_rows, (0, self.kept - sorted_rows.shape[2]))


def _averaged(values: Tensor, averaging: Tensor) -> Tensor:
    """Return node values (m, width, nodes), each averaged over the node and its neighbours.

    With t trials on n graphs, m is t * n, ordered by trial. `averaging` has the matrices D^-1 (A + I), shape (n, nodes,
    nodes), where A is a graph's adjacency matrix and D the diagonal matrix of the row sums of A + I.
    """
    graphs = len(averaging)
    _, width, nodes = values.shape
    side_by_side = values.reshape(-1, graphs, width, nodes).transpose(0, 1).reshape(graphs, -1, nodes)
    tensor = side_by_side @ averaging.transpose(1, 2)
    return tensor.reshape(graphs, -1, width, nodes).transpose(0, 1).reshape(-1, width, nodes)
