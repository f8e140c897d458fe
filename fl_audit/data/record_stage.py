"""The record stage of a release: what owners do to their records, whatever kind of records it is.

A randomiser knows bits, adjacency matrices or images. Records are arrays of one shape, graphs among them in packed rows
(`fl_audit.learning.packed_graphs`). Here the two meet.
"""

from collections.abc import Sequence
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from fl_audit.arrays import Floats, Floats32
from fl_audit.data.graph_records import randomised_graphs
from fl_audit.data.randomisers import LaplacePixelation, RandomisedBits, RandomisedEdges, RecordRandomiser
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.learning.packed_graphs import unpack_graph
from fl_audit.privacy.events import ReleaseEvent

Lean = NDArray[np.uint8] | Floats32
"""Randomised records in the type that takes least memory: bytes for bits, 32-bit numbers otherwise."""

_FEWEST_NODES = 2


def require_randomisable(randomiser: RecordRandomiser, records: Records) -> None:
    """Refuse records that a randomiser cannot be used on.

    Parameters
    ----------
    randomiser
        What is done to the records.
    records
        The records.

    Raises
    ------
    InputError
        If a randomiser of bits meets a feature that is neither 0 nor 1, one of graphs meets other records or a graph of
        a single node, or one of grey images meets other records, a pixel outside [0, 1] or a side that is no multiple
        of the block's.
    """
    name, shape = randomiser.kind, records.shape
    match randomiser:
        case RandomisedBits():
            require(not records.graphs, f"randomiser is '{name}' and the records are graphs: use 'randomised-edges'")
            # Values other than 0 and 1, row after row: features may be many.
            others = (row[(row != 0) & (row != 1)] for row in records.features)
            wrong = next((float(found[0]) for found in others if found.size), None)
            require(
                wrong is None, f"randomiser is '{name}' and a feature is {wrong}: accepted are features that are 0 or 1"
            )
        case RandomisedEdges():
            require(records.graphs, f"randomiser is '{name}' and the records are no graphs: accepted are graphs alone")
            fewest = min(map(_nodes, records.features))
            require(
                fewest >= _FEWEST_NODES,
                f"randomiser is '{name}' and a graph has {fewest} nodes: accepted are {_FEWEST_NODES} and more",
            )
        case LaplacePixelation():
            is_grey = len(shape) == 3 and shape[0] == 1 and not records.graphs
            require(
                is_grey,
                f"randomiser is '{name}' and records have shape {shape}: accepted are grey images, (1, height, width)",
            )
            pixels = int(np.prod(shape))
            require(
                randomiser.neighbourhood <= pixels,
                f"pixelation-pixels is {randomiser.neighbourhood}: accepted are 1 to {pixels}, those of an image",
            )
            randomiser.require_images(records.features)
        case _:
            assert_never(randomiser)


def randomised(randomiser: RecordRandomiser, features: Floats32, source: np.random.Generator) -> Lean:
    """Return what owners make of records, in the leanest type.

    Parameters
    ----------
    randomiser
        What is done to them.
    features
        Records that `require_randomisable` accepts, shape (n, *shape).
    source
        Where all draws come from, record after record: later records change nothing of earlier ones.

    Returns
    -------
    NDArray
        Of the same shape: uint8 for bits, float32 otherwise.
    """
    match randomiser:
        case RandomisedBits():
            return randomiser.perturb(features, source).astype(np.uint8)
        case RandomisedEdges():
            return randomised_graphs(features, randomiser, source)
        case LaplacePixelation():
            return randomiser.perturb(features, source)
        case _:
            assert_never(randomiser)


def log_odds(randomiser: RecordRandomiser, observed: Lean, first: Floats32, second: Floats32) -> Floats:
    """Return log P(observed | first) / P(observed | second), in nats: what whoever sees randomised records learns.

    Parameters
    ----------
    randomiser
        What was done.
    observed
        Randomised records, shape (n, *shape).
    first
        One record that they can come from, shape (*shape).
    second
        The other record that they can come from, of the same shape; a graph has as many nodes as `first`.

    Returns
    -------
    NDArray
        Shape (n,).
    """
    match randomiser:
        case RandomisedEdges():
            graphs = np.stack([unpack_graph(packed.astype(np.float32)) for packed in observed])
            return randomiser.log_odds(graphs, unpack_graph(first), unpack_graph(second))
        case RandomisedBits():
            return randomiser.log_odds(observed, first, second)
        case LaplacePixelation():
            return randomiser.log_odds(observed.astype(np.float32), first, second)
        case _:
            assert_never(randomiser)


def differing(randomiser: RecordRandomiser, first: Floats32, second: Floats32) -> int | None:
    """Return in how many features two records differ: bits, pairs of nodes, or pixels; None for graphs of other sizes.

    How many nodes a graph has is not randomised, so whoever sees it tells graphs of other sizes apart for sure.

    Parameters
    ----------
    randomiser
        How owners perturb their records.
    first, second
        Features of two records, of one shape.
    """
    match randomiser:
        case RandomisedEdges():
            one, other = unpack_graph(first), unpack_graph(second)
            return int(np.count_nonzero(np.triu(one != other, 1))) if one.shape == other.shape else None
        case RandomisedBits() | LaplacePixelation():
            return int(np.count_nonzero(first != second))
        case _:
            assert_never(randomiser)


def pair_events(randomiser: RecordRandomiser, first: Floats32, second: Floats32, most: int) -> tuple[ReleaseEvent, ...]:
    """Return what tells two records apart at most.

    Parameters
    ----------
    randomiser
        What is done to them.
    first
        One record, shape (*shape).
    second
        The other record, of the same shape; a graph has as many nodes as `first`.
    most
        Largest number of different releases: differences of pixels are rounded up to so many steps.
    """
    match randomiser:
        case RandomisedEdges():
            return randomiser.pair_events(unpack_graph(first), unpack_graph(second))
        case RandomisedBits():
            return randomiser.pair_events(first, second)
        case LaplacePixelation():
            return randomiser.pair_events(first, second, most)
        case _:
            assert_never(randomiser)


def told_shape(randomiser: RecordRandomiser, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of what a randomiser works on, from that of a record: of packed graphs (nodes, nodes).

    Parameters
    ----------
    randomiser
        How owners perturb their records.
    shape
        Shape of one record.
    """
    return (shape[0], shape[0]) if isinstance(randomiser, RandomisedEdges) else tuple(shape)


def _nodes(packed: Floats32) -> int:
    return len(unpack_graph(packed))
