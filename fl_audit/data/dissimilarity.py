"""How far records lie apart, exactly and in bounded memory."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fl_audit.data.records import Records
from fl_audit.errors import require

_BLOCK_BYTES = 64 * 2**20


class Dissimilarity(StrEnum):
    """Measure of how far two records lie apart, on their flattened features.

    EUCLIDEAN and MANHATTAN are distances, HAMMING is the share of features that differ, COSINE is 1 - the cosine of
    the angle between them.
    """

    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"
    HAMMING = "hamming"
    COSINE = "cosine"


def total_dissimilarity(records: Records, dissimilarity: Dissimilarity) -> NDArray[np.float64]:
    """Return every record's summed dissimilarity to all other records, shape (n,).

    Records with the same dissimilarities to the others, in whatever order, get the same sum to the last bit.

    Parameters
    ----------
    records
        n records.
    dissimilarity
        The measure.

    Raises
    ------
    InputError
        If the measure is cosine and a record has only zeros.
    """
    totals = np.empty(len(records))
    for start, block in _distance_blocks(records, records, dissimilarity):
        rows = np.arange(len(block))
        # Rounding can leave a record a little away from itself under the cosine measure.
        block[rows, start + rows] = 0.0
        # In one fixed order, and shares of features as whole counts: ties must not be broken by the rounding of sums.
        block.sort(axis=1)
        if dissimilarity is Dissimilarity.HAMMING:
            block = np.rint(block * records.features[0].size)
        totals[start : start + len(block)] = block.sum(axis=1)
    return totals / records.features[0].size if dissimilarity is Dissimilarity.HAMMING else totals


def farthest_pair(inside: Records, outside: Records, dissimilarity: Dissimilarity) -> tuple[int, int]:
    """Return the positions (i, j) of the inside and the outside record that lie farthest apart, of ties the lowest.

    Parameters
    ----------
    inside
        n records.
    outside
        m records of the same shape.
    dissimilarity
        The measure.

    Raises
    ------
    InputError
        If the shapes differ, or the measure is cosine and a record has only zeros.
    """
    require(
        inside.shape == outside.shape,
        f"outside records have shape {outside.shape}: accepted is that of the inside records, {inside.shape}",
    )
    best, pair = -np.inf, (0, 0)
    for start, block in _distance_blocks(inside, outside, dissimilarity):
        row, column = divmod(int(block.argmax()), block.shape[1])
        if block[row, column] > best:
            best, pair = float(block[row, column]), (start + row, column)
    return pair


def _distance_blocks(
    left: Records, right: Records, dissimilarity: Dissimilarity
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield (start, distances of the left records from start on to all right records) in blocks of bounded size."""
    if dissimilarity is Dissimilarity.COSINE:
        for records in (left, right):
            _check_directions(records)
    metric = _metric(dissimilarity)
    size = left.features[0].size
    rows = _rows_in_block(max(size, len(right)))
    columns = _rows_in_block(size)
    for start in range(0, len(left), rows):
        mine = _flat(left, start, rows)
        parts = [cdist(mine, _flat(right, first, columns), metric) for first in range(0, len(right), columns)]
        yield start, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _metric(dissimilarity: Dissimilarity) -> Literal["cityblock", "euclidean", "hamming", "cosine"]:
    match dissimilarity:
        case Dissimilarity.MANHATTAN:
            return "cityblock"
        case Dissimilarity.EUCLIDEAN:
            return "euclidean"
        case Dissimilarity.HAMMING:
            return "hamming"
        case Dissimilarity.COSINE:
            return "cosine"


def _rows_in_block(width: int) -> int:
    return max(1, _BLOCK_BYTES // (8 * width))


def _flat(records: Records, start: int, rows: int) -> NDArray[np.float64]:
    chosen = records.features[start : start + rows]
    return chosen.reshape(len(chosen), -1).astype(np.float64)


def _check_directions(records: Records) -> None:
    # A vector of zeros has no direction: scipy answers NaN, which would win every argmax.
    zero = ~records.features.reshape(len(records), -1).any(axis=1)
    require(
        not zero.any(),
        f"record {int(zero.argmax())} has only zeros: accepted for the cosine measure are records with a direction",
    )
