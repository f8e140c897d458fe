"""Choose the table column whose values an adversary infers, with its possible values and the adversary's prior."""

from dataclasses import dataclass

import numpy as np

from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.data.loaded_dataset import ColumnPosition, LoadedDataset
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require

_MOST_VALUES = 100  # a column with more values is a measurement; each value costs a query a record and a model
_NAMES_SHOWN = 10


@dataclass(frozen=True, eq=False)
class AttributeToInfer:
    """A table column whose values an adversary infers, its possible values, and the adversary's prior over them."""

    column: ColumnPosition  # position of the column's features in a record
    values: Floats32  # every value as features, ascending, shape (values, width), two values or more
    prior: Floats  # share of each value among records on which no model is trained, shape (values,), with a sum of 1

    def codes(self, features: Floats32) -> Integers:
        """Return each record's value of the attribute, as its position in `values`, int64 (n,)."""
        return _codes(features[:, self.column.places], self.values)


def choose_attribute(
    dataset: LoadedDataset, outside_records: Records, column_name: str | None = None
) -> AttributeToInfer:
    """Return the column whose values the adversary will infer: a named one, or the one that is hardest to guess.

    Raises `InputError` if records are no rows of a table, or if there is no such column. It is also raised if a named
    column does not have 2 to 100 values.

    `column_name`: None chooses, among the columns with two values, the first one whose rarer value has the largest
    frequency in `outside_records`.
    """
    of_columns = f"records of {dataset.name} are {dataset.kind}, which have no columns to guess"
    require(dataset.is_table, f"{of_columns}: accepted with attribute are tables; leave it out")
    if column_name is not None:
        column = _named_column(dataset, column_name)
        return _with_prior(column, _values_of(dataset, column), outside_records)
    infers = [
        _with_prior(column, np.unique(dataset.pool.features[:, column.places], axis=0), outside_records)
        for column in _of_two_values(dataset)
    ]
    needed = f"accepted for attribute in [audit] are columns of 2 to {_MOST_VALUES} values, by name or number"
    require(bool(infers), f"records of {dataset.name} have no column of two values: {needed}")
    return max(infers, key=lambda infer: float(infer.prior.min()))  # of equal ones the first


def _of_two_values(dataset: LoadedDataset) -> list[ColumnPosition]:
    features = dataset.pool.features
    low = features.min(axis=0)
    high = features.max(axis=0)
    is_two = ((features == low) | (features == high)).all(axis=0) & (low < high)
    # A column of words with two levels has two features, which always add up to 1.
    return [column for column in dataset.table_columns if column.width <= 2 and bool(is_two[column.places].all())]


def _with_prior(column: ColumnPosition, values: Floats32, outside_records: Records) -> AttributeToInfer:
    counts = np.bincount(_codes(outside_records.features[:, column.places], values), minlength=len(values))
    return AttributeToInfer(column, values, counts / counts.sum())


def _codes(own_column: Floats32, values: Floats32) -> Integers:
    same = (own_column[:, np.newaxis, :] == values).all(axis=2)
    unknown = "a record has a value that no record of the pool has: accepted are the values of the pool"
    require(bool(same.any(axis=1).all()), unknown)
    return np.asarray(same.argmax(axis=1), dtype=np.int64)


def _values_of(dataset: LoadedDataset, column: ColumnPosition) -> Floats32:
    """Return the 2 to 100 values of a column as features, ascending, shape (values, width)."""
    values = np.unique(dataset.pool.features[:, column.places], axis=0)
    accepted = f"accepted are columns of 2 to {_MOST_VALUES} values"
    require(2 <= len(values) <= _MOST_VALUES, f"attribute {column.name} has {len(values)} values: {accepted}")
    return values


def with_values(records: Records, index: int, dataset: LoadedDataset, column_name: str) -> Records:
    """Return records with copies of one record, one for each possible value of a column.

    Raises `InputError` if there is no such column with 2 to 100 values.

    `index`: The copy with the first value takes its place, and the others are appended.
    """
    column = _named_column(dataset, column_name)
    values = _values_of(dataset, column)
    copies = records.take([*range(len(records)), *[index] * (len(values) - 1)])
    copies.features[[index, *range(len(records), len(copies))], column.places] = values
    return copies


def _named_column(dataset: LoadedDataset, column_name: str) -> ColumnPosition:
    """Return the column with a given name, or with a given number from 0."""
    columns = dataset.table_columns
    by_name = {column.name: column for column in columns}
    if column_name in by_name:
        return by_name[column_name]
    if column_name.isdecimal() and int(column_name) < len(columns):
        return columns[int(column_name)]
    names = ", ".join(list(by_name)[:_NAMES_SHOWN]) + (", ..." if len(columns) > _NAMES_SHOWN else "")
    accepted = f"accepted for {dataset.name} are the names {names} or the numbers 0 to {len(columns) - 1}"
    raise InputError(f"attribute is {column_name}: {accepted}")
