"""Define labelled records, the data sets that loaders return, and records crafted for an audit."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.adjacency import CraftedRecord
from fl_audit.array_types import Floats32, Integers
from fl_audit.errors import InputError, Remedy, as_whole, require, require_number
from fl_audit.learning.named_inputs import TOKENS, NamedInput, width_of


# Compared by identity: element-wise equality of arrays has no single truth value, and identity keeps records hashable.
@dataclass(frozen=True, eq=False)
class Records:
    """Records with one class label each, and optionally their owners and their users.

    An owner holds records, as a hospital does. A user is the person whom a record is about. Raises `InputError` if the
    lengths differ, if there is no record, if a feature is no finite number, or if a label, an owner or a user is no
    whole number or out of range.

    Examples
    --------
    >>> records = Records(np.eye(3, dtype=np.float32), np.array([0, 1, 0]), classes=2)
    >>> len(records), len(records.take([0, 2]))
    (3, 2)
    """

    features: Floats32  # finite numbers, shape (n, *shape), n at least 1; kept as float32
    labels: Integers  # class of every record, shape (n,), whole numbers from 0 to classes - 1; kept as int64
    classes: int  # number of classes, at least 1. Classes without a record are allowed.
    owner: Integers | None = None  # owner of every record, shape (n,), positions in `owners`, as int64; None if unknown
    owners: tuple[str, ...] = ()  # names of the owners, also of those without a record; empty if they are unknown
    graphs: bool = False  # whether every record is a graph in packed rows (`fl_audit.data.packed_graphs`)
    # The person that each record is about, shape (n,), positions in `users`, as int64; None if unknown. A user can have
    # several records, and an owner records of many users.
    user: Integers | None = None
    users: tuple[str, ...] = ()  # names of the users, also of those without a record; empty if they are unknown
    # Names and shapes of the arrays, such as token ids, that follow each other in a record's features; empty where the
    # features are a single array.
    inputs: tuple[NamedInput, ...] = ()

    def __post_init__(self) -> None:
        # Values beyond float32 become infinite here and are refused below, so numpy's own warning says nothing new.
        with np.errstate(over="ignore"):
            try:
                object.__setattr__(self, "features", np.ascontiguousarray(self.features, dtype=np.float32))
            except (TypeError, ValueError) as error:
                raise InputError("features are no array of numbers: accepted are real numbers") from error
        object.__setattr__(self, "labels", as_whole("labels", self.labels))
        _check_labelled(self.features, self.labels, self.classes)
        if self.inputs:
            found, width = f"features have shape {self.features.shape}", width_of(self.inputs)
            fits = self.features.shape[1:] == (width,)
            require(fits, f"{found}: accepted is (n, {width}), the named arrays of a record in a row")
        object.__setattr__(self, "owner", self._checked_codes("owner", self.owner, self.owners))
        object.__setattr__(self, "user", self._checked_codes("user", self.user, self.users))

    def _checked_codes(self, what: str, codes: Integers | None, names: tuple[str, ...]) -> Integers | None:
        """Return owner or user codes as int64; `what` is "owner" or "user", and codes are positions in `names`."""
        if codes is None:
            unknown = f"there are {len(names)} names of {what}s and no {what} of any record"
            require(not names, f"{unknown}: accepted are both or neither")
            return None
        whole = as_whole(f"{what}s", codes)
        accepted = f"accepted is one for each record, ({len(self)},)"
        require(whole.shape == self.labels.shape, f"{what}s have shape {whole.shape}: {accepted}")
        article = "an owner" if what == "owner" else f"a {what}"
        _check_codes(article, whole, len(names), f", the positions of {len(names)} names")
        return whole

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the features of one record."""
        return self.features.shape[1:]

    def take(self, indices: ArrayLike) -> "Records":
        """Return copies of the records at the given indices, in that order.

        Raises `InputError` if there are no indices, or if one is out of range.
        """
        chosen = np.asarray(indices, dtype=np.int64).reshape(-1)
        require(chosen.size > 0, "no record is chosen: at least 1 is needed")
        for index in (int(chosen.min()), int(chosen.max())):
            self.check_index(index)
        owner, user = (None if one is None else one[chosen] for one in (self.owner, self.user))
        features, labels = self.features[chosen], self.labels[chosen]
        return Records(features, labels, self.classes, owner, self.owners, self.graphs, user, self.users, self.inputs)

    @property
    def kind_of_arrays(self) -> str:
        """ "texts" or "named arrays" if each record consists of several named arrays; otherwise an empty string."""
        if not self.inputs:
            return ""
        return "texts" if any(one.name == TOKENS for one in self.inputs) else "named arrays"

    def check_index(self, index: int) -> None:
        """Raise `InputError` unless `index` is the position of a record, 0 to n - 1."""
        require(0 <= index < len(self), f"record index is {index}: accepted are 0 to {len(self) - 1}")


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
    """Describe how one column of a table was read."""

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


_NAMED = 3


def some(names: Sequence[str]) -> str:
    """Return a phrase with the first three names of a list and the number of further ones.

    Examples
    --------
    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


@dataclass(frozen=True)
class IdentifyingColumn:
    """A column that seems to identify persons or things instead of describing them, and how its values repeat."""

    name: str  # name of the column
    values: int  # number of different values of the column, at least 2
    rows: int  # number of records
    most: int  # number of records with the most frequent value; 1 if all values are different
    within_owner: bool = False  # whether all records of a value have one owner
    within_user: bool = False  # whether all records of a value are of one user


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
    placed, start = [], 0
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
    # Further columns that may be either identifiers of persons or quantities; the table does not say which.
    possible_identifiers: tuple[IdentifyingColumn, ...] = ()

    def __post_init__(self) -> None:
        if self.test is None:
            return
        found, wanted = ((one.shape, one.classes) for one in (self.test, self.pool))
        accepted = f"accepted are those of the other records, {wanted[0]} and {wanted[1]}"
        require(found == wanted, f"test records have shape {found[0]} and {found[1]} classes: {accepted}")

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
    def image_shape(self) -> tuple[int, ...] | None:
        """Shape of an image, with height and width last; None if records are no images."""
        if self.flat_image is not None:
            return self.flat_image
        is_other = self.pool.graphs or self.is_sequence
        return self.pool.shape if len(self.pool.shape) in (2, 3) and not is_other else None

    @property
    def table_columns(self) -> tuple[ColumnPosition, ...]:
        """Position of each table column among the features; columns without names are named by their numbers from 0."""
        return self.placed or side_by_side((str(number), 1) for number in range(self.pool.shape[0]))


def _check_labelled(features: Floats32, labels: Integers, classes: int) -> None:
    require(labels.ndim == 1, f"labels have shape {labels.shape}: accepted is one label for each record, shape (n,)")
    require(features.ndim >= 2, f"features have shape {features.shape}: accepted are at least two axes, records first")
    numbers = f"there are {len(features)} records and {len(labels)} labels"
    require(len(features) == len(labels), f"{numbers}: accepted are equal numbers")
    require(len(labels) >= 1, "there are 0 records: at least 1 is needed")
    require(features[0].size >= 1, f"features have shape {features.shape}: accepted is at least one feature a record")
    finite = np.isfinite(features)
    if not finite.all():
        position = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        wrong = f"feature {position[1:]} of record {position[0]} is {features[position]}"
        raise InputError(f"{wrong}: accepted are finite numbers in the range of float32")
    require_number("number of classes is", classes, "whole numbers from 1")
    _check_codes("a label", labels, classes)


def _check_codes(what: str, codes: Integers, number: int, these: str = "") -> None:
    wrong = int(codes.min() if codes.min() < 0 else codes.max())
    require(0 <= wrong < number, f"{what} is {wrong}: accepted are 0 to {number - 1}{these}")


def told_record(features: Floats32, label: int) -> CraftedRecord:
    """Return a crafted record with its features as a base64 string for messages.

    Parameters
    ----------
    features
        Features of the record, float32, of any shape.
    label
        Class of the record, from 0.
    """
    raw = np.ascontiguousarray(features, dtype="<f4").tobytes()
    return CraftedRecord(base64.b64encode(raw).decode("ascii"), label)


def with_crafted(records: Records, index: int, crafted: CraftedRecord | None) -> Records:
    """Return copied records in which a crafted record replaces the one at `index`.

    The crafted record keeps the owner and the user of the replaced one.

    Parameters
    ----------
    records
        Records to copy.
    index
        Index of the record to replace, from 0.
    crafted
        The crafted record. Raises `InputError` if it does not fit the records. With None, no record is replaced.
    """
    if crafted is None:
        return records
    records.check_index(index)
    features, labels = records.features.copy(), records.labels.copy()
    features[index], labels[index] = _features(crafted, records.shape), crafted.label
    return replace(records, features=features, labels=labels)


def alone(crafted: CraftedRecord, like: Records) -> Records:
    """Return `Records` with a crafted record alone, which has no owner.

    Parameters
    ----------
    crafted
        Crafted record.
    like
        Records with the shape and the classes of the result. `InputError` is raised if the crafted record has others.
    """
    features = _features(crafted, like.shape)[np.newaxis]
    return Records(features, np.array([crafted.label]), like.classes, graphs=like.graphs, inputs=like.inputs)


def _features(crafted: CraftedRecord, shape: tuple[int, ...]) -> Floats32:
    try:
        raw = base64.b64decode(crafted.features, validate=True)
        return np.frombuffer(raw, dtype="<f4").reshape(shape).astype(np.float32)
    except (binascii.Error, ValueError):
        raise InputError(f"a crafted record is damaged: accepted are features of shape {shape}") from None
