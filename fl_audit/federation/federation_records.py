"""Select the records of a federation from its public description.

They are the training set D, the clients' shards, the replacement in D', and held-out records.
"""

from typing import NamedTuple, assert_never

import numpy as np

from fl_audit.adjacency import Unit
from fl_audit.array_types import Integers
from fl_audit.data.catalogue import load_source
from fl_audit.data.neighbours import replacement_positions
from fl_audit.data.partition import partition_records, user_shards, users_of
from fl_audit.data.record_selection import FEWEST_POPULATION, Split, select_records
from fl_audit.data.records import Records, single_record
from fl_audit.federation.federation import Federation
from fl_audit.randomness import Purpose, generator


def split_of(federation: Federation) -> Split:
    """Split the data set into the records of D, the records outside D, and the test records.

    If users are the units, all records of a user are in one part. Raises `InputError` if the data cannot be used.
    """
    by_user = federation.mechanism.unit is Unit.USER
    return select_records(
        load_source(federation.data),
        federation.records,
        federation.test_records,
        federation.data_seed,
        by_user,
        federation.users or None,
    )


def shards_of(federation: Federation, inside_records: Records) -> tuple[Integers, ...]:
    """Divide the records of D among the clients; return for each client the positions in D of its records."""
    scheme = federation.partition, dict(federation.partition_parameters), federation.data_seed
    if federation.mechanism.unit is Unit.USER:
        return user_shards(inside_records, federation.clients, *scheme, federation.user_across_clients)
    return partition_records(inside_records.labels, federation.clients, *scheme, inside_records.owner)


def victim_of(federation: Federation, inside_records: Records, shards: tuple[Integers, ...]) -> int:
    """Return the number, from 0, of the client that holds the unit by which D and D' differ."""
    match federation.mechanism.unit:
        case Unit.RECORD:
            first = federation.pair.index
        case Unit.USER:
            first = int(np.flatnonzero(users_of(inside_records) == federation.pair.index)[0])
        case Unit.CLIENT:
            return federation.pair.index
        case _:
            assert_never(federation.mechanism.unit)
    return next(client for client, shard in enumerate(shards) if first in shard)


def outside_of(federation: Federation, split: Split, shard: Integers) -> tuple[Records | None, Integers]:
    """Return the records that replace the differing unit in D', and the positions of all other records outside D.

    The records are None if D' is D without the unit.

    `shard`: They matter only if the unit is this client.
    """
    number = federation.pair.replacement
    everything = np.arange(0 if split.outside is None else len(split.outside))
    if federation.pair.opposite is not None:
        return single_record(federation.pair.opposite, split.inside), everything
    if number is None:
        return None, everything
    assert split.outside is not None, "what stands in for a unit is outside D"
    match federation.mechanism.unit:
        case Unit.RECORD:
            records_taken = np.array([number])
        case Unit.USER:
            records_taken = np.flatnonzero(users_of(split.outside) == number)
        case Unit.CLIENT:
            records_taken = replacement_positions(
                split.outside, len(shard), federation.data_seed, number, inside_records=split.inside, replaced=shard
            )
        case _:
            assert_never(federation.mechanism.unit)
    return split.outside.take(records_taken), np.delete(everything, records_taken)


class HeldOut(NamedTuple):
    """Records that no client holds: test records, the population sample, and unused records."""

    test: Records  # held-out records
    population: Records  # records outside D and D'
    spare: Integers  # positions, among the records outside D, of the unused ones


def held_out_of(federation: Federation, split: Split, indices_left: Integers) -> HeldOut:
    """Draw the population sample, or take the test records if too few records are left outside D and D'."""
    if split.outside is None or len(indices_left) < FEWEST_POPULATION:
        return HeldOut(split.test, split.test, indices_left)
    draw = generator(federation.data_seed, Purpose.POPULATION_SAMPLE)
    chosen = np.sort(
        draw.choice(indices_left, size=min(federation.population_records, len(indices_left)), replace=False)
    )
    return HeldOut(split.test, split.outside.take(chosen), np.setdiff1d(indices_left, chosen))
