"""What should make the user of a table look twice: each said once, with the setting that mends it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.arrays import Floats32
from fl_audit.data.records import Caution
from fl_audit.errors import Remedy

_NAMED = 3
_MISSING = {"", "na", "n/a", "nan", "none", "null", "<na>", "#n/a", "#na"}  # how a missing value is mostly written
_COARSE = 10  # a table with fewer different records than so many times its records repeats itself by chance


def cautions(frame: pd.DataFrame, label: str, features: Floats32, repeats: int) -> Iterator[Caution]:
    """Yield warnings about a table that could be read.

    Parameters
    ----------
    frame, label
        Label, owner and features of all records, none missing; and the name of the label column.
    features, repeats
        What the columns became, shape (records, features); and the number of records that repeat an earlier one.
    """
    yield from _nameless(frame[label])
    yield from _spellings(frame)
    yield from _tell_tales(frame, label)
    different = prod(min(frame[name].nunique(), len(frame)) for name in frame.columns)
    if repeats and different > _COARSE * len(frame):
        remedy = Remedy("unique", True)
        found = f"{repeats:,} of {len(frame):,} records repeat another one in every column"
        promise = "a promise for one record does not cover somebody who is in the table twice"
        yield Caution(f"{found}: {promise}; {remedy} keeps the first of each", (remedy,))
    if (features == features[0]).all():
        same = "every feature is the same in all records, so that only the share of each class can be learned"
        yield Caution(f"{same}: give the table columns that differ")


def _nameless(labels: "pd.Series[Any]") -> Iterator[Caution]:
    """Yield a warning of classes whose names mostly say that there is no label."""
    words = Counter([] if pd.api.types.is_numeric_dtype(labels) else labels.astype(str).str.strip().tolist())
    for word in (word for word in words if word.casefold() in _MISSING):
        remedy = Remedy("missing", (word,))
        taken = f"{words[word]:,} records have the label {word!r}, which is taken for a class"
        yield Caution(f"{taken}; if it is none, {remedy} leaves these records out", (remedy,))


def one_spelling(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return words without spaces around them; words that differ only by case or inner spaces become the commonest."""
    text = column.astype(str).str.strip()
    counts = text.value_counts()
    spelled = {_folded(word): word for word in reversed(counts.index.tolist())}
    return text.map({word: spelled[_folded(word)] for word in counts.index})


def _folded(word: str) -> str:
    return " ".join(word.casefold().split())


def _spellings(frame: pd.DataFrame) -> Iterator[Caution]:
    found, around = {}, []
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            continue
        folded: dict[str, list[str]] = {}
        raw = set(column.astype(str).unique().tolist())
        if spaced := sorted(word for word in raw if word != word.strip() and word.strip() in raw):
            around.append(f"{name} has {spaced[0].strip()!r}, {_some([repr(word) for word in spaced])}")
        for word in sorted({word.strip() for word in raw}):
            folded.setdefault(_folded(word), []).append(word)
        # Words that differ from another one by case or spaces only, next to those that they resemble.
        if twins := [word for alike in folded.values() if len(alike) > 1 for word in alike]:
            found[str(name)] = twins
    if around:
        yield Caution(f"words that differ by spaces around them are taken for one: {'; '.join(around)}")
    if found:
        remedy = Remedy("ignore-case", True)
        columns = "; ".join(f"{name} has {_some([repr(twin) for twin in twins])}" for name, twins in found.items())
        text = f"words that differ by case or spaces only are taken for different ones: {columns}"
        yield Caution(f"{text}; {remedy} makes them one", (remedy,))


def _tell_tales(frame: pd.DataFrame, label: str) -> Iterator[Caution]:
    """Yield a warning of the columns that are the label in other words."""
    classes, codes = len(frame[label].unique()), pd.factorize(frame[label])[0]
    names = []
    for name in frame.columns:
        if name == label or frame[name].iloc[: 10 * classes].nunique() > classes:
            continue
        values = pd.factorize(frame[name])[0]
        if values.max() + 1 == classes == len(np.unique(values.astype(np.int64) * classes + codes)):
            names.append(str(name))
    if names:
        remedy = Remedy("drop", tuple(names))
        same = f"column {_some(names)} {'is' if len(names) == 1 else 'are'} the label {label} in other words"
        if len(names) == len(frame.columns) - 1:
            yield Caution(f"{same}, and there is nothing else to learn from: give the table columns of another kind")
            return
        yield Caution(f"{same}, so the model learns nothing else: {remedy} leaves it out", (remedy,))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
