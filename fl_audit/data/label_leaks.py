"""Find columns that leak the label: each value, or each range of numbers, occurs in one class only."""

from collections.abc import Collection, Iterator
from math import lgamma, log
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.array_types import Integers
from fl_audit.data import remedies
from fl_audit.data.loaded_dataset import DataWarning, first_names_text

_LOOKED_AT = 1000  # records that rule out most columns
SURE = 14.0  # log of how unlikely chance has to be: about one in a million


def label_leak_warnings(frame: pd.DataFrame, label: str, passed_over: Collection[str]) -> Iterator[DataWarning]:
    """Yield warnings about columns of a table that determine the label of every record.

    One warning names columns that only rename the label, another one the columns that determine it in another way.
    """
    codes, classes = pd.factorize(frame[label])
    sizes = np.bincount(codes)
    same = []
    telling = []
    for name in frame.columns:
        if name == label or name in passed_over:
            continue
        column = frame[name]
        first_rows = slice(_LOOKED_AT)
        if not determines(pd.factorize(column.iloc[first_rows])[0], codes[first_rows]) and not _parts(
            column.iloc[first_rows], codes[first_rows]
        ):
            continue
        values = pd.factorize(column)[0]
        is_determined = determines(values, codes)
        if is_determined and values.max() + 1 == len(classes):
            same.append(str(name))
        elif (is_determined and _repeats(values, sizes)) or (
            _parts(column.iloc[first_rows], codes[first_rows])
            and _parts(column, codes)
            and _is_unlikely_disjoint(sizes)
        ):
            telling.append(str(name))
    for names, description in (
        (same, f"the label {label} in other words"),
        (telling, f"enough to know the label {label}"),
    ):
        if names:
            remedy = remedies.drop(*names)
            are = "is" if len(names) == 1 else "are"
            text = f"column {first_names_text(names)} {are} {description}, so the model learns nothing else"
            yield DataWarning(f"{text}: {remedy} leaves {'it' if len(names) == 1 else 'them'} out", (remedy,))


def determines(values: Integers, codes: Integers) -> bool:
    """Return True if records with equal values in one column have equal values in another one.

    Shapes: `values` (records,), `codes` (records,).
    """
    pairs = values.astype(np.int64) * (int(codes.max()) + 1) + codes
    return len(pd.unique(pairs)) == int(values.max()) + 1


def _repeats(values: Integers, sizes: Integers) -> bool:
    """Return True if chance cannot explain that records with the same value have the same class.

    `sizes` are the numbers of records of each class.
    """
    shares = sizes / sizes.sum()
    repeated = len(values) - (int(values.max()) + 1)
    return len(sizes) > 1 and -repeated * log(float((shares**2).sum())) > SURE


def _parts(column: "pd.Series[Any]", codes: Integers) -> bool:
    """Return True if the classes have disjoint ranges in a numeric column."""
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return False
    numbers = column.to_numpy(dtype=np.float64)
    order = np.lexsort((codes, numbers))
    sorted_numbers = numbers[order]
    sorted_codes = codes[order]
    changes = np.flatnonzero(np.diff(sorted_codes))
    is_apart = bool((sorted_numbers[changes] != sorted_numbers[changes + 1]).all())
    return len(changes) == len(np.unique(codes)) - 1 and is_apart


def _is_unlikely_disjoint(sizes: Integers) -> bool:
    """Return True if it would be very unlikely by chance that the values of all classes lie in disjoint ranges.

    `sizes` are the numbers of records of the classes.
    """
    orders = lgamma(sizes.sum() + 1) - sum(lgamma(size + 1) for size in sizes.tolist()) - lgamma(len(sizes) + 1)
    return orders > SURE
