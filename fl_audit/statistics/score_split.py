"""Random splits into scores that choose a rule and scores that measure it, always the same for the same scores.

A rule that is chosen and measured on the same scores is no lower bound. So a fifth of either group is set apart, chosen
by lot. The lot must not depend on the order of the files: a split by position makes both parts near copies of each
other when the files are sorted, and the measured scores then confirm whatever the choosing ones suggested. Therefore:

1. Only the ranks are kept, of both groups together, and the groups are sorted: the order of the files is forgotten.
2. A digest of these ranks is the key of a random generator, and the generator draws the split. Given independent
   scores that are alike within a group, every split of the same ranks is equally likely to be the one that the data
   collection would have given, so a split that is drawn apart from them gives two independent parts. Equal scores
   are drawn one by one, like others: a rule that kept copies together would make the parts depend on each other.

The key follows from the ranks, so the split is not independent of them in the strict sense but as a hash function
mixes: the guarantee of a bound is kept on average over all ranks that can occur. In return the bound is a function of
the scores alone. It is the same for every order of the files, every increasing transformation of the scores, exchanged
groups and turned signs, and nobody can draw again until the split pleases.

**Few tables of ranks.** Scores of few values, and a few scores of any kind, have few different tables of ranks: two
coins tossed 20 times each have 441. There the average over all that can occur is no guarantee, but one split for each
table, and up to 13 % of certificates were false where 5 % may be. So where fewer than about 2^16 tables can occur, 25
splits are drawn by as many keys, and the median of their bounds is the bound: no single draw decides. Half of all
splits err at once with at most twice the probability of one (Markov); summed over all tables of coins, 10 to 40 in a
group, the median errs with at most 2.1 % where the average over all splits errs with 5.0 %.
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
_BEGINNING = 1024  # rows of a table of ranks


class ScorePart(NamedTuple):
    """Scores of one part, by group, each ascending, shapes (n1,) and (n0,); ranks from 0 replace values."""

    first: Floats
    second: Floats


@dataclass(frozen=True)
class ScoreSplit:
    """Both parts of both groups."""

    choosing: ScorePart  # the part that chooses a rule
    measuring: ScorePart  # the part that measures it
    values: int  # number of different scores

    def ways(self) -> tuple["ScoreSplit", ...]:
        """Return the four readings of the scores: `first` is the group taken to lie higher, and `second` the reference.

        Every event `score > threshold` bounds epsilon by log((P(first) - delta) / P(second)). Either group first,
        scores as they are or negated, give both error rates' ratios and their mirror images.
        """
        one, two = (ScorePart(-part.first[::-1], -part.second[::-1]) for part in (self.choosing, self.measuring))
        down = ScoreSplit(one, two, self.values)
        return self, down._exchanged(), down, self._exchanged()

    def _exchanged(self) -> "ScoreSplit":
        return ScoreSplit(ScorePart(*self.choosing[::-1]), ScorePart(*self.measuring[::-1]), self.values)


def number_that_chooses(size: int) -> int:
    """Return the number of the `size` scores that choose the threshold: a fifth, at least 1 if there are 2 or more."""
    return max(1, round(_SHARE_THAT_CHOOSES * size))


def number_of_splits(members: Floats, nonmembers: Floats) -> int:
    """Return the number of splits for the median of a bound: 1, or 25 where few tables of ranks can occur.

    t equal scores are shared between the groups in t + 1 ways. The product of these over all values, divided by the
    number of sizes that a group could have, is about the number of tables with these sizes.

    Parameters
    ----------
    members
        Scores of members, shape (n1,), no NaN.
    nonmembers
        Scores of nonmembers, shape (n0,), no NaN.

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
    """Return a split of two groups of scores, of at least 2 each.

    The scores determine which group is `first`, and whether ranks ascend or descend with the scores, so that exchanged
    groups and reversed signs give the same split. Whoever uses the split must try both groups and both signs.

    Parameters
    ----------
    members
        Scores of members, shape (n1,), no NaN; infinite scores are kept.
    nonmembers
        Scores of nonmembers, shape (n0,), no NaN; infinite scores are kept.
    break_ties
        Whether equal scores get ranks of their own, in an order drawn at random across both groups. The split itself
        does not depend on it.
    number
        Index of the split among several ones, from 0.
    """
    counts = _canonical(members, nonmembers)
    digest = hashlib.blake2b(counts.tobytes(), digest_size=16, salt=number.to_bytes(2, "little")).digest()
    bits = np.random.Philox(key=np.frombuffer(digest, "<u8"))
    sizes = counts.sum(axis=0).tolist()
    chosen = [_lowest(bits.random_raw(size), number_that_chooses(size)) for size in sizes]
    values = np.arange(len(counts), dtype=np.float64)
    groups = [np.repeat(values, counts[:, column]) for column in (0, 1)]
    if break_ties and sum(sizes) > len(counts):
        # Scores become their places in one order, equal ones by lot; each group keeps its own order.
        together = np.concatenate(groups)
        places = np.empty(together.size)
        places[np.lexsort((bits.random_raw(sum(sizes)), together))] = np.arange(together.size)
        groups = [places[: groups[0].size], places[groups[0].size :]]
    first, second = ((np.sort(group[lots]), np.sort(group[~lots])) for group, lots in zip(groups, chosen, strict=True))
    return ScoreSplit(ScorePart(first[0], second[0]), ScorePart(first[1], second[1]), values=len(counts))


def _lowest(lots: NDArray[np.uint64], number: int) -> Flags:
    """Return the lowest lots, the first ones among equals."""
    found = lots <= np.partition(lots, number - 1)[number - 1]
    if np.count_nonzero(found) > number:
        found = np.zeros(lots.size, dtype=np.bool_)
        found[np.argsort(lots, kind="stable")[:number]] = True
    return np.asarray(found, dtype=np.bool_)


def _canonical(members: Floats, nonmembers: Floats) -> Integers:
    """Return the number of scores of each group at each rank, shape (different scores, 2)."""
    # Of the four tables that exchanged groups and turned signs give, the one whose bytes come first.
    values, ranks = np.unique(np.concatenate([members, nonmembers]), return_inverse=True)
    parts = (ranks[: members.size], ranks[members.size :])
    table = np.stack([np.bincount(part, minlength=values.size) for part in parts], axis=1).astype("<i8")
    variants = (table, table[:, ::-1], table[::-1], table[::-1, ::-1])
    # The first bytes mostly decide, and copies of all of them would take as long as the sort.
    beginnings = [np.ascontiguousarray(one[:_BEGINNING]).tobytes() for one in variants]
    alike = [one for one, beginning in zip(variants, beginnings, strict=True) if beginning == min(beginnings)]
    if len(alike) > 1 and len(table) > _BEGINNING:
        alike.sort(key=lambda one: one.tobytes())
    return np.ascontiguousarray(alike[0])
