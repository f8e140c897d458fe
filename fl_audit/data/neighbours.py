"""Choice of the neighbour D' of D: the unit in which they differ, and the records that replace those of a client."""

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from fl_audit.adjacency import Adjacency, NeighbourPair, Relation, Unit
from fl_audit.array_types import Floats, Integers
from fl_audit.data.dissimilarity import Dissimilarity, Measure, exact_block
from fl_audit.data.dissimilarity_ranking import pair_of_rank, ranked_pairs, ranked_records
from fl_audit.data.multi_array_records import comparable
from fl_audit.data.option_names import RANKED as RANKED
from fl_audit.data.option_names import NeighbourChoice as NeighbourChoice
from fl_audit.data.partition import users_of
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require, require_number
from fl_audit.randomness import Purpose, generator

CRAFTED = (NeighbourChoice.CRAFTED, NeighbourChoice.CRAFTED_OPPOSITE)
"""Choices that put a crafted record in the place of a random one in D; with the second, D' has a crafted one too."""
_MEASURES = (Dissimilarity.EUCLIDEAN, Dissimilarity.MANHATTAN, Dissimilarity.COSINE)
_DECIMALS = 9  # dissimilarities that agree to so many are ties: sums in another order differ in their last bits
Shard = Integers  # positions of a client's records


def ranked_neighbours(
    adjacency: Adjacency,
    inside: Records,
    outside: Records | None,
    dissimilarity: Measure,
    count: int,
    farthest: bool = True,
) -> tuple[NeighbourPair, ...]:
    """Return the neighbours of D that are most or least dissimilar to it, in order; ties are ordered by index.

    For add-or-remove the records x1 of D are ranked by the sum over x2 in D of d(x1, x2) (Bernau et al. 2021, Eq. 9),
    for replace the pairs of x in D and x' outside D by d(x, x') (Eq. 11). The most dissimilar neighbour has the dataset
    sensitivity of Definition 6. The search is exact, and its memory does not grow with the number of pairs.

    Parameters
    ----------
    adjacency
        The relation between neighbours, as for `choose_neighbour`.
    inside
        Records of D, n of them.
    outside
        Records outside D, m of them, or None for add-or-remove.
    dissimilarity
        Measure of dissimilarity d; `InputError` if the records do not suit it.
    count
        Number of neighbours: 1 to n for add-or-remove, 1 to n m for replace.
    farthest
        Whether the most dissimilar neighbours are returned, or otherwise the least dissimilar ones.
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
    """Return the record by which D and D' differ and, for replace, the outside record that takes its place in D'.

    Raises `InputError` if index or rank is out of range, D has too few records, there is no outside record for replace,
    or the records do not suit the measure.

    Parameters
    ----------
    adjacency
        The relation between neighbours.
    inside
        Records of D, n of them.
    outside
        m records that may replace one of D, or None; not used by add-or-remove.
    choice
        Most or least dissimilar neighbour (see `ranked_neighbours`), random, crafted, or the index of a record of D. If
        it is an index, the record is replaced by the outside record most dissimilar to it. A crafted record takes the
        place of a random record of D, and is replaced by a random outside record or by its crafted opposite.
    rank
        Rank among the most or least dissimilar neighbours, from 1; 1 for any other choice.
    dissimilarity
        Measure of dissimilarity d.
    seed
        Seed of the run, for the random choice.
    """
    if _is_ranked(choice, rank):
        farthest = choice is NeighbourChoice.MOST_DISSIMILAR
        if adjacency.relation is Relation.REPLACE:
            pool = _check_replacements(len(inside), outside)
            return NeighbourPair(*pair_of_rank(inside, pool, dissimilarity, rank, farthest))
        return ranked_neighbours(adjacency, inside, outside, dissimilarity, rank, farthest)[-1]
    random = generator(seed, Purpose.NEIGHBOUR_CHOICE)
    if adjacency.relation is Relation.ADD_REMOVE:
        _check_removable(inside)
    is_replaced = adjacency.relation is Relation.REPLACE and choice is not NeighbourChoice.CRAFTED_OPPOSITE
    others = _check_replacements(len(inside), outside) if is_replaced else None
    index = _one_of(len(inside), choice, random, "indices of the records in D")
    if others is None:
        return NeighbourPair(index, None)
    if isinstance(choice, NeighbourChoice):
        return NeighbourPair(index, int(random.integers(len(others))))
    return NeighbourPair(index, pair_of_rank(inside.take([index]), others, dissimilarity, 1)[1])


def _is_ranked(choice: NeighbourChoice | int, rank: int) -> bool:
    ranked = isinstance(choice, NeighbourChoice) and choice in RANKED
    needed = f"a rank needs neighbour = {' or '.join(RANKED)}"
    require(rank == 1 or ranked, f"neighbour-rank is {rank} and neighbour is {choice}: {needed}")
    return ranked


def _one_of(count: int, choice: NeighbourChoice | int, random: np.random.Generator, what: str) -> int:
    if isinstance(choice, NeighbourChoice):
        return int(random.integers(count))
    require(0 <= int(choice) < count, f"neighbour is {int(choice)}: accepted are 0 to {count - 1}, the {what}")
    return int(choice)


def _check_removable(inside: Records) -> None:
    require(len(inside) >= 2, "D has 1 record: at least 2 are needed to remove one")


def _check_replacements(inside: int, outside: Records | None, unit: Unit = Unit.RECORD) -> Records:
    if outside is None:
        taken = f"D takes all {inside} {unit}s, and to replace one of them another is needed"
        raise InputError(f"{taken}: use fewer records in D, or add-remove-{unit} as adjacency")
    return outside


def choose_client(
    adjacency: Adjacency,
    shards: Sequence[Shard],
    records: Records,
    choice: NeighbourChoice | int,
    dissimilarity: Measure,
    seed: int,
    rank: int = 1,
) -> NeighbourPair:
    """Return the client by which two federations differ and, for replace, 0, the number of its first stand-in shard.

    Raises `InputError` if number or rank is out of range, there is only one client, or the measure does not suit
    clients.

    Parameters
    ----------
    adjacency
        The relation between the two federations.
    shards
        Positions in D of every client's records, for at least 2 clients.
    records
        Records of D.
    choice
        Most or least dissimilar client (see `client_dissimilarities`), random, or the number of a client. The records
        of the stand-in shard play no part in the choice.
    rank
        Rank among the most or least dissimilar clients, from 1; 1 for any other choice.
    dissimilarity
        Measure of dissimilarity: euclidean, manhattan or cosine.
    seed
        Public seed of the data, for the random choice.
    """
    require(len(shards) >= 2, f"there is {len(shards)} client: at least 2 are needed for one to make the difference")
    if _is_ranked(choice, rank):
        client = _group_of_rank(shards, records, choice, dissimilarity, rank, "clients")
    else:
        client = _one_of(len(shards), choice, generator(seed, Purpose.NEIGHBOUR_CHOICE), "numbers of the clients")
    return NeighbourPair(client, None if adjacency.relation is Relation.ADD_REMOVE else 0)


def choose_user(
    adjacency: Adjacency,
    inside: Records,
    outside: Records | None,
    choice: NeighbourChoice | int,
    dissimilarity: Measure,
    seed: int,
    rank: int = 1,
) -> NeighbourPair:
    """Return the user by which D and D' differ and, for replace, the user outside D who takes its place in D'.

    Users are numbered as by `fl_audit.data.partition.users_of`.

    Parameters
    ----------
    adjacency
        The relation between D and D'.
    inside
        Records of D with their users.
    outside
        Records outside D with their users, or None.
    choice
        The user most or least dissimilar from all other users (see `client_dissimilarities`), random, or the number of
        a user. The user who takes the place of a replaced one is drawn uniformly.
    rank
        Rank among the most or least dissimilar users, from 1; 1 for any other choice.
    dissimilarity
        Measure of dissimilarity: euclidean, manhattan or cosine.
    seed
        Public seed of the data, for the random choice.

    Raises
    ------
    InputError
        If number or rank is out of range, D has one user only, nobody is left outside D, or the measure does not suit
        users.
    """
    user = users_of(inside)
    count = int(user.max()) + 1
    require(count >= 2, f"D has {count} user: at least 2 are needed for one to make the difference")
    if _is_ranked(choice, rank):
        of_users = np.split(np.argsort(user, kind="stable"), np.cumsum(np.bincount(user))[:-1])
        chosen = _group_of_rank(of_users, inside, choice, dissimilarity, rank, "users")
    else:
        chosen = _one_of(count, choice, generator(seed, Purpose.NEIGHBOUR_CHOICE), "numbers of the users of D")
    if adjacency.relation is Relation.ADD_REMOVE:
        return NeighbourPair(chosen, None)
    others = int(users_of(_check_replacements(count, outside, Unit.USER)).max()) + 1
    draw = generator(seed, Purpose.NEIGHBOUR_CHOICE, round=1)
    return NeighbourPair(chosen, int(draw.integers(others)))


def _group_of_rank(
    groups: Sequence[Shard],
    records: Records,
    choice: NeighbourChoice | int,
    dissimilarity: Measure,
    rank: int,
    many: str,
) -> int:
    """Return the index of the group of records at a rank, from 1, when groups are ordered by their dissimilarity.

    A group is a client's or a user's records, and its dissimilarity is that from all other groups together. Rank 1 is
    the most dissimilar group, or the least dissimilar one if `choice` says so. `many` names the groups in the message
    of the `InputError` for a rank out of range.
    """
    count = len(groups)
    require(1 <= rank <= count, f"neighbour-rank is {rank}: accepted are 1 to {count}, the number of {many}")
    scores = np.round(client_dissimilarities(groups, records, dissimilarity), _DECIMALS)
    scores = -scores if choice is NeighbourChoice.MOST_DISSIMILAR else scores
    return int(np.argsort(scores, kind="stable")[rank - 1])  # of ties the one with the lowest number first


def client_dissimilarities(
    shards: Sequence[Shard], records: Records, measure: Measure = Dissimilarity.EUCLIDEAN
) -> Floats:
    """Return the distance of each client's records from the records of all other clients, shape (clients,).

    One vector for the client is compared with one for the others: the mean of their flattened features, followed by the
    shares of the classes among their labels.

    Parameters
    ----------
    shards
        Positions of every client's records, for at least 2 clients, none of which is empty.
    records
        The records to which the positions refer.
    measure
        Measure of dissimilarity: euclidean, manhattan or cosine. Others raise `InputError`, because they have no
        meaning for vectors of means.
    """
    compared = f"dissimilarity is {measure} between clients, which are compared by means"
    require(measure in _MEASURES, f"{compared}: accepted are {', '.join(_MEASURES)}")
    features = comparable(records, measure).features.reshape(len(records), -1)
    summed = [features[shard].sum(axis=0, dtype=np.float64) for shard in shards]
    counted = [np.bincount(records.labels[shard], minlength=records.classes) for shard in shards]
    sums = np.hstack([np.stack(summed), np.stack(counted)])
    sizes = np.array([len(shard) for shard in shards], dtype=np.float64)[:, np.newaxis]
    means, others = sums / sizes, (sums.sum(axis=0) - sums) / (sizes.sum() - sizes)
    pairs = zip(means[:, np.newaxis], others[:, np.newaxis], strict=True)
    return np.array([exact_block(mine, yours, measure)[0, 0] for mine, yours in pairs])


def stand_in_shard(
    outside: Records | None,
    size: int,
    seed: int,
    number: int = 0,
    *,
    inside: Records | None = None,
    replaced: Shard | None = None,
) -> Shard:
    """Return the positions in `outside` of the records that replace those of a client, ascending, shape (size,).

    This stand-in shard is drawn uniformly. If owners are known, all its records belong to one owner who has enough
    records outside D, so that the stand-in is a natural client too; owners without records in D are preferred. Only if
    no owner has enough records does it mix those of several owners. With `inside` and `replaced`, a client whose
    records belong to one owner is never replaced by records of the same owner, and a client with records of several
    owners is replaced by a mixture.

    The caller has to leave these records out of the population sample. Raises `InputError` if there are too few records
    outside D.

    Parameters
    ----------
    outside
        Records outside D, or None if there are none.
    size
        Number of records of the replaced client, at least 1.
    seed
        Public seed of the data.
    number
        Number of the stand-in, from 0; different numbers are different draws.
    inside
        Records of D, whose owners are avoided if possible; None avoids no owner.
    replaced
        Positions in D of the replaced client's records.
    """
    require_number("size of the stand-in shard is", size, "whole numbers from 1")
    require_number("number of the stand-in shard is", number, "whole numbers from 0")
    known = np.empty(0, dtype=np.int64) if inside is None or inside.owner is None else inside.owner
    own = np.unique(known[replaced]) if replaced is not None and known.size else np.empty(0, dtype=np.int64)
    free = np.arange(0 if outside is None else len(outside))
    owner = None if outside is None else outside.owner
    if owner is not None and len(own) == 1:
        free = np.flatnonzero(owner != own[0])
    left = f"{len(free)}{' of other owners' if len(own) == 1 else ''} are left outside D for its stand-in"
    remedy = "use fewer records in D, a client with fewer records, or add-remove-client as adjacency"
    require(len(free) >= size, f"the replaced client has {size} records, and {left}: {remedy}")
    draw = generator(seed, Purpose.STAND_IN_SHARD, client=number)
    if owner is not None and len(own) <= 1:
        owners, numbers = np.unique(owner[free], return_counts=True)
        enough = owners[numbers >= size]
        strangers = np.setdiff1d(enough, known)
        if len(enough) > 0:
            free = free[owner[free] == draw.choice(strangers if len(strangers) > 0 else enough)]
    return np.sort(draw.choice(free, size=size, replace=False))
