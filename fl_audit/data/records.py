"""Labelled records with features, labels, owners and users, and crafted records that replace some of them."""

import base64
import binascii
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.adjacency import CraftedRecord
from fl_audit.array_types import Floats32, Integers, Labels
from fl_audit.errors import InputError, require
from fl_audit.learning.named_inputs import TOKENS, NamedInput, width_of
from fl_audit.value_checks import as_whole, require_number


# Compared by identity: element-wise equality of arrays has no single truth value, and identity keeps records hashable.
@dataclass(frozen=True, eq=False)
class Records:
    """Records with one label each, a class or a quantity, and optionally their owners and their users.

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
    # Label of every record, shape (n,): a class, a whole number from 0 to classes - 1, kept as int64; or with `classes`
    # 1 a quantity, any finite number of a floating type, kept as float32.
    labels: Labels
    classes: int  # number of classes, at least 1; 1 for quantities. Classes without a record are allowed.
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
    # Quantities that the labels 0 and 1 stand for; (0, 1) where quantities are not scaled, and for classes.
    label_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        # Values beyond float32 become infinite here and are refused below, so numpy's own warning says nothing new.
        with np.errstate(over="ignore"):
            try:
                object.__setattr__(self, "features", np.ascontiguousarray(self.features, dtype=np.float32))
            except (TypeError, ValueError) as error:
                raise InputError("features are no array of numbers: accepted are real numbers") from error
        is_quantity = self.classes == 1 and np.asarray(self.labels).dtype.kind == "f"
        labels = np.asarray(self.labels, dtype=np.float32) if is_quantity else as_whole("labels", self.labels)
        object.__setattr__(self, "labels", labels)
        _check_labelled(self.features, self.labels, self.classes)
        if self.inputs:
            problem = f"features have shape {self.features.shape}"
            width = width_of(self.inputs)
            fits = self.features.shape[1:] == (width,)
            require(fits, f"{problem}: accepted is (n, {width}), the named arrays of a record in a row")
        object.__setattr__(self, "owner", self._checked_codes("owner", self.owner, self.owners))
        object.__setattr__(self, "user", self._checked_codes("user", self.user, self.users))

    def _checked_codes(self, name: str, codes: Integers | None, names: tuple[str, ...]) -> Integers | None:
        """Return owner or user codes as int64; `name` is "owner" or "user", and codes are positions in `names`."""
        if codes is None:
            unknown = f"there are {len(names)} names of {name}s and no {name} of any record"
            require(not names, f"{unknown}: accepted are both or neither")
            return None
        whole = as_whole(f"{name}s", codes)
        accepted = f"accepted is one for each record, ({len(self)},)"
        require(whole.shape == self.labels.shape, f"{name}s have shape {whole.shape}: {accepted}")
        article = "an owner" if name == "owner" else f"a {name}"
        _check_codes(article, whole, len(names), f", the positions of {len(names)} names")
        return whole

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def has_quantities(self) -> bool:
        """Whether the labels are quantities, for a regression, and not classes."""
        return self.labels.dtype.kind == "f"

    @property
    def largest_class(self) -> float | None:
        """Share of the most frequent class, 0 to 1; None where labels are quantities."""
        return None if self.has_quantities else float(np.bincount(self.labels).max() / len(self))

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
        owner, user = (None if codes is None else codes[chosen] for codes in (self.owner, self.user))
        features = self.features[chosen]
        labels = self.labels[chosen]
        return replace(self, features=features, labels=labels, owner=owner, user=user)

    @property
    def kind_of_arrays(self) -> str:
        """ "texts" or "named arrays" if each record consists of several named arrays; otherwise an empty string."""
        if not self.inputs:
            return ""
        return "texts" if any(named_input.name == TOKENS for named_input in self.inputs) else "named arrays"

    def check_index(self, index: int) -> None:
        """Raise `InputError` unless `index` is the position of a record, 0 to n - 1."""
        require(0 <= index < len(self), f"record index is {index}: accepted are 0 to {len(self) - 1}")


def _check_labelled(features: Floats32, labels: Labels, classes: int) -> None:
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
    if labels.dtype.kind != "f":
        _check_codes("a label", labels, classes)
        return
    wrong_labels = labels[~np.isfinite(labels)]
    require(not wrong_labels.size, f"a label is {str(*wrong_labels[:1])}: accepted are finite numbers of float32")


def _check_codes(name: str, codes: Integers, number: int, these: str = "") -> None:
    wrong = int(codes.min() if codes.min() < 0 else codes.max())
    require(0 <= wrong < number, f"{name} is {wrong}: accepted are 0 to {number - 1}{these}")


def encoded_record(features: Floats32, label: int) -> CraftedRecord:
    """Return a crafted record with its features as a base64 string for messages.

    Parameters
    ----------
    features
        Features of the record, shape (*shape).
    label
        Class of the record.
    """
    raw = np.ascontiguousarray(features, dtype="<f4").tobytes()
    return CraftedRecord(base64.b64encode(raw).decode("ascii"), label)


def with_crafted(records: Records, index: int, crafted: CraftedRecord | None) -> Records:
    """Return copied records in which a crafted record replaces the one at `index`.

    The crafted record keeps the owner and the user of the replaced one.

    Parameters
    ----------
    records
        Records of which a copy is returned.
    index
        Position of the replaced record.
    crafted
        The record that replaces it; None to replace no record.

    Raises
    ------
    InputError
        If the crafted record does not fit the records.
    """
    if crafted is None:
        return records
    records.check_index(index)
    features = records.features.copy()
    labels = records.labels.copy()
    features[index], labels[index] = _features(crafted, records.shape), crafted.label
    return replace(records, features=features, labels=labels)


def single_record(crafted: CraftedRecord, like: Records) -> Records:
    """Return `Records` with a crafted record alone, which has no owner.

    Parameters
    ----------
    crafted
        The record.
    like
        Records of the same shape, classes and named inputs.

    Raises
    ------
    InputError
        If the crafted record does not have the shape of these records.
    """
    features = _features(crafted, like.shape)[np.newaxis]
    return Records(features, np.array([crafted.label]), like.classes, graphs=like.graphs, inputs=like.inputs)


def _features(crafted: CraftedRecord, shape: tuple[int, ...]) -> Floats32:
    try:
        raw = base64.b64decode(crafted.features, validate=True)
        return np.frombuffer(raw, dtype="<f4").reshape(shape).astype(np.float32)
    except (binascii.Error, ValueError):
        raise InputError(f"a crafted record is damaged: accepted are features of shape {shape}") from None
