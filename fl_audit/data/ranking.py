"""The records and the pairs of records that lie farthest apart, or nearest: exact ranks in bounded memory.

Fast arithmetic with a known error finds the candidates, exact arithmetic ranks them; of ties the lowest index is first.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fl_audit.arrays import Floats, Integers
from fl_audit.data.dissimilarity import (
    Measure,
    Prepared,
    check_measurable,
    exact_block,
    prepare,
    rows_in_block,
    screening_block,
    taken,
)
from fl_audit.data.graph_records import comparable
from fl_audit.data.records import Records
from fl_audit.data.totals import approximate_totals, total_dissimilarity
from fl_audit.errors import require

_KEPT = 2**21  # largest number of pairs that are kept at once to find the pair of a rank


def ranked_records(records: Records, measure: Measure, count: int, farthest: bool = True) -> tuple[int, ...]:
    """Return the positions of the records with the largest or smallest summed dissimilarity to the others, in order.

    Parameters
    ----------
    records, measure
        n records, and how dissimilar two of them are.
    count, farthest
        How many are asked for, 1 to n; the largest sums first, otherwise the smallest first.

    Raises
    ------
    InputError
        If there are fewer records, or they do not suit the measure.
    """
    require(
        1 <= count <= len(records),
        f"neighbour-rank is {count}: accepted are 1 to {len(records)}, the number of records in D",
    )
    records = comparable(records)
    sign = 1.0 if farthest else -1.0
    totals, error = approximate_totals(records, measure)
    candidates, scores = np.arange(len(records)), sign * totals
    if error > 0:
        candidates = np.flatnonzero(scores >= _last_of_top(scores, count) - 2 * error)
        scores = sign * total_dissimilarity(records, measure, candidates)
    return tuple(int(candidates[position]) for position in _top(scores, count))


def ranked_pairs(
    inside: Records, outside: Records, measure: Measure, count: int, farthest: bool = True
) -> tuple[tuple[int, int], ...]:
    """Return the positions (i, j) of the inside and the outside records that lie farthest apart, or nearest, in order.

    Parameters
    ----------
    inside, outside, measure
        n records, m of the same shape, and how dissimilar two of them are.
    count, farthest
        How many pairs are asked for, 1 to n m; the farthest first, otherwise the nearest first.

    Raises
    ------
    InputError
        If the shapes differ, there are fewer pairs, or the records do not suit the measure.
    """
    inside, outside = _checked_pairs(inside, outside, measure, count)
    best = _first_pairs(inside, outside, _Search(measure, count, farthest))
    return tuple(zip(best.rows.tolist(), best.columns.tolist(), strict=True))


def pair_of_rank(
    inside: Records, outside: Records, measure: Measure, rank: int, farthest: bool = True
) -> tuple[int, int]:
    """Return the last pair of `ranked_pairs` for so many pairs, in memory that does not grow with the rank.

    All pairs are gone through once for every `_KEPT` ranks.

    Parameters
    ----------
    inside, outside, measure, farthest
        As for `ranked_pairs`.
    rank
        From 1 to the number of pairs.
    """
    inside, outside = _checked_pairs(inside, outside, measure, rank)
    last = None
    for passed in range(0, rank, _KEPT):
        found = _first_pairs(inside, outside, _Search(measure, min(_KEPT, rank - passed), farthest, last))
        last = found.last
    assert last is not None, "a rank is at least 1"
    return last.row, last.column


def _checked_pairs(inside: Records, outside: Records, measure: Measure, count: int) -> tuple[Records, Records]:
    inside, outside = comparable(inside), comparable(outside)
    require(
        inside.shape == outside.shape,
        f"outside records have shape {outside.shape}: accepted is that of the inside records, {inside.shape}",
    )
    pairs = len(inside) * len(outside)
    require(
        1 <= count <= pairs,
        f"neighbour-rank is {count}: accepted are 1 to {pairs}, the number of pairs of a record in D and one outside",
    )
    for records in (inside, outside):
        check_measurable(records, measure)
    return inside, outside


class _Place(NamedTuple):
    """A pair and its score, which together decide its rank."""

    score: float
    row: int
    column: int

    def shifted(self, row: int, column: int) -> "_Place":
        return _Place(self.score, self.row + row, self.column + column)


@dataclass(frozen=True)
class _Search:
    """What is looked for: the first `count` pairs, or the first that rank behind `after`."""

    measure: Measure
    count: int
    farthest: bool
    after: _Place | None = None

    def shifted(self, row: int, column: int) -> "_Search":
        return self if self.after is None else replace(self, after=self.after.shifted(row, column))


def _first_pairs(inside: Records, outside: Records, search: _Search) -> "_Ranked":
    best, size = _Ranked.none(), rows_in_block(inside, search.measure)
    for row in range(0, len(inside), size):
        mine = prepare(inside.features[row : row + size], search.measure)
        for column in range(0, len(outside), size):
            yours = prepare(outside.features[column : column + size], search.measure)
            found = _ranked_in_block(mine, yours, search.shifted(-row, -column), best)
            best = best.merged(found.shifted(row, column), search.count)
    return best


class _Ranked(NamedTuple):
    """Pairs and their scores, larger ones first, of ties the lowest pair."""

    scores: Floats
    rows: Integers
    columns: Integers

    @classmethod
    def none(cls) -> "_Ranked":
        return cls(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def shifted(self, row: int, column: int) -> "_Ranked":
        return _Ranked(self.scores, self.rows + row, self.columns + column)

    def merged(self, other: "_Ranked", count: int) -> "_Ranked":
        scores, rows, columns = (np.concatenate(both) for both in zip(self, other, strict=True))
        order = np.lexsort((columns, rows, -scores))[:count]
        return _Ranked(scores[order], rows[order], columns[order])

    @property
    def last(self) -> _Place:
        return _Place(float(self.scores[-1]), int(self.rows[-1]), int(self.columns[-1]))

    def after(self, place: _Place) -> "_Ranked":
        """Return those that rank behind a place."""
        later = (self.rows > place.row) | ((self.rows == place.row) & (self.columns > place.column))
        kept = (self.scores < place.score) | ((self.scores == place.score) & later)
        return _Ranked(self.scores[kept], self.rows[kept], self.columns[kept])

    def entry_score(self, count: int) -> float:
        """Return the score that a pair needs to be among the first `count`."""
        return float(self.scores[-1]) if len(self.scores) == count else -np.inf


def _ranked_in_block(mine: Prepared, yours: Prepared, search: _Search, best: _Ranked) -> _Ranked:
    """Return the pairs of a block that may be among the first, ranked."""
    block, error = screening_block(mine, yours, search.measure)
    scores = (block if search.farthest else -block).ravel()
    needed = best.entry_score(search.count) - error
    wanted = search.count
    if search.after is not None:
        # Some of those within the error of the place, or equal to it, may rank before it: they are looked at besides.
        scores = np.where(scores > search.after.score + error, -np.inf, scores)
        wanted += int(np.sum(scores >= search.after.score - error))
    if scores.max() < needed:
        return _Ranked.none()
    positions = np.flatnonzero((scores >= max(needed, _last_of_top(scores, wanted) - 2 * error)) & (scores > -np.inf))
    rows, columns = np.divmod(positions, block.shape[1])
    chosen = scores[positions]
    if error > 0:
        exact = _exact_scores(mine, yours, rows, columns, search.measure)
        chosen = exact if search.farthest else -exact
    found = _Ranked(chosen, rows, columns)
    if search.after is not None:
        found = found.after(search.after)
    if not len(found.scores):
        return found
    first = _top(found.scores, search.count)
    return _Ranked(found.scores[first], found.rows[first], found.columns[first])


def _exact_scores(mine: Prepared, yours: Prepared, rows: Integers, columns: Integers, measure: Measure) -> Floats:
    """Return the exact dissimilarities of pairs that are sorted by row."""
    scores = np.empty(len(rows))
    for _, start, number in zip(*np.unique(rows, return_index=True, return_counts=True), strict=True):
        part = slice(start, start + number)
        left, right = taken(mine, rows[start : start + 1]), taken(yours, columns[part])
        scores[part] = exact_block(left, right, measure)[0]
    return scores


def _top(scores: Floats, count: int) -> Integers:
    """Return the positions of the largest scores, largest first, of ties the first."""
    least = _last_of_top(scores, count)
    # Of the many that may tie for the last place only the first can be needed: sorting all of them takes long.
    above, level = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    positions = np.concatenate([above, level[: max(0, count - len(above))]])
    return positions[np.lexsort((positions, -scores[positions]))]


def _last_of_top(scores: Floats, count: int) -> float:
    """Return the smallest of the `count` largest scores, or of all if there are fewer."""
    place = max(0, len(scores) - count)
    return float(np.partition(scores, place)[place])
