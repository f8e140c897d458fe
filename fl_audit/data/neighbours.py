"""Neighbouring training sets: which record makes the difference between D and D'."""

from typing import assert_never

import numpy as np

from fl_audit.adjacency import Adjacency, NeighbourPair, Relation
from fl_audit.data.dissimilarity import Measure
from fl_audit.data.names import RANKED as RANKED
from fl_audit.data.names import NeighbourChoice as NeighbourChoice
from fl_audit.data.ranking import pair_of_rank, ranked_pairs, ranked_records
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.randomness import Purpose, generator

CRAFTED = (NeighbourChoice.CRAFTED, NeighbourChoice.CRAFTED_OPPOSITE)
"""The choices that put a crafted record in the place of a random one; the second crafts what replaces it as well."""


def ranked_neighbours(
    adjacency: Adjacency,
    inside: Records,
    outside: Records | None,
    dissimilarity: Measure,
    count: int,
    farthest: bool = True,
) -> tuple[NeighbourPair, ...]:
    """Return the neighbours of D that are most or least dissimilar to it, in order, of ties the lowest indices first.

    For add-or-remove the records x1 of D are ranked by the sum over x2 in D of d(x1, x2) (Bernau et al. 2021, Eq. 9),
    for replace the pairs of x in D and x' outside D by d(x, x') (Eq. 11). The first of the most dissimilar ones has
    the dataset sensitivity of Definition 6. The search is exact and its memory does not grow with the number of pairs.

    Parameters
    ----------
    adjacency
        How D and D' differ.
    inside
        D, n records.
    outside
        m records that may replace one of D, or None; not used by add-or-remove.
    dissimilarity
        The measure d.
    count
        How many neighbours are asked for: 1 to n for add-or-remove, 1 to n m for replace.
    farthest
        The most dissimilar neighbours; otherwise the least dissimilar ones.

    Raises
    ------
    InputError
        If there are fewer neighbours, or the records do not suit the measure.
    """
    match adjacency.relation:
        case Relation.ADD_REMOVE:
            _check_removable(inside)
            return tuple(NeighbourPair(index, None) for index in ranked_records(inside, dissimilarity, count, farthest))
        case Relation.REPLACE:
            pairs = ranked_pairs(inside, _check_replacements(len(inside), outside), dissimilarity, count, farthest)
            return tuple(NeighbourPair(*pair) for pair in pairs)
        case _:
            assert_never(adjacency.relation)


def choose_neighbour(
    adjacency: Adjacency,
    inside: Records,
    outside: Records | None,
    choice: NeighbourChoice | int,
    dissimilarity: Measure,
    seed: int,
    rank: int = 1,
) -> NeighbourPair:
    """Return the record by which D and D' differ.

    Parameters
    ----------
    adjacency
        How D and D' differ.
    inside
        D, n records.
    outside
        Records that may replace one of D, or None; not used by add-or-remove.
    choice
        Most or least dissimilar (see `ranked_neighbours`), random, crafted, or the index of a record of D. A named
        record is replaced by the outside record most dissimilar to it. A crafted one takes the place of a random
        record, and a random outside record replaces it, unless its opposite does.
    dissimilarity
        The measure d.
    seed
        Seed of the run, for the random choice.
    rank
        Rank among the most or least dissimilar neighbours, from 1; 1 for any other choice.

    Raises
    ------
    InputError
        If index or rank is out of range, D has too few records, replace has no outside record, or the records do not
        suit the measure.
    """
    if isinstance(choice, NeighbourChoice) and choice in RANKED:
        farthest = choice is NeighbourChoice.MOST_DISSIMILAR
        if adjacency.relation is Relation.REPLACE:
            pool = _check_replacements(len(inside), outside)
            return NeighbourPair(*pair_of_rank(inside, pool, dissimilarity, rank, farthest))
        return ranked_neighbours(adjacency, inside, outside, dissimilarity, rank, farthest)[-1]
    require(
        rank == 1, f"neighbour-rank is {rank} and neighbour is {choice}: a rank needs neighbour = {' or '.join(RANKED)}"
    )
    random = generator(seed, Purpose.NEIGHBOUR_CHOICE)
    match adjacency.relation:
        case Relation.ADD_REMOVE:
            _check_removable(inside)
            return NeighbourPair(_one_of(inside, choice, random), None)
        case Relation.REPLACE if choice is NeighbourChoice.CRAFTED_OPPOSITE:
            return NeighbourPair(_one_of(inside, choice, random), None)
        case Relation.REPLACE:
            pool = _check_replacements(len(inside), outside)
            index = _one_of(inside, choice, random)
            if isinstance(choice, NeighbourChoice):
                return NeighbourPair(index, int(random.integers(len(pool))))
            return NeighbourPair(index, ranked_pairs(inside.take([index]), pool, dissimilarity, 1)[0][1])
        case _:
            assert_never(adjacency.relation)


def _one_of(inside: Records, choice: NeighbourChoice | int, random: np.random.Generator) -> int:
    if isinstance(choice, NeighbourChoice):
        return int(random.integers(len(inside)))
    index = int(choice)
    require(
        0 <= index < len(inside),
        f"neighbour is {index}: accepted are 0 to {len(inside) - 1}, the indices of the records in D",
    )
    return index


def _check_removable(inside: Records) -> None:
    require(len(inside) >= 2, "D has 1 record: at least 2 are needed to remove one")


def _check_replacements(inside: int, outside: Records | None) -> Records:
    if outside is None:
        raise InputError(
            f"D takes all {inside} records, and to replace one of them another is needed: use fewer records in D, or "
            "add-remove-record as adjacency"
        )
    return outside
