"""Encode columns as numbers: scaling, integer codes of labels and owners, and attributes to be inferred."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats, Floats32, Integers
from fl_audit.data.records import ColumnPosition, LoadedDataset, Records
from fl_audit.errors import InputError, require
from fl_audit.learning.named_inputs import NamedInput


def min_max(fitted: Floats, test: Floats | None = None) -> tuple[Floats, Floats | None]:
    """Scale columns to [0, 1] by their range in the fitted values, (v - min) / (max - min).

    Returns the scaled `fitted`, and the scaled `test` or None. Raises `InputError` if a range is not finite.

    Parameters
    ----------
    fitted
        Values that define the range of each column, finite, shape (n, columns). A constant column becomes 0.
    test
        Values to scale by the same ranges and to clip to [0, 1], finite, shape (m, columns); None if there are none.
    """
    low = fitted.min(axis=0)
    with np.errstate(over="ignore"):
        span = fitted.max(axis=0) - low
    wide = int(np.argmax(~np.isfinite(span)))
    reach = f"a column reaches from {low[wide]:g} to {fitted[:, wide].max():g}"
    require(bool(np.isfinite(span).all()), f"{reach}: accepted are ranges below 1.7e308")
    span[span == 0] = 1.0
    scaled = (fitted - low) / span
    return scaled, None if test is None else np.clip((test - low) / span, 0.0, 1.0)


def encode_labels(
    fitted: NDArray[np.generic], test: NDArray[np.generic] | None, path: Path
) -> tuple[Integers, Integers | None, int]:
    """Encode labels as integers 0..c-1 in the sorted order of the training labels.

    Returns the codes of the training labels, those of the test labels or None, and the number c of classes. Raises
    `InputError` if labels are numbers but not all whole, or if a test label is not among the training labels.

    Parameters
    ----------
    fitted
        Training labels: integers, bools or strings, shape (n,).
    test
        Test labels, of the same type, shape (m,); None if there are no test records.
    path
        Path of the file, for error messages.
    """
    _check_whole(fitted, path)
    levels, codes = np.unique(fitted, return_inverse=True)
    if test is None:
        return codes.astype(np.int64), None, len(levels)
    _check_whole(test, path)
    unknown = test[~np.isin(test, levels)]
    require(not unknown.size, f"{path}: test label {str(*unknown[:1])} does not occur among the training labels")
    return codes.astype(np.int64), np.searchsorted(levels, test).astype(np.int64), len(levels)


class Owners(NamedTuple):
    """The owner of each record as an index into `names`; `codes` is None and `names` is empty if owners are unknown."""

    codes: Integers | None = None
    names: tuple[str, ...] = ()


UNKNOWN_OWNERS = Owners()


def encode_owners(values: NDArray[np.generic], what: str, noun: str = "owner") -> Owners:
    """Encode the owner, or the user, of each record as an integer 0..m-1, in the sorted order of their names.

    Raises `InputError` if `values` has more than one axis, or if a value is neither a whole number nor a string.

    Parameters
    ----------
    values
        Name of the owner or user of each record, as a whole number or string, shape (n,).
    what
        Phrase that names the values at the beginning of an error message, such as the file and the column.
    noun
        Word in error messages for the person, `owner` or `user`.
    """
    require(values.ndim == 1, f"{what} has shape {values.shape}: accepted is one {noun} for each record, shape (n,)")
    kind, accepted = values.dtype.kind, f"accepted are whole numbers or text that name the {noun}"
    require(kind in "biuUf", f"{what} has type {values.dtype}: {accepted}")
    if kind == "f":
        wrong = values[~np.isfinite(values) | (values != np.floor(values))]
        require(not wrong.size, f"{what} has {str(*wrong[:1])}: {accepted}")
    levels, codes = np.unique(values, return_inverse=True)
    names = levels.astype(np.str_) if kind != "f" else [f"{level:.0f}" for level in levels.tolist()]
    return Owners(codes.astype(np.int64), tuple(map(str, names)))


def build_records(
    features: NDArray[np.generic],
    labels: Integers,
    classes: int,
    path: Path,
    owners: Owners = UNKNOWN_OWNERS,
    users: Owners = UNKNOWN_OWNERS,
    inputs: tuple[NamedInput, ...] = (),
) -> Records:
    """Return `Records` with the given arrays; their error messages begin with the path of the file.

    Parameters
    ----------
    features
        Features of the records, shape (n, ...).
    labels
        Class of each record, from 0 to `classes` - 1, shape (n,).
    classes
        Number of classes.
    owners
        Owner of each record, such as a hospital; unknown by default.
    users
        Person whom each record is about; unknown by default.
    inputs
        Names and shapes of the model's inputs, for a model with several inputs.
    path
        Path of the file from which the records come.

    Raises
    ------
    InputError
        If `Records` raises it.
    """
    try:
        more = {"user": users.codes, "users": users.names, "inputs": inputs}
        return Records(features, labels, classes, *owners, **more)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _check_whole(labels: NDArray[np.generic], path: Path) -> None:
    if labels.dtype.kind in "biuUS":
        return
    if labels.dtype.kind != "f":
        raise InputError(f"{path}: labels have type {labels.dtype}: accepted are whole numbers or text")
    # A column of measurements would otherwise silently become one class for every distinct value.
    values = labels.astype(np.float64)
    wrong = values[~np.isfinite(values) | (values != np.floor(values))]
    if wrong.size:
        raise InputError(f"{path}: a label is {wrong[0]:g}: accepted are whole numbers or text that name a class")


_MOST_VALUES = 100  # a column with more values is a measurement; each value costs a query a record and a model
_NAMES_SHOWN = 10


@dataclass(frozen=True, eq=False)
class AttributeToInfer:
    """A table column whose values an adversary infers, its possible values, and the adversary's prior over them."""

    column: ColumnPosition  # position of the column's features in a record
    values: Floats32  # every value as features, ascending, shape (values, width), two values or more
    prior: Floats  # share of each value among records on which no model is trained, shape (values,), with a sum of 1

    def codes(self, features: Floats32) -> Integers:
        """Return the index in `values` of the value that each record has in this column, int64 (n,)."""
        return _codes(features[:, self.column.places], self.values)


def choose_attribute(source: LoadedDataset, outside: Records, named: str | None = None) -> AttributeToInfer:
    """Return the column whose values the adversary will infer: a named one, or the one that is hardest to guess.

    Raises `InputError` if the records are not rows of a table, or if there is no such column with 2 to 100 values.

    Parameters
    ----------
    source
        Data set with the column. The possible values of its columns are public.
    outside
        Records on which no model is trained. The frequencies of the values among them are the adversary's prior.
    named
        Name of the column, or its number from 0. None chooses a column with two values: the one whose rarer value is
        most frequent in `outside`, or the first of several.
    """
    of_columns = f"records of {source.name} are {source.kind}, which have no columns to guess"
    require(source.is_table, f"{of_columns}: accepted with attribute are tables; leave it out")
    if named is not None:
        column = _named_column(source, named)
        return _with_prior(column, _values_of(source, column), outside)
    found = [
        _with_prior(column, np.unique(source.pool.features[:, column.places], axis=0), outside)
        for column in _of_two_values(source)
    ]
    needed = f"accepted for attribute in [audit] are columns of 2 to {_MOST_VALUES} values, by name or number"
    require(bool(found), f"records of {source.name} have no column of two values: {needed}")
    return max(found, key=lambda one: float(one.prior.min()))  # of equal ones the first


def _of_two_values(source: LoadedDataset) -> list[ColumnPosition]:
    features = source.pool.features
    low, high = features.min(axis=0), features.max(axis=0)
    is_two = ((features == low) | (features == high)).all(axis=0) & (low < high)
    # Two levels of a column of words are two features, of which one is the other's opposite.
    return [one for one in source.table_columns if one.width <= 2 and bool(is_two[one.places].all())]


def _with_prior(column: ColumnPosition, values: Floats32, outside: Records) -> AttributeToInfer:
    counts = np.bincount(_codes(outside.features[:, column.places], values), minlength=len(values))
    return AttributeToInfer(column, values, counts / counts.sum())


def _codes(own: Floats32, values: Floats32) -> Integers:
    same = (own[:, np.newaxis, :] == values).all(axis=2)
    unknown = "a record has a value that no record of the pool has: accepted are the values of the pool"
    require(bool(same.any(axis=1).all()), unknown)
    return np.asarray(same.argmax(axis=1), dtype=np.int64)


def _values_of(source: LoadedDataset, column: ColumnPosition) -> Floats32:
    """Return the 2 to 100 values of a column as features, ascending, shape (values, width).

    Raises `InputError` if it has fewer or more values.
    """
    values = np.unique(source.pool.features[:, column.places], axis=0)
    accepted = f"accepted are columns of 2 to {_MOST_VALUES} values"
    require(2 <= len(values) <= _MOST_VALUES, f"attribute {column.name} has {len(values)} values: {accepted}")
    return values


def with_values(records: Records, index: int, source: LoadedDataset, named: str) -> Records:
    """Return records with copies of one record, so that each copy has a different value in a given column.

    There is one copy for each possible value of the column. Raises `InputError` if there is no such column with 2 to
    100 values.

    Parameters
    ----------
    records
        The n records to extend.
    index
        Index of the record to copy. The copy with the first value takes its place. The others are appended, from index
        n.
    source
        Data set from which the records come; it defines the column and its values.
    named
        Name of the column, or its number from 0.
    """
    column = _named_column(source, named)
    values = _values_of(source, column)
    found = records.take([*range(len(records)), *[index] * (len(values) - 1)])
    found.features[[index, *range(len(records), len(found))], column.places] = values
    return found


def _named_column(source: LoadedDataset, named: str) -> ColumnPosition:
    """Return a column of a table by its name, or by its number from 0; raise `InputError` if there is none."""
    columns = source.table_columns
    by_name = {one.name: one for one in columns}
    if named in by_name:
        return by_name[named]
    if named.isdecimal() and int(named) < len(columns):
        return columns[int(named)]
    names = ", ".join(list(by_name)[:_NAMES_SHOWN]) + (", ..." if len(columns) > _NAMES_SHOWN else "")
    accepted = f"accepted for {source.name} are the names {names} or the numbers 0 to {len(columns) - 1}"
    raise InputError(f"attribute is {named}: {accepted}")
