"""Rank records, and pairs of records, exactly by dissimilarity, in bounded memory.

Fast arithmetic with a bounded error finds candidates, and exact arithmetic then ranks them. Ties are ordered by index.
Records are ranked by the sum of their dissimilarities to all others (Bernau et al. 2021, Eq. 9).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, assert_never

import numpy as np

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.data import dissimilarity as measures
from fl_audit.data.dissimilarity import Dissimilarity, Measure, Prepared
from fl_audit.data.multi_array_records import comparable
from fl_audit.data.records import Records
from fl_audit.errors import require

_EPS = float(np.finfo(np.float64).eps)
_KEPT = 2**21  # largest number of skipped pairs that are kept at once


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


def ranked_records(records: Records, measure: Measure, count: int, farthest: bool = True) -> tuple[int, ...]:
    """Return the positions of the first records in a ranking by the sum of dissimilarities to all other records.

    Raises `InputError` if a dissimilarity is undefined, see `check_measurable`.
    """
    accepted = f"1 to {len(records)}, the number of records in D"
    require(1 <= count <= len(records), f"neighbour-rank is {count}: accepted are {accepted}")
    records = comparable(records, measure)
    sign = 1.0 if farthest else -1.0
    totals, error = approximate_totals(records, measure)
    candidates = np.arange(len(records))
    scores = sign * totals
    if error > 0:
        candidates = np.flatnonzero(scores >= _last_of_top(scores, count) - 2 * error)
        scores = sign * total_dissimilarity(records, measure, candidates)
    return tuple(candidates[_top(scores, count)].tolist())


def ranked_pairs(
    inside_records: Records,
    outside_records: Records,
    measure: Measure,
    count: int,
    farthest: bool = True,
    skipped: int = 0,
) -> tuple[tuple[int, int], ...]:
    """Return the most dissimilar or most similar pairs of a record in D and a record outside D, best pair first.

    Each pair is (position in `inside_records`, position in `outside_records`). Raises `InputError` if a dissimilarity
    is undefined, see `check_measurable`.

    `skipped`: `skipped` plus `count` is at most n m. The needed memory does not grow with `skipped`.
    """
    inside_records, outside_records = _checked_pairs(inside_records, outside_records, measure, skipped + count)
    last = None
    while skipped >= _KEPT:
        last = _first_pairs(inside_records, outside_records, _RankedPairSearch(measure, _KEPT, farthest, last)).last
        skipped -= _KEPT
    best = _first_pairs(inside_records, outside_records, _RankedPairSearch(measure, skipped + count, farthest, last))
    return tuple(zip(best.rows[skipped:].tolist(), best.columns[skipped:].tolist(), strict=True))


def _checked_pairs(
    inside_records: Records, outside_records: Records, measure: Measure, count: int
) -> tuple[Records, Records]:
    inside_records = comparable(inside_records, measure)
    outside_records = comparable(outside_records, measure)
    accepted = f"accepted is that of the inside records, {inside_records.shape}"
    require(
        inside_records.shape == outside_records.shape, f"outside records have shape {outside_records.shape}: {accepted}"
    )
    pairs = len(inside_records) * len(outside_records)
    accepted = f"1 to {pairs}, the number of pairs of a record in D and one outside"
    require(1 <= count <= pairs, f"neighbour-rank is {count}: accepted are {accepted}")
    for records in (inside_records, outside_records):
        measures.check_measurable(records, measure)
    return inside_records, outside_records


class _ScoredPair(NamedTuple):
    score: float
    row: int
    column: int


@dataclass(frozen=True)
class _RankedPairSearch:
    """Search for the first `count` pairs of records in a ranking, or for the first `count` pairs behind `after`."""

    measure: Measure
    count: int
    farthest: bool
    after: _ScoredPair | None = None


def _first_pairs(inside_records: Records, outside_records: Records, search: _RankedPairSearch) -> "_RankedPairs":
    best = _RankedPairs.none()
    size = measures.rows_in_block(inside_records, search.measure)
    for row in range(0, len(inside_records), size):
        mine = measures.prepare(inside_records.features[row : row + size], search.measure)
        for column in range(0, len(outside_records), size):
            yours = measures.prepare(outside_records.features[column : column + size], search.measure)
            best = best.merged(_ranked_in_block(mine, yours, (row, column), search, best), search.count)
    return best


class _RankedPairs(NamedTuple):
    """Pairs (row, column) by descending score, ties by row and column."""

    scores: Floats
    rows: Integers
    columns: Integers

    @classmethod
    def none(cls) -> "_RankedPairs":
        return cls(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def merged(self, pairs: "_RankedPairs", count: int) -> "_RankedPairs":
        both = _RankedPairs(*(np.concatenate(columns) for columns in zip(self, pairs, strict=True)))
        return both.take(np.lexsort((both.columns, both.rows, -both.scores))[:count])

    def take(self, chosen: Integers | Flags) -> "_RankedPairs":
        return _RankedPairs(self.scores[chosen], self.rows[chosen], self.columns[chosen])

    @property
    def last(self) -> _ScoredPair:
        return _ScoredPair(float(self.scores[-1]), int(self.rows[-1]), int(self.columns[-1]))

    def after(self, pair: _ScoredPair) -> "_RankedPairs":
        """Return the pairs that rank behind the pair `pair`."""
        later = (self.rows > pair.row) | ((self.rows == pair.row) & (self.columns > pair.column))
        return self.take((self.scores < pair.score) | ((self.scores == pair.score) & later))


def _ranked_in_block(
    mine: Prepared, yours: Prepared, start: tuple[int, int], search: _RankedPairSearch, best: _RankedPairs
) -> _RankedPairs:
    """Return the pairs of a block that may be among the first of the ranking, with their exact scores.

    `start` is the position of the block in the whole matrix, and `best` holds the best pairs of earlier blocks.
    """
    block, error = measures.screening_block(mine, yours, search.measure)
    scores = (block if search.farthest else -block).ravel()
    needed = (best.last.score if len(best.scores) == search.count else -np.inf) - error
    count = search.count
    if search.after is not None:
        # Some of those within the error of the place, or equal to it, may rank before it: they are looked at besides.
        scores = np.where(scores > search.after.score + error, -np.inf, scores)
        count += int(np.sum(scores >= search.after.score - error))
    if scores.max() < needed:
        return _RankedPairs.none()
    positions = np.flatnonzero((scores >= max(needed, _last_of_top(scores, count) - 2 * error)) & (scores > -np.inf))
    rows, columns = np.divmod(positions, block.shape[1])
    chosen = scores[positions]
    if error > 0:
        exact = _exact_scores(mine, yours, rows, columns, search.measure)
        chosen = exact if search.farthest else -exact
    pairs = _RankedPairs(chosen, rows + start[0], columns + start[1])
    if search.after is not None:
        pairs = pairs.after(search.after)
    return pairs.take(_top(pairs.scores, search.count)) if len(pairs.scores) else pairs


def _exact_scores(mine: Prepared, yours: Prepared, rows: Integers, columns: Integers, measure: Measure) -> Floats:
    """Return the exact dissimilarity of `mine[rows[i]]` and `yours[columns[i]]` for each i; `rows` is ascending."""
    scores = np.empty(len(rows))
    for _, start, number in zip(*np.unique(rows, return_index=True, return_counts=True), strict=True):
        rows_at_once = slice(start, start + number)
        scores[rows_at_once] = measures.exact_block(
            mine[rows[start : start + 1]], yours[columns[rows_at_once]], measure
        )[0]
    return scores


def _top(scores: Floats, count: int) -> Integers:
    """Return the positions of the `count` largest scores, in descending order, ties by position."""
    lowest = _last_of_top(scores, count)
    # Of the many that may tie for the last place only the first can be needed: sorting all of them takes long.
    above = np.flatnonzero(scores > lowest)
    level = np.flatnonzero(scores == lowest)
    positions = np.concatenate([above, level[: max(0, count - len(above))]])
    return positions[np.lexsort((positions, -scores[positions]))]


def _last_of_top(scores: Floats, count: int) -> float:
    position = max(0, len(scores) - count)
    return float(np.partition(scores, position)[position])
