"""Neighbouring federations: which client makes the difference, and whose records stand in where it is replaced."""

from collections.abc import Sequence

import numpy as np

from fl_audit.adjacency import Adjacency, NeighbourPair, Relation
from fl_audit.arrays import Floats, Integers
from fl_audit.data.dissimilarity import Dissimilarity, Measure, exact_block
from fl_audit.data.graph_records import comparable
from fl_audit.data.neighbours import RANKED, NeighbourChoice
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.randomness import Purpose, generator

Shard = Integers  # positions of a client's records

_MEASURES = (Dissimilarity.EUCLIDEAN, Dissimilarity.MANHATTAN, Dissimilarity.COSINE)
_DECIMALS = 9
"""Dissimilarities that agree to so many decimals are ties: sums in another order differ in their last bits."""


def choose_client(
    adjacency: Adjacency,
    shards: Sequence[Shard],
    records: Records,
    choice: NeighbourChoice | int,
    dissimilarity: Measure,
    seed: int,
    rank: int = 1,
    stand_in: int = 0,
) -> NeighbourPair:
    """Return the client by which two federations differ.

    Parameters
    ----------
    adjacency
        How they differ: add-remove-client or replace-client.
    shards
        Positions in D of every client's records, at least 2 clients.
    records
        D.
    choice
        Most or least dissimilar (see `client_dissimilarities`), random, or the number of a client. The stand-in has no
        part in the choice.
    dissimilarity
        How far a client lies from the others: euclidean, manhattan or cosine.
    seed
        Public seed of the data, for the random choice.
    rank
        Rank among the most or least dissimilar clients, from 1; 1 for any other choice.
    stand_in
        Number of the stand-in shard, as `stand_in_shard` takes it; not used where the client is removed.

    Returns
    -------
    NeighbourPair
        The client's number, and the number of the stand-in shard, None where the client is removed.

    Raises
    ------
    InputError
        If number or rank is out of range, there is one client only, or the measure does not suit clients.
    """
    require(len(shards) >= 2, f"there is {len(shards)} client: at least 2 are needed for one to make the difference")
    ranked = isinstance(choice, NeighbourChoice) and choice in RANKED
    require(
        rank == 1 or ranked,
        f"neighbour-rank is {rank} and neighbour is {choice}: a rank needs neighbour = {' or '.join(RANKED)}",
    )
    if ranked:
        client = _ranked(shards, records, dissimilarity, rank, choice is NeighbourChoice.MOST_DISSIMILAR)
    else:
        client = _one_of(len(shards), choice, seed)
    return NeighbourPair(client, None if adjacency.relation is Relation.ADD_REMOVE else stand_in)


def client_dissimilarities(
    shards: Sequence[Shard], records: Records, measure: Measure = Dissimilarity.EUCLIDEAN
) -> Floats:
    """Return how far each client's records lie from the records of all other clients, shape (clients,).

    What is compared is one vector for the client and one for the others: the mean of their flattened features, followed
    by the shares of the classes among their labels.

    Parameters
    ----------
    shards
        Positions of every client's records, at least 2 clients, none empty.
    records
        The records.
    measure
        Euclidean, manhattan or cosine.

    Raises
    ------
    InputError
        If the measure is another one: shares of unequal numbers and similarities of images say nothing of means.
    """
    require(
        measure in _MEASURES,
        f"dissimilarity is {measure} between clients, which are compared by means: accepted are {', '.join(_MEASURES)}",
    )
    sums, sizes = _sums(shards, records), np.array([len(shard) for shard in shards], dtype=np.float64)[:, np.newaxis]
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
    """Return the records outside D that stand in for those of a replaced client; they are in no other sample.

    A stand-in is drawn uniformly. Where owners are known, it is drawn from the records of one owner who has enough of
    them outside D, so that it is a natural client as well: if possible one without records in D, else any. Only where
    no owner has enough does it mix records of several. Two arguments say more, if they are given: a replaced client
    whose records are those of one owner is never replaced by records of the same owner, and one whose records are
    those of several owners is replaced by a mixture.

    Parameters
    ----------
    outside
        Records outside D, or None if there are none.
    size
        Number of records of the replaced client, at least 1.
    seed
        Public seed of the data.
    number
        Number of the stand-in, from 0: others are other draws.
    inside
        D, where its owners are to be told from others.
    replaced
        Positions in D of the replaced client's records; needs `inside`.

    Returns
    -------
    NDArray
        Ascending positions in `outside`, shape (size,). They have to be left out of the population sample.

    Raises
    ------
    InputError
        If there are too few records outside D.
    """
    require(size >= 1, f"size of the stand-in shard is {size}: accepted are whole numbers from 1")
    require(number >= 0, f"number of the stand-in shard is {number}: accepted are whole numbers from 0")
    own = _owners_in(inside if replaced is not None else None, replaced)
    free = _free(outside, own)
    if outside is None or len(free) < size:
        raise InputError(
            f"the replaced client has {size} records, and {len(free)}{' of other owners' if len(own) == 1 else ''} are "
            "left outside D for its stand-in: use fewer records in D, a client with fewer records, or "
            "add-remove-client as adjacency"
        )
    draw = generator(seed, Purpose.STAND_IN_SHARD, client=number)
    if outside.owner is not None and len(own) <= 1:
        owners = _with_enough(outside.owner[free], size, _owners_in(inside, None))
        if len(owners) > 0:
            free = free[outside.owner[free] == draw.choice(owners)]
    return np.sort(draw.choice(free, size=size, replace=False))


def _one_of(clients: int, choice: NeighbourChoice | int, seed: int) -> int:
    if choice is NeighbourChoice.RANDOM:
        return int(generator(seed, Purpose.NEIGHBOUR_CHOICE).integers(clients))
    client = int(choice)
    require(
        0 <= client < clients, f"neighbour is {client}: accepted are 0 to {clients - 1}, the numbers of the clients"
    )
    return client


def _ranked(shards: Sequence[Shard], records: Records, measure: Measure, rank: int, farthest: bool) -> int:
    """Return the client of a rank, of ties the one with the lowest number first."""
    require(
        1 <= rank <= len(shards), f"neighbour-rank is {rank}: accepted are 1 to {len(shards)}, the number of clients"
    )
    scores = np.round(client_dissimilarities(shards, records, measure), _DECIMALS)
    return int(np.argsort(-scores if farthest else scores, kind="stable")[rank - 1])


def _sums(shards: Sequence[Shard], records: Records) -> Floats:
    """Return the summed features and the number of labels of each class, side by side, a row for each client."""
    features = comparable(records).features.reshape(len(records), -1)
    return np.stack(
        [
            np.concatenate(
                [
                    features[shard].sum(axis=0, dtype=np.float64),
                    np.bincount(records.labels[shard], minlength=records.classes),
                ]
            )
            for shard in shards
        ]
    )


def _owners_in(records: Records | None, chosen: Shard | None) -> Shard:
    """Return the owners of records, or of some of them; none where they are not known."""
    if records is None or records.owner is None:
        return np.empty(0, dtype=np.int64)
    return np.unique(records.owner if chosen is None else records.owner[chosen])


def _free(outside: Records | None, own: Shard) -> Shard:
    """Return the records that may stand in: all but those of the one owner who is replaced."""
    if outside is None:
        return np.empty(0, dtype=np.int64)
    if outside.owner is None or len(own) != 1:
        return np.arange(len(outside))
    return np.flatnonzero(outside.owner != own[0])


def _with_enough(owner: Shard, size: int, inside: Shard) -> Shard:
    """Return the owners with enough records: those without records in D if there are any, else all."""
    owners, numbers = np.unique(owner, return_counts=True)
    enough = owners[numbers >= size]
    strangers = np.setdiff1d(enough, inside)
    return strangers if len(strangers) > 0 else enough
