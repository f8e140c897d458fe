"""Take the owners of a data set as its users, and limit the records of each user."""

from dataclasses import replace

import numpy as np

from fl_audit.array_types import Flags, Integers
from fl_audit.data.loaded_dataset import LoadedDataset
from fl_audit.errors import InputError, require

OWNER = "owner"
RECORDS_PER_USER = "records-per-user"
"""Value of the setting `user` that makes owners the users, and name of the setting that limits records per user."""


def with_owners_as_users(dataset: LoadedDataset) -> LoadedDataset:
    """Return a data set whose owners are its users too; raise `InputError` if it has no owners."""
    pool = dataset.pool
    unknown = f"user is {OWNER!r} in [data], and data set {dataset.name} does not say whose its records are"
    require(pool.owner is not None, f"{unknown}: accepted is it with femnist, or a column of csv, npz and hf:")
    return replace(dataset, pool=replace(pool, user=pool.owner, users=pool.owners))


def with_fewer_per_user(dataset: LoadedDataset, most_records: object) -> LoadedDataset:
    """Return a data set that keeps only the first records of each user, in the order of the file."""
    unknown = f"{RECORDS_PER_USER} is {most_records} in [data], and nothing says whose each record is"
    if dataset.pool.user is None:
        raise InputError(f"{unknown}: name the column of the users with user in [data]")
    require(
        isinstance(most_records, int) and most_records >= 1,
        f"{RECORDS_PER_USER} is {most_records}: accepted are whole numbers from 1",
    )
    assert isinstance(most_records, int)
    is_kept = first_of_each(dataset.pool.user, most_records)
    if is_kept.all():
        return dataset
    left_out = f"; {int((~is_kept).sum()):,} records beyond the first {most_records:,} of their user are left out"
    return replace(dataset, pool=dataset.pool.take(np.flatnonzero(is_kept)), description=dataset.description + left_out)


def first_of_each(codes: Integers, most_records: int) -> Flags:
    """Return True at the first `most_records` occurrences of every value in an array and False at all others, shape
    (n,).

    Shapes: `codes` (n,).

    Examples
    --------
    >>> first_of_each(np.array([3, 1, 3, 3, 1]), 2).tolist()
    [True, True, True, False, True]
    """
    order = np.argsort(codes, kind="stable")
    _, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    is_kept = np.empty(len(codes), dtype=np.bool_)
    is_kept[order] = np.arange(len(codes)) - np.repeat(starts, counts) < most_records
    return is_kept
