"""Encode columns as numbers: scaling, and integer codes of labels and owners."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats, Integers, Labels
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require
from fl_audit.learning.named_inputs import NamedInput


def min_max(fitted: Floats, test: Floats | None = None) -> tuple[Floats, Floats | None]:
    """Scale columns to [0, 1] by their range in the fitted values, (v - min) / (max - min).

    Returns the scaled `fitted`, and the scaled `test` or None. Raises `InputError` if a range is not finite.

    `fitted`: A constant column becomes 0.
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

    Returns three values: the codes of the training labels; the codes of the test labels, or None; and the number c of
    classes. Raises `InputError` if labels are numbers but not all whole, or if a test label is not among the training
    labels.

    Shapes: `fitted` (n,), `test` (m,).
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


def encode_owners(values: NDArray[np.generic], name: str, noun: str = "owner") -> Owners:
    """Encode the owner, or the user, of each record as an integer 0..m-1, in the sorted order of their names.

    Raises `InputError` if `values` has more than one axis, or if a value is neither a whole number nor a string.
    """
    require(values.ndim == 1, f"{name} has shape {values.shape}: accepted is one {noun} for each record, shape (n,)")
    kind = values.dtype.kind
    accepted = f"accepted are whole numbers or text that name the {noun}"
    require(kind in "biuUf", f"{name} has type {values.dtype}: {accepted}")
    if kind == "f":
        wrong = _not_whole(values)
        require(not wrong.size, f"{name} has {str(*wrong[:1])}: {accepted}")
    levels, codes = np.unique(values, return_inverse=True)
    names = levels.astype(np.str_) if kind != "f" else [f"{level:.0f}" for level in levels.tolist()]
    return Owners(codes.astype(np.int64), tuple(map(str, names)))


def build_records(
    features: NDArray[np.generic],
    labels: Labels,
    classes: int,
    path: Path,
    owners: Owners = UNKNOWN_OWNERS,
    users: Owners = UNKNOWN_OWNERS,
    inputs: tuple[NamedInput, ...] = (),
) -> Records:
    """Return `Records` with the given arrays; error messages about the arrays begin with the path.

    Shapes: `features` (n, ...), `labels` (n,).
    """
    try:
        details = {"user": users.codes, "users": users.names, "inputs": inputs}
        return Records(features, labels, classes, *owners, **details)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _check_whole(labels: NDArray[np.generic], path: Path) -> None:
    if labels.dtype.kind in "biuUS":
        return
    if labels.dtype.kind != "f":
        raise InputError(f"{path}: labels have type {labels.dtype}: accepted are whole numbers or text")
    # A column of measurements would otherwise silently become one class for every distinct value.
    wrong = _not_whole(labels.astype(np.float64))
    if wrong.size:
        raise InputError(f"{path}: a label is {wrong[0]:g}: accepted are whole numbers or text that name a class")


def _not_whole(values: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers that are not finite or not whole."""
    wrong: NDArray[Any] = values[~np.isfinite(values) | (values != np.floor(values))]
    return wrong
