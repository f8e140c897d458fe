"""The training set D, the records outside it, and the test records."""

from dataclasses import dataclass

import numpy as np

from fl_audit.data.records import Records, Source
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator

FEWEST_POPULATION = 2  # with fewer records outside D and D' the test records are the population sample
_LARGEST_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts of a data set."""

    inside: Records  # D, the training set
    outside: Records | None  # all other records of the pool but the held-out test records; None if there are none
    test: Records  # records on which accuracy is measured, from the official test split if there is one


def population_size(split: Split, population_records: int, taken: int) -> int:
    """Return how many records serve Epsilon* as the population sample: test records where too few are left outside.

    Parameters
    ----------
    split, population_records
        The records, and the most that are wanted for the population sample, at least 2.
    taken
        How many records from outside D are in D', which then cannot be in the population sample: 0, 1 for a replaced
        record, or the size of a stand-in shard.
    """
    left = 0 if split.outside is None else len(split.outside) - taken
    return len(split.test) if left < FEWEST_POPULATION else min(population_records, left)


def select_records(source: Source, records: int, test_records: int, seed: int) -> Split:
    """Draw the training set uniformly without replacement from the pool, and the test records.

    Without an official test split, min(test_records, 20 % of the pool) records, at least 1, are held out for the test.
    The same seed gives the same D whatever the number of test records. More records than there are, or of one class
    only, are refused.

    Parameters
    ----------
    source, seed
        The data set, and the seed of the run.
    records, test_records
        Size n of D, and largest number of test records, each at least 1.

    Examples
    --------
    >>> from fl_audit.data.catalogue import DataSpec, load_source
    >>> split = select_records(load_source(DataSpec("digits")), records=100, test_records=200, seed=0)
    >>> len(split.inside), len(split.test)
    (100, 200)
    """
    for name, number in (("records", records), ("test records", test_records)):
        require(number >= 1, f"number of {name} is {number}: accepted are whole numbers from 1")
    random = generator(seed, Purpose.RECORD_SELECTION)
    order = random.permutation(len(source.pool))
    most = int(_LARGEST_HELD_OUT_SHARE * len(source.pool))
    held_out = 0 if source.test is not None else max(1, min(test_records, most))
    free = len(source.pool) - held_out
    require(
        records <= free,
        f"the training set is to have {records} records, and {source.name} has {free}"
        + (f" beside {held_out} held out for the test" if held_out else "")
        + f": accepted for records in [data] are 1 to {free}",
    )
    inside = source.pool.take(order[:records])
    require(
        np.unique(inside.labels).size >= 2,
        f"records is {records}, and all that are drawn from {source.name} are of one class: at least 2 classes are "
        "needed, so ask for more records",
    )
    # In the pool's order, so that the position of a replacement is easy to trace.
    outside = source.pool.take(np.sort(order[records:free])) if records < free else None
    if source.test is None:
        return Split(inside, outside, source.pool.take(np.sort(order[free:])))
    tested = random.permutation(len(source.test))[: min(test_records, len(source.test))]
    return Split(inside, outside, source.test.take(np.sort(tested)))
