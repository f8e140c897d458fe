"""The data sets that loaders return, with descriptions of their table columns and warnings about the data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from fl_audit.array_types import Flags, Integers
from fl_audit.data.records import Records
from fl_audit.errors import InputError, Remedy, require

_NAMED = 3
OWNER = "owner"
RECORDS_PER_USER = "records-per-user"
"""Value of the setting `user` that makes owners the users, and name of the setting that limits records per user."""


class ColumnRole(StrEnum):
    """Role of a column of a table, or of the folders and images in a folder of images."""

    NUMBER = "number"
    LEVELS = "levels"
    LABEL = "label"
    OWNER = "owner"
    USER = "user"
    IMAGE = "image"
    TEXT = "text"
    DROPPED = "dropped"


@dataclass(frozen=True)
class ColumnReadResult:
    """Description of how one column of a table was read."""

    name: str  # name of the column in the file
    kind: ColumnRole  # role of the column, such as number or label
    detail: str  # details in words for people, such as "20 to 40, scaled to 0 to 1"
    odd: bool = False  # whether the result is unusual, so that long lists show it too

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}, {self.detail}" if self.detail else f"{self.name}: {self.kind}"


@dataclass(frozen=True)
class DataWarning:
    """A warning about a property of the data, with the settings that solve the problem."""

    text: str  # the warning, in a line that names the remedies
    remedies: tuple[Remedy, ...] = ()  # settings that solve the problem
    in_report: bool = False  # whether the report shows the warning too, because its numbers depend on the problem
    alternatives: tuple[Remedy, ...] = ()  # settings named in the text that solve it instead of `remedies`


def first_names_text(names: Sequence[str]) -> str:
    """Return a phrase with the first three names of a list and the number of further ones.

    Examples
    --------
    >>> first_names_text(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


@dataclass(frozen=True)
class IdentifyingColumn:
    """A column that seems to identify persons or things instead of describing them, and how its values repeat."""

    name: str  # name of the column
    values: int  # number of different values of the column, at least 5
    rows: int  # number of records
    most: int  # number of records with the most frequent value; 1 if all values are different
    within_owner: bool = False  # whether all records of a value have one owner
    within_user: bool = False  # whether all records of a value are of one user
    beginning: str = ""  # example of the beginnings of words that are the values; empty if whole words or numbers are


@dataclass(frozen=True)
class ColumnPosition:
    """Position of the features of one table column among all features of a record."""

    name: str  # name of the column, or its number where columns have no names
    start: int  # position of the column's first feature
    width: int  # number of the column's features: one for numbers, one for each level for words

    @property
    def places(self) -> slice:
        """Slice of the column's features in a record."""
        return slice(self.start, self.start + self.width)


def side_by_side(columns: Iterable[tuple[str, int]]) -> tuple[ColumnPosition, ...]:
    """Return the positions of columns whose features are stored one column after the other.

    `columns` holds the name and the number of features of each column.
    """
    placed = []
    start = 0
    for name, width in columns:
        placed.append(ColumnPosition(name, start, width))
        start += width
    return tuple(placed)


@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """A loaded data set: the pool of records for training, optional test records, and descriptions.

    Pool and test records have the same feature shape and classes.
    """

    name: str  # name in the catalogue
    pool: Records  # records that training sets and their neighbours are drawn from
    test: Records | None  # official test split, None where the format has none
    description: str  # description of the data in one line
    columns: tuple[ColumnReadResult, ...] = ()  # how each column of a table was read; empty if all are read in one way
    # Position of each column of a table among the features; empty if every feature is a column without a name, or the
    # records are not rows of a table.
    placed: tuple[ColumnPosition, ...] = ()
    flat_image: tuple[int, int] | None = None  # height and width of images whose pixels are in one row, otherwise None
    is_sequence: bool = False  # whether two axes of a record are steps and features, and not height and width
    cautions: tuple[DataWarning, ...] = ()  # warnings about the data
    class_names: tuple[str, ...] = ()  # value that stands for each class in a table; empty elsewhere
    found: tuple[Remedy, ...] = ()  # settings of encoding, separator and decimal mark that differ from the usual ones
    identifiers: tuple[
        IdentifyingColumn, ...
    ] = ()  # the columns of a table that became features, and look like identifiers

    def __post_init__(self) -> None:
        if self.test is None:
            return
        shapes_found, shapes_wanted = ((records.shape, records.classes) for records in (self.test, self.pool))
        accepted = f"accepted are those of the other records, {shapes_wanted[0]} and {shapes_wanted[1]}"
        require(
            shapes_found == shapes_wanted,
            f"test records have shape {shapes_found[0]} and {shapes_found[1]} classes: {accepted}",
        )

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of the features of one record."""
        return self.pool.shape

    @property
    def is_table(self) -> bool:
        """True if records are rows of a table, and neither images nor graphs nor texts."""
        is_row = len(self.pool.shape) == 1 and self.flat_image is None
        return is_row and not self.pool.graphs and not self.pool.inputs

    @property
    def kind(self) -> str:
        """Word for records that are not rows of a table, such as "images", "graphs", "sequences" or "texts"."""
        if self.pool.inputs:
            return self.pool.kind_of_arrays
        return "graphs" if self.pool.graphs else "sequences" if self.is_sequence else "images"

    @property
    def table_columns(self) -> tuple[ColumnPosition, ...]:
        """Position of each table column among the features; columns without names are named by their numbers from 0."""
        return self.placed or side_by_side((str(number), 1) for number in range(self.pool.shape[0]))


def with_owners_as_users(dataset: LoadedDataset) -> LoadedDataset:
    """Return a data set whose owners are its users too; raise `InputError` if it has no owners."""
    pool = dataset.pool
    unknown = f"user is {OWNER!r} in [data], and data set {dataset.name} does not say whose its records are"
    require(pool.owner is not None, f"{unknown}: accepted is it with femnist, or a column of csv, npz and hf:")
    return replace(dataset, pool=replace(pool, user=pool.owner, users=pool.owners))


def with_fewer_per_user(dataset: LoadedDataset, most_records: object) -> LoadedDataset:
    """Return a data set that keeps only the first records of each user, in the order of the file.

    Parameters
    ----------
    dataset
        Data set that names the user of each record.
    most_records
        Number of records to keep of each user, a whole number from 1.

    Raises
    ------
    InputError
        If the number is no such number, or the data set names no users.
    """
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
    """Return True at the first occurrences of every value in an array and False at all others, bool (n,).

    Parameters
    ----------
    codes
        Values, integers (n,).
    most_records
        Number of occurrences of a value that are True, from 1.

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
