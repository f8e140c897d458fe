"""The training set D, the records outside it, and the test records."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_audit.data.records import Records, Source
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator

_LARGEST_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts of a data set.

    Parameters
    ----------
    inside
        D, the training set.
    outside
        All other records of the pool but the held-out test records; None if there are none.
    test
        Records on which accuracy is measured, from the official test split if there is one.
    """

    inside: Records
    outside: Records | None
    test: Records


def select_records(source: Source, records: int, test_records: int, seed: int) -> Split:
    """Draw the training set uniformly without replacement from the pool, and the test records.

    Without an official test split, min(test_records, 20 % of the pool) records, at least 1, are held out for the test.
    The same seed gives the same D whatever the number of test records.

    Parameters
    ----------
    source
        The data set.
    records
        Size n of D, at least 1.
    test_records
        Largest number of test records, at least 1.
    seed
        Seed of the run.

    Raises
    ------
    InputError
        If more records are asked for than there are, a number is below 1, or D has one class only.

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
    held_out = 0 if source.test is not None else _held_out(len(source.pool), test_records)
    free = len(source.pool) - held_out
    require(
        records <= free,
        f"{records} records are asked for: {source.name} has {free} available"
        + (f" beside {held_out} held out for the test" if held_out else ""),
    )
    inside = source.pool.take(order[:records])
    require(
        np.unique(inside.labels).size >= 2,
        f"the {records} records drawn from {source.name} have one class only: at least 2 are needed, ask for more",
    )
    # In the pool's order, so that the position of a replacement is easy to trace.
    outside = source.pool.take(np.sort(order[records:free])) if records < free else None
    return Split(inside, outside, _test(source, order[free:], test_records, random))


def _held_out(pool: int, test_records: int) -> int:
    return max(1, min(test_records, int(_LARGEST_HELD_OUT_SHARE * pool)))


def _test(source: Source, held_out: NDArray[np.int64], test_records: int, random: np.random.Generator) -> Records:
    if source.test is None:
        return source.pool.take(np.sort(held_out))
    number = min(test_records, len(source.test))
    return source.test.take(np.sort(random.permutation(len(source.test))[:number]))
