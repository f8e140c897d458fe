"""Draw the training set D, and choose the records outside D and the test records."""

from dataclasses import dataclass

import numpy as np

from fl_audit.array_types import Integers
from fl_audit.data.data_setting_enums import PartitionScheme as PartitionScheme
from fl_audit.data.data_setting_enums import UsersAcrossClients as UsersAcrossClients
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.data.partition import users_of
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator
from fl_audit.value_checks import require_number

FEWEST_POPULATION = 2  # with fewer records outside D and D' the test records are the population sample
_LARGEST_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts of a data set: the training set D, the records outside it, and the test records."""

    inside: Records  # D, the training set
    outside: Records | None  # all other records of the pool except held-out test records; None if there are none
    test: Records  # records on which accuracy is measured, from the official test split if there is one


def population_size(split: Split, population_records: int, records_taken: int) -> int:
    """Return the number of records in the population sample of Epsilon*, on which no model is trained.

    The sample is drawn from outside D. If fewer than `FEWEST_POPULATION` records are left there, it is the test set.

    Parameters
    ----------
    split
        Records inside D, outside D, and for the test.
    population_records
        Largest size of the sample if it is drawn from outside D, at least 2.
    records_taken
        Number of records from outside D that are in D': 0, or 1 for a replaced record, or the size of the replaced
        client.
    """
    records_left = 0 if split.outside is None else len(split.outside) - records_taken
    return len(split.test) if records_left < FEWEST_POPULATION else min(population_records, records_left)


def select_records(
    dataset: LoadedDataset,
    records: int,
    test_records: int,
    seed: int,
    by_user: bool = False,
    users: int | None = None,
    fewest_outside: int = 0,
) -> Split:
    """Draw the training set D from the pool without replacement; return it with the rest of the pool and test records.

    Without an official test split, min(test_records, 20 % of the pool) records, at least 1, are held out for the test.
    D does not depend on the number of test records.

    With `by_user`, whole users are drawn, as many as fit into `records`. D, the records outside D and the held-out
    records then have no user in common, and the records of a user are consecutive in D. Users of an official test split
    are unknown.

    Raises `InputError` if the pool has too few records, or if all records of D have the same class.

    Parameters
    ----------
    dataset
        Data set with the pool and, if it has one, the official test split.
    seed
        Seed of the run, which decides the draw.
    by_user
        Whether to draw whole users, the persons whom records are about, instead of single records.
    users
        Largest number of users to draw, from 1; None sets no limit.
    records
        Number of records in D, at least 1; with `by_user` the largest number, so D may be smaller.
    test_records
        Largest number of test records, at least 1.
    fewest_outside
        Smallest number of records that are in neither D nor the test set, at least 0: 1 if a record of D is replaced.

    Examples
    --------
    >>> from fl_audit.data.catalogue import DataSpec, load_source
    >>> split = select_records(load_source(DataSpec("digits")), records=100, test_records=200, seed=0)
    >>> len(split.inside), len(split.test)
    (100, 200)
    """
    for name, number in (("records", records), ("test records", test_records)):
        require_number(f"number of {name} is", number, "whole numbers from 1")
    random = generator(seed, Purpose.RECORD_SELECTION)
    order, ends = _order_of_records(dataset.pool, random, by_user)
    most_held_out = int(_LARGEST_HELD_OUT_SHARE * len(dataset.pool))
    held_out = 0 if dataset.test is not None else max(1, min(test_records, most_held_out))
    if by_user and held_out:
        held_out = int(len(order) - _size_for_limit(ends, len(order) - held_out, at_least=True))
    free = len(dataset.pool) - held_out
    beside = f" beside {held_out} held out for the test" if held_out else ""
    most_held_out = free - fewest_outside
    remark = ", since another one has to replace a record of D" if fewest_outside else ""
    offered = f"{dataset.name} has {free}{beside}: accepted for records in [data] are 1 to {most_held_out}{remark}"
    require(records <= most_held_out, f"the training set is to have {records} records, and {offered}")
    if by_user:
        wanted_records = records
        records = _size_for_limit(ends[:users], records)
        problem = f"records is {wanted_records}, and the first user that is drawn has {int(ends[0])}"
        require(
            records > 0, f"{problem}: accepted are more records in [data], or fewer of each user by records-per-user"
        )
    inside = dataset.pool.take(order[:records])
    problem = f"records is {records}, and all that are drawn from {dataset.name} are of one class"
    needed = "at least 2 classes, or quantities, are needed, so ask for more records"
    require(np.unique(inside.labels).size >= 2, f"{problem}: {needed}")
    # In the pool's order, so that the position of a replacement is easy to trace.
    outside = dataset.pool.take(np.sort(order[records:free])) if records < free else None
    if dataset.test is None:
        return Split(inside, outside, dataset.pool.take(np.sort(order[free:])))
    tested = random.permutation(len(dataset.test))[: min(test_records, len(dataset.test))]
    return Split(inside, outside, dataset.test.take(np.sort(tested)))


def _order_of_records(pool: Records, random: np.random.Generator, by_user: bool) -> tuple[Integers, Integers]:
    """Return a random order of the records, and the ascending sizes that a selection of its first records may have.

    With `by_user`, the records of a user are consecutive, and a selection contains only whole users.
    """
    if not by_user:
        return random.permutation(len(pool)), np.arange(1, len(pool) + 1)
    user = users_of(pool)
    counts = np.bincount(user)
    order = random.permutation(len(counts))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return np.argsort(rank[user], kind="stable").astype(np.int64), np.cumsum(counts[order])


def _size_for_limit(ends: Integers, limit: int, at_least: bool = False) -> int:
    """Return the largest of the ascending sizes `ends` that is at most `limit`; 0 if all sizes are larger.

    With `at_least`, the last entry of `ends` is ignored, and the result is the smallest size that is at least `limit`.
    If all sizes are smaller, the result is the largest of them, and 0 if `ends` has only one entry.
    """
    if at_least:
        return int(ends[:-1][min(int(np.searchsorted(ends[:-1], limit)), len(ends) - 2)]) if len(ends) > 1 else 0
    fitting = ends[ends <= limit]
    return int(fitting[-1]) if fitting.size else 0
