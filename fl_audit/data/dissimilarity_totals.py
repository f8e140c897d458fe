"""Sum the dissimilarities of each record to all others, exactly or faster with a bounded error."""

from collections.abc import Callable
from typing import assert_never

import numpy as np

from fl_audit.array_types import Floats, Integers
from fl_audit.data import dissimilarity as measures
from fl_audit.data.dissimilarity import Dissimilarity, Measure
from fl_audit.data.records import Records

_EPS = float(np.finfo(np.float64).eps)


def total_dissimilarity(records: Records, measure: Measure, chosen: Integers | None = None) -> Floats:
    """Return the exact sum of each record's dissimilarities to all other records.

    The order of summation has no effect: records with the same dissimilarities, in any order, get exactly the same sum.

    Shapes: `chosen` (k,).
    """
    measures.check_measurable(records, measure)
    wanted_records = np.arange(len(records)) if chosen is None else chosen
    if measure is Dissimilarity.HAMMING:
        return _hamming(records)[wanted_records]
    rows = max(1, min(measures.rows_in_block(records, measure), measures.BLOCK_BYTES // (8 * len(records))))
    totals_of_parts = [
        _exact(records, measure, wanted_records[start : start + rows]) for start in range(0, len(wanted_records), rows)
    ]
    return np.concatenate(totals_of_parts)


def approximate_totals(records: Records, measure: Measure) -> tuple[Floats, float]:
    """Return fast approximations to the sums of `total_dissimilarity`, shape (n,), and a bound on their error.

    The bound, at least 0, covers the rounding errors of both functions together. Hamming and Manhattan take O(n log n)
    operations for each feature, cosine takes O(n), and all other measures compare n^2 / 2 pairs.
    """
    measures.check_measurable(records, measure)
    match measure:
        case Dissimilarity.HAMMING:
            return _hamming(records), 0.0
        case Dissimilarity.MANHATTAN:
            return _manhattan(records)
        case Dissimilarity.COSINE:
            return _cosine(records)
        case Dissimilarity.EUCLIDEAN | Dissimilarity.SSIM | str():
            return _pair_by_pair(records, measure)
        case _:
            assert_never(measure)


def _exact(records: Records, measure: Measure, chosen: Integers) -> Floats:
    mine = measures.prepare(records.features[chosen], measure)
    columns = measures.rows_in_block(records, measure)
    block = np.empty((len(chosen), len(records)))
    for first in range(0, len(records), columns):
        columns_at_once = slice(first, first + columns)
        block[:, columns_at_once] = measures.exact_block(
            mine, measures.prepare(records.features[columns_at_once], measure), measure
        )
    # Rounding can leave a record a little away from itself under the cosine measure.
    block[np.arange(len(chosen)), chosen] = 0.0
    # In one fixed order: ties must not be broken by the rounding of sums.
    block.sort(axis=1)
    return np.asarray(block.sum(axis=1))


def _pair_by_pair(records: Records, measure: Measure) -> tuple[Floats, float]:
    """Return each record's sum of dissimilarities and a bound on the error, by comparing each pair once."""
    totals = np.zeros(len(records))
    error = 0.0
    rows = measures.rows_in_block(records, measure)
    for start in range(0, len(records), rows):
        mine = measures.prepare(records.features[start : start + rows], measure)
        for first in range(start, len(records), rows):
            yours = mine if first == start else measures.prepare(records.features[first : first + rows], measure)
            block, block_error = measures.screening_block(mine, yours, measure)
            error = max(error, block_error)
            if first == start:
                np.fill_diagonal(block, 0.0)
            else:
                totals[first : first + rows] += block.sum(axis=0)
            totals[start : start + rows] += block.sum(axis=1)
    return totals, len(records) * (error + 4 * _EPS * float(totals.max()))


def _manhattan(records: Records) -> tuple[Floats, float]:
    """Return each record's sum of Manhattan distances and a bound on the error, from the sorted values of each feature.

    The sum of |v - w| over all w follows from the number and the sum of the values below v.
    """

    def spread(column: Floats) -> Floats:
        levels, position, counts = np.unique(column, return_inverse=True, return_counts=True)
        below = np.cumsum(counts)
        mass = np.cumsum(counts * levels)
        return np.asarray(levels * (2 * below - len(column)) + mass[-1] - 2 * mass)[position]

    features = records.features.reshape(len(records), -1)
    reach = np.maximum(features.max(axis=0), -features.min(axis=0)).sum(dtype=np.float64)
    numbers = len(records) + features.shape[1] + 16
    return _by_feature(records, spread), 8 * numbers * len(records) * _EPS * float(reach)


def _cosine(records: Records) -> tuple[Floats, float]:
    """Return each record's sum of cosine dissimilarities and a bound on the error, from the sum of all unit vectors.

    For unit vectors u and v, the sum of 1 - u.v over v is n - u.(sum of v).
    """
    rows = measures.rows_in_block(records, Dissimilarity.COSINE)
    width = records.features[0].size

    def units(start: int) -> Floats:
        return measures.directions(records.features[start : start + rows].reshape(-1, width).astype(np.float64))

    starts = range(0, len(records), rows)
    together = np.zeros(width)
    for start in starts:
        together += units(start).sum(axis=0)
    totals = np.concatenate([len(records) - units(start) @ together for start in starts])
    return totals, 8 * (len(records) + width + 16) * len(records) * _EPS


def _hamming(records: Records) -> Floats:
    """Return each record's sum of Hamming dissimilarities from integer counts, so that ties are exact."""

    def unequal(column: Floats) -> Floats:
        _, position, counts = np.unique(column, return_inverse=True, return_counts=True)
        return np.asarray((len(column) - counts).astype(np.float64)[position])

    return _by_feature(records, unequal) / int(records.features[0].size)


def _by_feature(records: Records, total_of_feature: Callable[[Floats], Floats]) -> Floats:
    totals = np.zeros(len(records))
    for column in records.features.reshape(len(records), -1).T:
        totals += total_of_feature(column.astype(np.float64))
    return totals
