"""Choose the neighbour D' of D: the unit in which they differ, and the records that replace a client's records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from fl_audit.adjacency import Adjacency, NeighbourPair, Relation, Unit
from fl_audit.array_types import Floats, Integers
from fl_audit.data.data_setting_enums import RANKED as RANKED
from fl_audit.data.data_setting_enums import NeighbourChoice as NeighbourChoice
from fl_audit.data.dissimilarity import Dissimilarity, Measure, exact_block
from fl_audit.data.dissimilarity_ranking import ranked_pairs, ranked_records
from fl_audit.data.multi_array_records import comparable
from fl_audit.data.partition import users_of
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.randomness import Purpose, generator
from fl_audit.value_checks import require_number
from fl_audit.words import name_list

CRAFTED = (NeighbourChoice.CRAFTED, NeighbourChoice.CRAFTED_OPPOSITE)
"""Choices that put a crafted record in the place of a random one in D; with the second, D' has a crafted one too."""
_MEASURES = (Dissimilarity.EUCLIDEAN, Dissimilarity.MANHATTAN, Dissimilarity.COSINE)
_DECIMALS = 9  # dissimilarities that agree to so many are ties: sums in another order differ in their last bits
Shard = Integers  # positions of a client's records


def ranked_neighbours(
    adjacency: Adjacency,
    inside_records: Records,
    outside_records: Records | None,
    dissimilarity: Measure,
    count: int,
    farthest: bool = True,
) -> tuple[NeighbourPair, ...]:
    """Return the neighbours of D that are most, or least, dissimilar to it, the most extreme one first.

    For add-or-remove, the records x1 of D are ranked by the sum of d(x1, x2) over x2 in D (Bernau et al. 2021, Eq. 9).
    For replace, the pairs of x in D and x' outside D are ranked by d(x, x') (Eq. 11). The most dissimilar neighbour has
    the dataset sensitivity of Definition 6. The search is exact, and ties are ordered by position.
    """
    match adjacency.relation:
        case Relation.ADD_REMOVE:
            _check_removable(inside_records)
            return tuple(
                NeighbourPair(index, None) for index in ranked_records(inside_records, dissimilarity, count, farthest)
            )
        case Relation.REPLACE:
            pairs = ranked_pairs(
                inside_records,
                _check_replacements(len(inside_records), outside_records),
                dissimilarity,
                count,
                farthest,
            )
            return tuple(NeighbourPair(*pair) for pair in pairs)
        case _:
            assert_never(adjacency.relation)


@dataclass(frozen=True)
class NeighbourRule:
    """Rule that chooses the differing unit: the record, user or client in which D and D' differ.

    Clients and users are compared as in `client_dissimilarities`, and records as in `ranked_neighbours`.
    """

    adjacency: Adjacency  # unit, and relation between D and D': add-or-remove or replace
    choice: NeighbourChoice | int  # choice by dissimilarity or at random, or the index of the record, client or user
    dissimilarity: Measure  # dissimilarity of two units; of clients and users euclidean, manhattan or cosine
    seed: int  # public seed of the data, which decides random choices
    rank: int = 1  # rank among the most or least dissimilar units, from 1; any other choice accepts only 1

    @property
    def is_ranked(self) -> bool:
        """Whether the differing unit is chosen by a ranking of units by dissimilarity.

        Raises `InputError` if the settings give a rank although the choice does not use a ranking.
        """
        ranked = isinstance(self.choice, NeighbourChoice) and self.choice in RANKED
        needed = f"a rank needs neighbour = {' or '.join(RANKED)}"
        require(self.rank == 1 or ranked, f"neighbour-rank is {self.rank} and neighbour is {self.choice}: {needed}")
        return ranked

    @property
    def farthest(self) -> bool:
        """Whether the most dissimilar unit has rank 1."""
        return self.choice is NeighbourChoice.MOST_DISSIMILAR

    @property
    def replaces(self) -> bool:
        """Whether another unit takes the place of the chosen one in D'."""
        return self.adjacency.relation is Relation.REPLACE


def choose_neighbour(rule: NeighbourRule, inside_records: Records, outside_records: Records | None) -> NeighbourPair:
    """Return the position in D of the record by which D and D' differ, and the position of its replacement.

    The replacement is a record outside D. Its position is None if the record is removed, or if the replacement will be
    crafted too (`CRAFTED_OPPOSITE`). The rule chooses in one of four ways:

    - By rank: records, or pairs of a record and its replacement, are ranked by dissimilarity.
    - Random: both records are drawn.
    - Crafted: both records are drawn. The crafted record later takes the place of the drawn record of D.
    - By index: the replacement is the outside record most dissimilar to the record with this index.
    """
    if rule.is_ranked:
        if rule.replaces:
            pool = _check_replacements(len(inside_records), outside_records)
            (pair,) = ranked_pairs(inside_records, pool, rule.dissimilarity, 1, rule.farthest, skipped=rule.rank - 1)
            return NeighbourPair(*pair)
        _check_removable(inside_records)
        return NeighbourPair(ranked_records(inside_records, rule.dissimilarity, rule.rank, rule.farthest)[-1], None)
    random = generator(rule.seed, Purpose.NEIGHBOUR_CHOICE)
    if not rule.replaces:
        _check_removable(inside_records)
    is_replaced = rule.replaces and rule.choice is not NeighbourChoice.CRAFTED_OPPOSITE
    records = _check_replacements(len(inside_records), outside_records) if is_replaced else None
    index = _one_of(len(inside_records), rule.choice, random, "indices of the records in D")
    if records is None:
        return NeighbourPair(index, None)
    if isinstance(rule.choice, NeighbourChoice):
        return NeighbourPair(index, int(random.integers(len(records))))
    ((_, replacement),) = ranked_pairs(inside_records.take([index]), records, rule.dissimilarity, 1)
    return NeighbourPair(index, replacement)


def _one_of(count: int, choice: NeighbourChoice | int, random: np.random.Generator, name: str) -> int:
    if isinstance(choice, NeighbourChoice):
        return int(random.integers(count))
    require(0 <= int(choice) < count, f"neighbour is {int(choice)}: accepted are 0 to {count - 1}, the {name}")
    return int(choice)


def _check_removable(inside_records: Records) -> None:
    require(len(inside_records) >= 2, "D has 1 record: at least 2 are needed to remove one")


def _check_replacements(units: int, outside_records: Records | None, unit: Unit = Unit.RECORD) -> Records:
    if outside_records is None:
        problem = f"D takes all {units} {unit}s, and to replace one of them another is needed"
        fewer = f"at most {units - 1} records in D" if unit is Unit.RECORD else "fewer records in D"
        raise InputError(f"{problem}: accepted are {fewer}, or add-remove-{unit} as adjacency")
    return outside_records


def choose_client(rule: NeighbourRule, shards: Sequence[Shard], records: Records) -> NeighbourPair:
    """Return the number of the client by which two neighbouring federations differ.

    The second element of the pair says what replaces this client in D'. If clients are replaced, this element is 0, the
    number of the only replacement. If clients are added or removed, it is None.
    """
    require(len(shards) >= 2, f"there is {len(shards)} client: at least 2 are needed for one to make the difference")
    client = _chosen_group(rule, shards, records, "clients", "numbers of the clients")
    return NeighbourPair(client, 0 if rule.replaces else None)


def choose_user(rule: NeighbourRule, inside_records: Records, outside_records: Records | None) -> NeighbourPair:
    """Return the number of the user by which D and D' differ and, for replace, the number of the replacing user.

    Users are numbered as by `users_of`. The replacing user is drawn uniformly; for add-or-remove there is none.
    """
    user = users_of(inside_records)
    count = int(user.max()) + 1
    require(count >= 2, f"D has {count} user: at least 2 are needed for one to make the difference")
    of_users = np.split(np.argsort(user, kind="stable"), np.cumsum(np.bincount(user))[:-1])
    chosen = _chosen_group(rule, of_users, inside_records, "users", "numbers of the users of D")
    if not rule.replaces:
        return NeighbourPair(chosen, None)
    outside_users = int(users_of(_check_replacements(count, outside_records, Unit.USER)).max()) + 1
    draw = generator(rule.seed, Purpose.NEIGHBOUR_CHOICE, round=1)
    return NeighbourPair(chosen, int(draw.integers(outside_users)))


def _chosen_group(
    rule: NeighbourRule, groups: Sequence[Shard], records: Records, plural_noun: str, numbers: str
) -> int:
    """Return the index in `groups` of the client or user that a rule chooses as the differing unit.

    Each group has the records of one client or user. `plural_noun` and `numbers` are words for error messages, such as
    "clients" and "numbers of the clients".
    """
    count = len(groups)
    if not rule.is_ranked:
        return _one_of(count, rule.choice, generator(rule.seed, Purpose.NEIGHBOUR_CHOICE), numbers)
    require(
        1 <= rule.rank <= count,
        f"neighbour-rank is {rule.rank}: accepted are 1 to {count}, the number of {plural_noun}",
    )
    scores = np.round(client_dissimilarities(groups, records, rule.dissimilarity), _DECIMALS)
    scores = -scores if rule.farthest else scores
    return int(np.argsort(scores, kind="stable")[rule.rank - 1])  # of ties the one with the lowest number first


def client_dissimilarities(
    shards: Sequence[Shard], records: Records, measure: Measure = Dissimilarity.EUCLIDEAN
) -> Floats:
    """Return the dissimilarity of each client's records to the records of all other clients, shape (clients,).

    Two vectors are compared, one of the client and one of all others: the mean of the flattened features, followed by
    the share of each class among the labels, or the mean label where labels are quantities.
    """
    compared = f"dissimilarity is {measure} between clients, which are compared by means"
    require(measure in _MEASURES, f"{compared}: accepted are {name_list(_MEASURES)}")
    features = comparable(records, measure).features.reshape(len(records), -1)
    summed = [features[shard].sum(axis=0, dtype=np.float64) for shard in shards]
    sums_by_client = [_label_sums(records, shard) for shard in shards]
    sums = np.hstack([np.stack(summed), np.stack(sums_by_client)])
    sizes = np.array([len(shard) for shard in shards], dtype=np.float64)[:, np.newaxis]
    means = sums / sizes
    other_means = (sums.sum(axis=0) - sums) / (sizes.sum() - sizes)
    pairs = zip(means[:, np.newaxis], other_means[:, np.newaxis], strict=True)
    return np.array([exact_block(mine, yours, measure)[0, 0] for mine, yours in pairs])


def _label_sums(records: Records, shard: Shard) -> Floats:
    """Return the number of records of each class in a shard, (classes,), or the sum of labels that are quantities."""
    labels = records.labels[shard]
    if records.has_quantities:
        return np.array([labels.sum(dtype=np.float64)])
    return np.bincount(labels, minlength=records.classes).astype(np.float64)


def replacement_positions(
    outside_records: Records | None,
    size: int,
    seed: int,
    number: int = 0,
    *,
    inside_records: Records | None = None,
    replaced: Shard | None = None,
) -> Shard:
    """Choose the records that replace those of a client in D'; return their positions in `outside_records`, ascending.

    The records are drawn uniformly, in one of two ways. If owners are known, all records are of one owner with enough
    records outside D, preferably an owner without records in D. If owners are unknown, or no owner has enough, the
    records are drawn from all records outside D.

    If `inside_records` and `replaced` are given, the owners of the replaced records matter as well. If these records
    have a single owner, no record of this owner is drawn. If they have several, all records outside D may be drawn.

    Raises `InputError` if there are too few records outside D.

    `number`: Different numbers give independent draws.
    """
    require_number("size of the stand-in shard is", size, "whole numbers from 1")
    require_number("number of the stand-in shard is", number, "whole numbers from 0")
    known_positions = (
        np.empty(0, dtype=np.int64) if inside_records is None or inside_records.owner is None else inside_records.owner
    )
    own_owners = (
        np.unique(known_positions[replaced])
        if replaced is not None and known_positions.size
        else np.empty(0, dtype=np.int64)
    )
    free = np.arange(0 if outside_records is None else len(outside_records))
    owner = None if outside_records is None else outside_records.owner
    if owner is not None and len(own_owners) == 1:
        free = np.flatnonzero(owner != own_owners[0])
    left_text = f"{len(free)}{' of other owners' if len(own_owners) == 1 else ''} are left outside D for its stand-in"
    remedy = "use fewer records in D, a client with fewer records, or add-remove-client as adjacency"
    require(len(free) >= size, f"the replaced client has {size} records, and {left_text}: {remedy}")
    draw = generator(seed, Purpose.STAND_IN_SHARD, client=number)
    if owner is not None and len(own_owners) <= 1:
        owners, numbers = np.unique(owner[free], return_counts=True)
        enough = owners[numbers >= size]
        strangers = np.setdiff1d(enough, known_positions)
        if len(enough) > 0:
            free = free[owner[free] == draw.choice(strangers if len(strangers) > 0 else enough)]
    return np.sort(draw.choice(free, size=size, replace=False))
