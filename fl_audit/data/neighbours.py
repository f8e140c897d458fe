"""Choose the neighbour D' of D: the unit in which they differ, and the records that replace a client's records."""

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
    """Return the neighbours of D that are most, or least, dissimilar to it, the most extreme one first.

    Each `NeighbourPair` has the position of a record in D and, for replace, that of the record outside D that replaces
    it. For add-or-remove, the records x1 of D are ranked by the sum of d(x1, x2) over x2 in D (Bernau et al. 2021, Eq.
    9). For replace, the pairs of x in D and x' outside D are ranked by d(x, x') (Eq. 11). The most dissimilar neighbour
    has the dataset sensitivity of Definition 6. The search is exact, ties are ordered by position, and the memory does
    not grow with the number of pairs.

    Parameters
    ----------
    adjacency
        Relation between neighbours: add-or-remove or replace.
    inside
        The n records of D.
    outside
        The m records outside D; None for add-or-remove.
    dissimilarity
        Dissimilarity d of two records, or the name of a user's function for it. Raises `InputError` if it is undefined
        for the records.
    count
        Number of neighbours to return: 1 to n for add-or-remove, 1 to n m for replace.
    farthest
        True returns the most dissimilar neighbours, False the least dissimilar ones.
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
    """Return the position of the record by which D and D' differ and, for replace, that of its replacement in D'.

    The first position is in `inside`, the second one in `outside`. For add-or-remove the second one is None. Raises
    `InputError` if an index or rank is out of range, if D has too few records, if there is no outside record for
    replace, or if the dissimilarity is undefined for the records.

    Parameters
    ----------
    adjacency
        Relation between neighbours: add-or-remove or replace.
    inside
        The n records of D.
    outside
        Records outside D that may replace one of D; None for none. They are not used by add-or-remove.
    choice
        Rule for the record. Most or least dissimilar: the record and its replacement are those of `ranked_neighbours`.
        Random or crafted: both are drawn at random; a crafted record later takes the place of the drawn record. Index:
        the record at this index, replaced by the outside record most dissimilar to it. With `CRAFTED_OPPOSITE` the
        second position is None, because the replacement is a second crafted record.
    rank
        Rank among the most or least dissimilar neighbours, from 1. Any other choice accepts only 1.
    dissimilarity
        Dissimilarity of two records, or the name of a user's function for it.
    seed
        Seed of the run, which decides random choices.
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
    """Return the number of the client by which two neighbouring federations differ.

    For replace, the second element is 0, the number of the set of records that replaces the client's. For add-or-remove
    it is None. Raises `InputError` if a number or rank is out of range, if there is only one client, or if the
    dissimilarity is not accepted for clients.

    Parameters
    ----------
    adjacency
        Relation between the two federations: add-or-remove or replace.
    shards
        Positions in D of every client's records, for at least 2 clients.
    records
        Records of D.
    choice
        Rule for the client: most or least dissimilar to all others (see `client_dissimilarities`), random, or its
        number. It does not depend on the records that replace those of the client.
    rank
        Rank among the most or least dissimilar clients, from 1. Any other choice accepts only 1.
    dissimilarity
        Dissimilarity of two clients: euclidean, manhattan or cosine.
    seed
        Public seed of the data, which decides random choices.
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
    """Return the number of the user by which D and D' differ and, for replace, the number of the replacing user.

    A user is a person with several records. Users are numbered as by `fl_audit.data.partition.users_of`, in D and
    outside D. The second number is None for add-or-remove.

    Parameters
    ----------
    adjacency
        Relation between D and D': add-or-remove or replace.
    inside
        Records of D with their users.
    outside
        Records outside D with their users; None for none.
    choice
        Rule for the user: most or least dissimilar to all others (see `client_dissimilarities`), random, or the user's
        number. The replacing user is drawn uniformly from those outside D.
    rank
        Rank among the most or least dissimilar users, from 1. Any other choice accepts only 1.
    dissimilarity
        Dissimilarity of two users: euclidean, manhattan or cosine.
    seed
        Public seed of the data, which decides random choices.

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
    """Return the index of the group of records with a given rank in dissimilarity to all other groups.

    A group holds the records of a client or of a user. Rank 1 is the most dissimilar group, or the least dissimilar one
    if `choice` says so. `many` names the groups in the `InputError` for a rank out of range.
    """
    count = len(groups)
    require(1 <= rank <= count, f"neighbour-rank is {rank}: accepted are 1 to {count}, the number of {many}")
    scores = np.round(client_dissimilarities(groups, records, dissimilarity), _DECIMALS)
    scores = -scores if choice is NeighbourChoice.MOST_DISSIMILAR else scores
    return int(np.argsort(scores, kind="stable")[rank - 1])  # of ties the one with the lowest number first


def client_dissimilarities(
    shards: Sequence[Shard], records: Records, measure: Measure = Dissimilarity.EUCLIDEAN
) -> Floats:
    """Return the dissimilarity of each client's records to the records of all other clients, shape (clients,).

    The records of the client become one vector, and those of all others another one: the mean of the flattened
    features, followed by the share of each class among the labels. The two vectors are compared.

    Parameters
    ----------
    shards
        Positions of every client's records in `records`, for at least 2 clients, none of which is empty.
    records
        Records of all clients.
    measure
        Dissimilarity of the two vectors: euclidean, manhattan or cosine. Others raise `InputError`, because they have
        no meaning for vectors of means.
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
    """Choose the records that replace those of a client in D', and return their positions in `outside`, ascending.

    They are drawn uniformly. If owners are known, all are of one owner with enough records outside D, so they are like
    those of a natural client. Owners without records in D are preferred. If no owner has enough records, those of
    several owners are mixed. If `inside` and `replaced` are given, a client with a single owner is never replaced by
    records of the same owner, and a client with several owners is replaced by a mixture. Raises `InputError` if there
    are too few records outside D.

    Parameters
    ----------
    outside
        Records outside D; None for none.
    size
        Number of records to choose, that of the replaced client, at least 1.
    seed
        Public seed of the data, which decides the draw.
    number
        Number of the replacement, from 0. Different numbers give independent draws.
    inside
        Records of D, whose owners are avoided if possible. None avoids no owner.
    replaced
        Positions in D of the replaced client's records; None if they are not known.
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
