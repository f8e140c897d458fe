"""Neighbouring training sets: which record makes the difference between D and D'."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fl_audit.data.dissimilarity import Dissimilarity, farthest_pair, total_dissimilarity
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.privacy.release import NeighbouringRelation
from fl_audit.randomness import Purpose, generator


class NeighbourChoice(StrEnum):
    """How the differing record is chosen, where it is not named."""

    MOST_DISSIMILAR = "most-dissimilar"
    RANDOM = "random"


@dataclass(frozen=True)
class NeighbourPair:
    """The record by which D and D' differ.

    Parameters
    ----------
    index
        Position in D of the differing record x.
    replacement
        Position in the outside pool of the record x' that takes its place, None where x is removed.
    """

    index: int
    replacement: int | None


def choose_neighbour(
    relation: NeighbouringRelation,
    inside: Records,
    outside: Records | None,
    choice: NeighbourChoice | int,
    dissimilarity: Dissimilarity,
    seed: int,
) -> NeighbourPair:
    """Return the record by which D and D' differ.

    The most dissimilar neighbour is, for add-or-remove, argmax over x1 in D of the sum over x2 in D of d(x1, x2)
    (Bernau et al. 2021, Eq. 9), and for replace argmax over x in D and x' outside D of d(x, x') (Eq. 11).

    Parameters
    ----------
    relation
        How D and D' differ.
    inside
        D, n records.
    outside
        Records that may replace one of D, or None; not used by add-or-remove.
    choice
        Most dissimilar, random, or the index of a record of D. A named record is replaced by the outside record most
        dissimilar to it.
    dissimilarity
        The measure d.
    seed
        Seed of the run, for the random choice.

    Raises
    ------
    InputError
        If the index is out of range, D has too few records, or replace has no outside record.
    """
    match relation:
        case NeighbouringRelation.ADD_REMOVE_RECORD:
            require(len(inside) >= 2, "D has 1 record: at least 2 are needed to remove one")
            return _remove(inside, choice, dissimilarity, seed)
        case NeighbouringRelation.REPLACE_RECORD:
            if outside is None:
                raise InputError(
                    "no record is left outside D to replace one with: at least 1 is needed, use fewer in D"
                )
            return _replace(inside, outside, choice, dissimilarity, seed)


def _remove(inside: Records, choice: NeighbourChoice | int, dissimilarity: Dissimilarity, seed: int) -> NeighbourPair:
    match choice:
        case NeighbourChoice.MOST_DISSIMILAR:
            return NeighbourPair(int(np.argmax(total_dissimilarity(inside, dissimilarity))), None)
        case NeighbourChoice.RANDOM:
            return NeighbourPair(int(generator(seed, Purpose.NEIGHBOUR_CHOICE).integers(len(inside))), None)
        case _:
            return NeighbourPair(_named(inside, choice), None)


def _replace(
    inside: Records, outside: Records, choice: NeighbourChoice | int, dissimilarity: Dissimilarity, seed: int
) -> NeighbourPair:
    match choice:
        case NeighbourChoice.MOST_DISSIMILAR:
            return NeighbourPair(*farthest_pair(inside, outside, dissimilarity))
        case NeighbourChoice.RANDOM:
            random = generator(seed, Purpose.NEIGHBOUR_CHOICE)
            return NeighbourPair(int(random.integers(len(inside))), int(random.integers(len(outside))))
        case _:
            index = _named(inside, choice)
            return NeighbourPair(index, farthest_pair(inside.take([index]), outside, dissimilarity)[1])


def _named(inside: Records, index: int) -> int:
    require(
        0 <= index < len(inside),
        f"neighbour index is {index}: accepted are 0 to {len(inside) - 1}, the records of D",
    )
    return int(index)
