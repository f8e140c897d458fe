"""Divide the records of the training set among clients; most schemes are those of flwr-datasets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fl_audit.array_types import Integers
from fl_audit.data.data_setting_enums import PartitionScheme as PartitionScheme
from fl_audit.data.data_setting_enums import UsersAcrossClients as UsersAcrossClients
from fl_audit.data.records import Records
from fl_audit.errors import InputError, Remedy, require
from fl_audit.randomness import Purpose, generator

Parameter = float | int | str | bool
"""Value of one partitioner parameter."""
_DEFAULTS: Mapping[PartitionScheme, Mapping[str, Parameter | type[int]]] = {
    PartitionScheme.DIRICHLET: {"alpha": 0.5, "min_partition_size": 1, "self_balancing": False},
    PartitionScheme.PATHOLOGICAL: {"num_classes_per_partition": 2, "class_assignment_mode": "first-deterministic"},
    PartitionScheme.SHARD: {"num_shards_per_partition": int, "shard_size": int, "keep_incomplete_shard": True},
}
"""Parameters of the partition schemes with their defaults; a type alone if the default follows from the others."""


def partition_records(
    labels: Integers,
    clients: int,
    scheme: PartitionScheme,
    parameters: Mapping[str, Parameter],
    seed: int,
    owner: Integers | None = None,
) -> tuple[Integers, ...]:
    """Divide records among clients and return the sorted indices of every client's records.

    The parts are disjoint, not empty, and cover all records. Raises `InputError` if a parameter is unknown or has the
    wrong type, or if a client or a record would be left over. For `natural` it is also raised if owners are unknown or
    not as many as the clients.

    Parameters
    ----------
    labels
        Class of every record, shape (n,).
    clients
        Number of clients, from 1 to n; for `natural` the number of owners.
    scheme
        Scheme by which the records are divided.
    parameters
        Parameters of the flwr-datasets partitioner by name; defaults are in brackets. `dirichlet`: alpha (0.5),
        min-partition-size (1), self-balancing (false). `pathological`: num-classes-per-partition (2),
        class-assignment-mode (first-deterministic; others are deterministic and random). `shard`:
        num-shards-per-partition (2), shard-size (chosen so that no record is left over), keep-incomplete-shard (true).
        The other schemes have none.
    seed
        Seed of the run, which decides random choices.
    owner
        Owner of each record as an integer, shape (n,), which only `natural` uses: client i gets the records of the i-th
        owner that has any.

    Examples
    --------
    >>> parts = partition_records(np.array([0, 1] * 50), 4, PartitionScheme.DIRICHLET, {"alpha": 1.0}, seed=0)
    >>> sum(len(part) for part in parts)
    100
    """
    scheme = PartitionScheme(scheme)
    require(len(labels) >= 1, "there are 0 records to divide among clients: at least 1 is needed")
    accepted = f"1 to {len(labels)}, the number of records"
    require(1 <= clients <= len(labels), f"number of clients is {clients}: accepted are {accepted}")
    settings = _checked(scheme, parameters)
    if scheme is PartitionScheme.NATURAL:
        return _by_owner(owner, clients)
    random = generator(seed, Purpose.PARTITION)
    order = random.permutation(len(labels))
    if scheme is PartitionScheme.IID:
        # The same parts as of IidPartitioner, without the seconds that every client would need to import flwr-datasets.
        return tuple(np.sort(indices) for indices in np.array_split(order, clients))
    indices_by_client = _divide(scheme, clients, settings, labels[order], order, int(random.integers(2**31)))
    _check_parts(indices_by_client, len(labels), scheme)
    return indices_by_client


def user_shards(
    records: Records,
    clients: int,
    scheme: PartitionScheme,
    parameters: Mapping[str, Parameter],
    seed: int,
    across: UsersAcrossClients = UsersAcrossClients.REFUSE,
) -> tuple[Integers, ...]:
    """Divide records among clients so that all records of a user are at one client; return each client's indices.

    The scheme `iid` assigns whole users, in numbers as equal as possible. The other schemes assign records as
    `partition_records` does, and `across` decides about users whose records are then at several clients.

    Parameters
    ----------
    records
        Records with their users.
    clients
        Number of clients, from 1 to the number of users.
    scheme
        Scheme by which the records are divided.
    parameters
        Parameters of the scheme, as for `partition_records`.
    seed
        Seed of the run, which decides random choices.
    across
        Treatment of users with records at several clients.

    Raises
    ------
    InputError
        If users are unknown or refused, or a client would be left empty.
    """
    user = users_of(records)
    if PartitionScheme(scheme) is PartitionScheme.IID:
        _checked(scheme, parameters)
        number = int(user.max()) + 1
        require(
            1 <= clients <= number, f"number of clients is {clients}: accepted are 1 to {number}, the number of users"
        )
        order = generator(seed, Purpose.PARTITION).permutation(number)
        return _dealt(_client_of(np.array_split(order, clients), number)[user], clients)
    indices_by_client = partition_records(records.labels, clients, scheme, parameters, seed, records.owner)
    client = _client_of(indices_by_client, len(user))
    _, first, user_index = np.unique(user, return_index=True, return_inverse=True)
    parted = np.unique(user_index[client != client[first][user_index]])
    if parted.size == 0:
        return indices_by_client
    if across is UsersAcrossClients.REFUSE:
        to_first = Remedy("user-across-clients", "first")
        whole_users = Remedy("partition", "iid")
        problem = f"{parted.size:,} of {len(first):,} users have records at several clients"
        problem += (
            f", none of which could clip them together: {to_first} gives each to the client that has its first record"
        )
        if PartitionScheme(scheme) is PartitionScheme.NATURAL:
            raise InputError(problem, (to_first,))
        raise InputError(f"{problem}, {whole_users} deals out whole users", (to_first,), (whole_users,))
    shards = _dealt(client[first][user_index], clients)
    empty = [number for number, shard in enumerate(shards) if len(shard) == 0]
    left = f"user-across-clients is 'first', which leaves {len(empty)} of {clients} clients without a record"
    require(not empty, f"{left}: accepted are settings that give every client the first record of a user")
    return shards


def _client_of(indices_by_client: Sequence[Integers], count: int) -> Integers:
    """Return for each of `count` records the number of the part, i.e. of the client, that contains the record."""
    client = np.empty(count, dtype=np.int64)
    for number, indices in enumerate(indices_by_client):
        client[indices] = number
    return client


def _dealt(client: Integers, clients: int) -> tuple[Integers, ...]:
    """Return the indices of every client's records, ascending, given the client of each record."""
    order = np.argsort(client, kind="stable").astype(np.int64)
    numbers = np.bincount(client, minlength=clients)
    return tuple(np.split(order, np.cumsum(numbers)[:-1]))


def users_of(records: Records) -> Integers:
    """Return the user of each record, numbered from 0 in the order of first appearance; `InputError` if unknown."""
    if records.user is None:
        accepted = "accepted is user in [data], which names a column (csv, hf:) or an array (npz)"
        raise InputError(
            f"adjacency is about users, and nothing says whose each record is: {accepted}; "
            "of mnist user = 'writer', of femnist 'owner'"
        )
    _, first, user_index = np.unique(records.user, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[user_index]


def owners_of(owner: Integers | None) -> Integers:
    """Return the ascending numbers of the owners that have records; they are the clients of the scheme `natural`.

    Raises
    ------
    InputError
        If the owners of the records are unknown.
    """
    if owner is None:
        accepted = "accepted are csv and npz with owner in [data], which names a column or an array, and femnist"
        raise InputError(f"partition is natural, and nothing says whose each record is: {accepted}")
    return np.unique(owner)


def _by_owner(owner: Integers | None, clients: int) -> tuple[Integers, ...]:
    owners = owners_of(owner)
    assert owner is not None
    accepted = f"accepted for partition natural is {len(owners)}, or leave clients out"
    require(clients == len(owners), f"clients is {clients}, and the records of D have {len(owners)} owners: {accepted}")
    return _dealt(np.searchsorted(owners, owner), clients)


def _checked(scheme: PartitionScheme, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    defaults = _DEFAULTS.get(scheme, {})
    kinds = {name: default if isinstance(default, type) else type(default) for name, default in defaults.items()}
    settings: dict[str, Any] = {
        name: None if isinstance(default, type) else default for name, default in defaults.items()
    }
    names = ", ".join(name.replace("_", "-") for name in settings) or "none"
    for given, value in parameters.items():
        name = given.replace("-", "_")
        require(name in settings, f"partition {scheme} has no parameter {given!r}: accepted are {names}")
        # bool is an int in Python, and `alpha = true` is surely a mistake.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        good, accepted = {
            bool: (isinstance(value, bool), "are true and false"),
            str: (isinstance(value, str), "is text"),
            int: (is_number and isinstance(value, int) and value >= 1, "are whole numbers from 1"),
            float: (is_number and 0 < float(value) < float("inf"), "are positive finite numbers"),
        }[kinds[name]]
        value_text = str(value).lower() if isinstance(value, bool) else repr(value)
        require(good, f"partition parameter {given} is {value_text}: accepted {accepted}")
        settings[name] = float(value) if kinds[name] is float else value
    return settings


def _divide(
    scheme: PartitionScheme, clients: int, settings: dict[str, Any], labels: Integers, order: Integers, seed: int
) -> tuple[Integers, ...]:
    # Importing flwr-datasets takes a second (pyarrow, datasets), which commands that divide nothing need not pay.
    from fl_audit.data.partitioner_library import divided  # noqa: PLC0415

    try:
        return divided(scheme, clients, settings, labels, order, seed)
    except (ValueError, TypeError, AssertionError, IndexError) as error:
        task = f"partition {scheme} cannot divide {len(labels)} records among {clients} clients"
        raise InputError(f"{task}: {_reason(scheme, settings, error)}") from error


def _reason(scheme: PartitionScheme, settings: Mapping[str, Any], error: Exception) -> str:
    if scheme is PartitionScheme.DIRICHLET:
        size = f"min-partition-size {settings['min_partition_size']} records"
        accepted = "accepted are a larger alpha, a smaller min-partition-size or fewer clients"
        return f"no draw with alpha {settings['alpha']:g} gave every client {size}: {accepted}"
    if scheme is PartitionScheme.SHARD:
        accepted = "accepted are a smaller shard-size, fewer shards a client, or fewer clients"
        return f"there are not enough shards for every client to get one: {accepted}"
    if scheme not in _DEFAULTS:
        return "the smallest client would have none: accepted are fewer clients or more records"
    # The partitioner's messages run over several lines; the words are good.
    return " ".join(str(error).split()) or type(error).__name__


def _check_parts(indices_by_client: tuple[Integers, ...], records: int, scheme: PartitionScheme) -> None:
    for client, indices in enumerate(indices_by_client):
        accepted = "accepted are settings that give every client at least 1, try fewer clients"
        require(len(indices) > 0, f"partition {scheme} leaves client {client} without a record: {accepted}")
    counts = np.bincount(np.concatenate(indices_by_client), minlength=records)
    accepted = "accepted are settings that give every record to one client, try more classes or shards a client"
    dropped = f"partition {scheme} drops {int((counts == 0).sum())} of {records} records"
    require(bool((counts == 1).all()), f"{dropped}: {accepted}")
