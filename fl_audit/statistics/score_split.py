"""Split scores at random but reproducibly: one part chooses a rule (a threshold), the other part measures it.

A rule that is chosen and measured on the same scores gives no valid lower bound. So a random fifth of each group is set
apart for the choice. The split must not depend on the order of the files. If the files are sorted, a split by position
makes both parts almost equal, and the measuring scores then confirm whatever the choosing scores suggested. So the
split is made in two steps:

1. The scores of each group are sorted and replaced by their ranks in both groups together, so that the order of the
   files has no influence.
2. A hash of these ranks is the key of a random generator, which draws the split. If scores are independent, and
   identically distributed within each group, all splits of the same ranks are equally likely. So a split that does not
   depend on the ranks gives two independent parts. Equal scores are drawn one by one. A rule that kept them together
   would make the parts depend on each other.

The split is independent of the ranks only as far as the hash behaves like a random function: the guarantee of a bound
holds on average over all ranks that can occur. In return the bound is a function of the scores alone. It is the same
for every order of the files, every increasing transformation of the scores, exchanged groups and negated scores. Nobody
can repeat the draw until the result is convenient.

**Few tables of ranks.** A table of ranks holds the number of scores of each group at each rank. Scores with few
different values, and small numbers of scores, have few possible tables: two coins tossed 20 times each have 441. Then
the average is over few splits, and the guarantee is not reliable: at a level of 5 %, up to 13 % of certificates were
false. So if fewer than about 2^16 tables can occur, 25 splits are drawn, and the bound is the median of their bounds.
The median errs only if at least half of the splits err. By Markov's inequality, this has at most twice the probability
with which a single split errs. For 10 to 40 coins in a group, exact sums over all tables give an error probability of
at most 2.1 % for the median, and of 5.0 % on average over all splits.
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats, Integers

_SHARE_THAT_CHOOSES = 0.2  # share of either group's scores that choose the rule and are not measured
_FEW_TABLES = 16.0  # binary logarithm of the number of tables below which one split of each is too few to average over
_SPLITS = 25
_BEGINNING = 1024  # number of rows of a table of ranks that are compared first


class TwoSampleScores(NamedTuple):
    """Scores of both groups in one part of a split, or their ranks from 0.

    The values of each group are ascending, and their shapes are (n1,) and (n0,).
    """

    first: Floats
    second: Floats


@dataclass(frozen=True)
class ScoreSplit:
    """Scores of both groups, divided into a part that chooses a threshold and a part that measures it."""

    choosing: TwoSampleScores  # the part that chooses a threshold
    measuring: TwoSampleScores  # the part of which the scores above the threshold are counted
    values: int  # number of different scores

    def directions(self) -> tuple["ScoreSplit", ...]:
        """Return the split in all four directions: either group as `first`, with scores as they are or negated.

        In each direction, `first` is the group that is expected to score higher, and `second` is the reference. Every
        event `score > threshold` bounds epsilon from below by log((P(first) - delta) / P(second)).
        """
        negated_choosing, negated_measuring = (
            TwoSampleScores(-scores.first[::-1], -scores.second[::-1]) for scores in (self.choosing, self.measuring)
        )
        negated = ScoreSplit(negated_choosing, negated_measuring, self.values)
        return self, negated._exchanged(), negated, self._exchanged()

    def _exchanged(self) -> "ScoreSplit":
        return ScoreSplit(TwoSampleScores(*self.choosing[::-1]), TwoSampleScores(*self.measuring[::-1]), self.values)


def number_that_chooses(size: int) -> int:
    """Return how many scores of a group are set aside for choosing a threshold: a fifth of `size`, at least 1."""
    return max(1, round(_SHARE_THAT_CHOOSES * size))


def number_of_splits(members: Floats, nonmembers: Floats) -> int:
    """Return the number of random splits over which the median of a bound is taken: 1 or 25.

    One split is enough if scores are many and mostly different. The criterion is the number of tables of ranks that can
    occur, where a table holds the numbers of members and of nonmembers at each rank. Below about 2^16 tables, the
    result is 25. The number of tables is estimated by the product of t + 1 over all distinct values, divided by n1 + n0
    + 1. Here t is the number of scores that have the value.

    Shapes: `members` (n1,), `nonmembers` (n0,).

    Examples
    --------
    >>> coins, scores = np.tile([0.0, 1.0], 50), np.arange(100.0)
    >>> number_of_splits(coins, coins), number_of_splits(scores, scores + 0.5)
    (25, 1)
    """
    _, copies = np.unique(np.concatenate([members, nonmembers]), return_counts=True)
    tables = float(np.log2(copies + 1.0).sum() - np.log2(members.size + nonmembers.size + 1.0))
    return 1 if tables >= _FEW_TABLES else _SPLITS


def split_scores(members: Floats, nonmembers: Floats, break_ties: bool = False, number: int = 0) -> ScoreSplit:
    """Split the scores of two groups at random: one part serves to choose a threshold, the other part to evaluate it.

    Each group has at least 2 scores. The split is the same if the two groups are exchanged or all scores are negated.
    It therefore does not fix which group is expected to score higher. The caller must try both groups, with the scores
    as they are and negated (`ScoreSplit.directions`).

    Shapes: `members` (n1,), `nonmembers` (n0,).

    `break_ties`: The split does not depend on it.
    """
    counts = _canonical(members, nonmembers)
    digest = hashlib.blake2b(counts.tobytes(), digest_size=16, salt=number.to_bytes(2, "little")).digest()
    bits = np.random.Philox(key=np.frombuffer(digest, "<u8"))
    sizes = counts.sum(axis=0).tolist()
    chosen = [_lowest(bits.random_raw(size), number_that_chooses(size)) for size in sizes]
    values = np.arange(len(counts), dtype=np.float64)
    groups = [np.repeat(values, counts[:, column]) for column in (0, 1)]
    if break_ties and sum(sizes) > len(counts):
        # Scores are replaced by their ranks in the pooled scores, where equal scores are ordered at random.
        together = np.concatenate(groups)
        positions = np.empty(together.size)
        positions[np.lexsort((bits.random_raw(sum(sizes)), together))] = np.arange(together.size)
        groups = [positions[: groups[0].size], positions[groups[0].size :]]
    first, second = ((np.sort(group[lots]), np.sort(group[~lots])) for group, lots in zip(groups, chosen, strict=True))
    return ScoreSplit(TwoSampleScores(first[0], second[0]), TwoSampleScores(first[1], second[1]), values=len(counts))


def _lowest(lots: NDArray[np.uint64], number: int) -> Flags:
    """Return a mask of the `number` smallest draws; among equal draws the first ones are taken."""
    is_lowest = lots <= np.partition(lots, number - 1)[number - 1]
    if np.count_nonzero(is_lowest) > number:
        is_lowest = np.zeros(lots.size, dtype=np.bool_)
        is_lowest[np.argsort(lots, kind="stable")[:number]] = True
    return np.asarray(is_lowest, dtype=np.bool_)


def _canonical(members: Floats, nonmembers: Floats) -> Integers:
    """Return a table of counts: how many scores of each group (columns) have each value (rows).

    Exchanging the groups or negating the scores gives the same table, since the order of rows and columns is
    normalised.
    """
    # Exchanged groups and negated scores give four tables; the one that is first in the order of bytes is taken.
    values, ranks = np.unique(np.concatenate([members, nonmembers]), return_inverse=True)
    group_ranks = (ranks[: members.size], ranks[members.size :])
    table = np.stack(
        [np.bincount(ranks_of_group, minlength=values.size) for ranks_of_group in group_ranks], axis=1
    ).astype("<i8")
    variants = (table, table[:, ::-1], table[::-1], table[::-1, ::-1])
    # The first rows mostly decide, and copies of all rows would take as long as the sort.
    beginnings = [np.ascontiguousarray(variant[:_BEGINNING]).tobytes() for variant in variants]
    candidates = [
        variant for variant, beginning in zip(variants, beginnings, strict=True) if beginning == min(beginnings)
    ]
    if len(candidates) > 1 and len(table) > _BEGINNING:
        candidates.sort(key=lambda variant: variant.tobytes())
    return np.ascontiguousarray(candidates[0])
