"""Numbers from columns: scaling, codes of labels and owners, fitted on the pool and applied to the test records."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_audit.arrays import Floats, Integers
from fl_audit.data.records import Records
from fl_audit.errors import InputError, require


def min_max(fitted: Floats, test: Floats | None = None) -> tuple[Floats, Floats | None]:
    """Scale every column to [0, 1] by the range it has in `fitted`, (v - min) / (max - min), which has to be finite.

    Parameters
    ----------
    fitted
        Finite numbers, shape (n, columns). A constant column becomes 0.
    test
        Finite numbers, shape (m, columns), scaled by the same ranges and clipped to [0, 1]; or None.
    """
    low = fitted.min(axis=0)
    with np.errstate(over="ignore"):
        span = fitted.max(axis=0) - low
    wide = int(np.argmax(~np.isfinite(span)))
    require(
        bool(np.isfinite(span).all()),
        f"a column reaches from {low[wide]:g} to {fitted[:, wide].max():g}: accepted are ranges below 1.7e308",
    )
    span[span == 0] = 1.0
    scaled = (fitted - low) / span
    return scaled, None if test is None else np.clip((test - low) / span, 0.0, 1.0)


def encode_labels(
    fitted: NDArray[np.generic], test: NDArray[np.generic] | None, path: Path
) -> tuple[Integers, Integers | None, int]:
    """Map labels to 0..c-1 in the sorted order of the labels of `fitted`.

    Return codes of the pool, codes of the test records or None, and the number of classes. `InputError` if a label is
    no whole number though all are numbers, or a test label does not occur in the pool.

    Parameters
    ----------
    fitted, test
        Labels of the pool, shape (n,), and of the test records or None: whole numbers, truth values or strings.
    path
        File to name in errors.
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
    """Whose each record is, as positions in names; None and no names where that is not known."""

    codes: Integers | None = None
    names: tuple[str, ...] = ()


UNKNOWN_OWNERS = Owners()


def encode_owners(values: NDArray[np.generic], what: str) -> Owners:
    """Number the owners of records 0..m-1, in the sorted order of what tells them apart.

    `InputError` if there is more than one axis, or a value is neither a whole number nor text.

    Parameters
    ----------
    values, what
        Owner of every record, shape (n,), whole numbers or text; and where they stand, for errors.
    """
    require(values.ndim == 1, f"{what} has shape {values.shape}: accepted is one owner for each record, shape (n,)")
    kind = values.dtype.kind
    require(kind in "biuUf", f"{what} has type {values.dtype}: accepted are whole numbers or text that name an owner")
    if kind == "f":
        wrong = values[~np.isfinite(values) | (values != np.floor(values))]
        require(not wrong.size, f"{what} has {str(*wrong[:1])}: accepted are whole numbers or text that name an owner")
    levels, codes = np.unique(values, return_inverse=True)
    names = levels.astype(np.str_) if kind != "f" else [f"{level:.0f}" for level in levels.tolist()]
    return Owners(codes.astype(np.int64), tuple(map(str, names)))


def build_records(
    features: NDArray[np.generic], labels: Integers, classes: int, path: Path, owners: Owners = UNKNOWN_OWNERS
) -> Records:
    """Return `Records`, with the file's name before any complaint.

    Parameters
    ----------
    features, labels, classes, owners
        As `Records` takes them.
    path
        File that they come from.

    Raises
    ------
    InputError
        Where `Records` does.
    """
    try:
        return Records(features, labels, classes, *owners)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _check_whole(labels: NDArray[np.generic], path: Path) -> None:
    if labels.dtype.kind in "biuUS":
        return
    if labels.dtype.kind != "f":
        raise InputError(f"{path}: labels have type {labels.dtype}: accepted are whole numbers or text")
    # A column of measurements would otherwise silently become one class for every distinct value.
    values = labels.astype(np.float64)
    wrong = ~np.isfinite(values) | (values != np.floor(values))
    if wrong.any():
        raise InputError(
            f"{path}: a label is {values[wrong][0]:g}: accepted are whole numbers or text that name a class"
        )
