"""Warn about properties of a table that its user should check, and name the setting that helps, if there is one."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.array_types import Floats, Floats32
from fl_audit.data import remedies
from fl_audit.data.label_leaks import label_leak_warnings
from fl_audit.data.loaded_dataset import DataWarning, first_names_text
from fl_audit.data.missing_values import USUAL_WORDS, is_usual
from fl_audit.data.written_numbers import DECIMAL_MARKS, is_number

_NINES = (99.0, 999.0, 9999.0, 99999.0, 999999.0)
_SENTINELS = (-9.0, -77.0, -88.0, -777.0, -888.0, *(-number for number in _NINES), *_NINES)
"""Numbers that often code a missing value."""
_FEWEST_SENTINELS = 2
_FEWEST_OTHERS = 3
_RARE = 0.02
_ENOUGH_FOR_SHARES = 50  # of fewer records 2 % are less than one
_MOST_DIGITS = 10  # classes that are often written as whole numbers
_BETWEEN_ANSWERS = ("|", ";", ",", "+", "/")
_COARSE = 10  # a table with fewer different records than so many times its records repeats itself by chance


@dataclass(frozen=True)
class ReadTable:
    """A table that was read without an error, as the rules for warnings see it."""

    frame: pd.DataFrame  # the columns as they were read, without a column of text
    label: str  # name of the label column
    features: Floats32  # the encoded features, (records, features)
    repeats: int  # number of records that repeat another one in every column; 0 if they are not counted
    named: tuple[str, ...]  # columns of owners, users and other identifiers
    has_quantities: bool = False  # whether the labels are quantities, to which rules about classes do not apply

    @property
    def labels(self) -> "pd.Series[Any]":
        """The column of labels."""
        return self.frame[self.label]

    @property
    def other_columns(self) -> pd.DataFrame:
        """All columns but the labels."""
        return self.frame.drop(columns=[self.label])


def table_warnings(table: ReadTable) -> Iterator[DataWarning]:
    """Yield the warnings of all rules about a table, in the order of `RULES`."""
    for rule in RULES:
        if not (table.has_quantities and rule in _ABOUT_CLASSES):
            yield from rule(table)


def _nameless(table: ReadTable) -> Iterator[DataWarning]:
    """Yield a warning for each class whose name usually means a missing label, such as "nan"."""
    labels = table.labels
    words = Counter([] if pd.api.types.is_numeric_dtype(labels) else labels.astype(str).str.strip().tolist())
    for word in (word for word in words if is_usual(word)):
        remedy = remedies.missing(word)
        remark = f"{words[word]:,} records have the label {word!r}, which is taken for a class"
        yield DataWarning(f"{remark}; if it is none, {remedy} leaves these records out", (remedy,))


def one_spelling(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return strings without differences of case and spaces: each string becomes its most frequent variant.

    Spaces around a string are removed.
    """
    text = column.astype(str).str.strip()
    counts = text.value_counts()
    spelled = {_folded(word): word for word in reversed(counts.index.tolist())}
    return text.map({word: spelled[_folded(word)] for word in counts.index})


def _folded(word: str) -> str:
    return " ".join(word.casefold().split())


def _spellings(table: ReadTable) -> Iterator[DataWarning]:
    """Yield a warning about words that differ by spaces around them, and one about words that differ by case."""
    spellings = {}
    around = []
    for name, column in table.frame.items():
        if pd.api.types.is_numeric_dtype(column):
            continue
        folded: dict[str, list[str]] = {}
        raw = set(column.astype(str).unique().tolist())
        if spaced := sorted(word for word in raw if word != word.strip() and word.strip() in raw):
            around.append(f"{name} has {spaced[0].strip()!r}, {first_names_text([repr(word) for word in spaced])}")
        for word in sorted({word.strip() for word in raw}):
            folded.setdefault(_folded(word), []).append(word)
        # Words that differ from another one by case or spaces only, next to those that they resemble.
        if twins := [word for alike in folded.values() if len(alike) > 1 for word in alike]:
            spellings[str(name)] = twins
    if around:
        yield DataWarning(f"words that differ by spaces around them are taken for one: {'; '.join(around)}")
    if spellings:
        remedy = remedies.ignore_case()
        columns = "; ".join(
            f"{name} has {first_names_text([repr(twin) for twin in twins])}" for name, twins in spellings.items()
        )
        text = f"words that differ by case or spaces only are taken for different ones: {columns}"
        yield DataWarning(f"{text}; {remedy} makes them one", (remedy,))


def _words_kept(table: ReadTable) -> Iterator[DataWarning]:
    """Yield a warning for each usual word for a missing value, such as "NA", that is read as a string."""
    words_by_column: dict[str, list[str]] = {}
    for name, column in table.other_columns.items():
        if not pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_datetime64_any_dtype(column):
            counts = column.astype(str).str.strip().value_counts()
            for word in sorted(USUAL_WORDS & set(counts.index)):
                words_by_column.setdefault(word, []).append(f"{name} ({counts[word]:,} of {len(column):,})")
    for word, columns in words_by_column.items():
        remedy = remedies.missing(word)
        remark = f"{word!r} in column {first_names_text(columns)} is taken for a word like others"
        yield DataWarning(f"{remark}; if it says that a value is missing, {remedy} leaves these records out", (remedy,))


def _sentinels(table: ReadTable) -> Iterator[DataWarning]:
    """Yield a warning for each number such as -99 that occurs more than once and is far from all others."""
    for name, column in table.other_columns.drop(columns=list(table.named), errors="ignore").items():
        if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            continue
        numbers = column.to_numpy(dtype=np.float64)
        if not (odd := _sentinels_of(numbers)):
            continue
        other_numbers = numbers[~np.isin(numbers, odd)]
        for number in odd:
            count = int((numbers == number).sum())
            remedy = remedies.missing(f"{number:.0f}")
            where = f"in {count:,} of {len(numbers):,} records ({count / len(numbers):.1%})"
            beside = f"beside {other_numbers.min():g} to {other_numbers.max():g}"
            text = f"column {name} is {number:.0f} {where}, {beside}: if that stands for a missing value"
            yield DataWarning(f"{text}, {remedy} leaves these records out", (remedy,))


def _sentinels_of(numbers: Floats) -> list[float]:
    """Return the numbers that often stand for missing values and are far from all other numbers."""
    present = [number for number in _SENTINELS if (numbers == number).sum() >= _FEWEST_SENTINELS]
    other_numbers = numbers[~np.isin(numbers, present)] if present else numbers[:0]
    if not other_numbers.size or len(np.unique(other_numbers)) < _FEWEST_OTHERS:
        return []
    low = other_numbers.min()
    high = other_numbers.max()
    return [sentinel for sentinel in present if sentinel < 0 <= low or sentinel > 3 * high > 0]


def _label_warnings(table: ReadTable) -> Iterator[DataWarning]:
    """Yield warnings about rare labels, labels that may be a quantity, and several answers in one cell."""
    labels = table.labels
    are_numbers = pd.api.types.is_numeric_dtype(labels)
    counts = (labels if are_numbers else labels.astype(str).str.strip()).value_counts()
    rare = [f"{name} ({count:,} of {len(labels):,})" for name, count in counts.items() if count < _RARE * len(labels)]
    if rare and len(labels) >= _ENOUGH_FOR_SHARES:
        text = f"less than 2 % of the records have the label {first_names_text(rare)}, and so few teach a model little"
        yield DataWarning(f"{text}: put rare classes together, or give more records of them")
    if are_numbers and not pd.api.types.is_bool_dtype(labels):
        yield from _quantity(counts)
    else:
        yield from _lists([str(label).strip() for label in counts.index])


def _quantity(counts: "pd.Series[Any]") -> Iterator[DataWarning]:
    low = int(counts.index.min())
    high = int(counts.index.max())
    if len(counts) > _MOST_DIGITS and high - low < 3 * len(counts):
        text = f"the labels are {len(counts)} whole numbers from {low} to {high}, each of which is a class of its own"
        remedy = remedies.task()
        advice = f"if they are a quantity, such as a number of days, put them into a few groups, or {remedy} learns it"
        wrong = "and a model that is off by one is as wrong as any"
        yield DataWarning(f"{text}, {wrong}: {advice}", alternatives=(remedy,))


def _lists(words: Sequence[str]) -> Iterator[DataWarning]:
    """Yield a warning if labels look like several answers in one cell, such as "a|b" beside "a" and "b"."""
    for mark in _BETWEEN_ANSWERS:
        pieces_by_word = {word: [piece.strip() for piece in word.split(mark)] for word in words}
        occurs = Counter(piece for pieces in pieces_by_word.values() for piece in set(pieces))
        several = [word for word, pieces in pieces_by_word.items() if len(pieces) > 1]
        listed = [word for word in several if all(piece and occurs[piece] > 1 for piece in pieces_by_word[word])]
        if listed:
            single = next((piece for piece in pieces_by_word[listed[0]] if piece in words), None)
            beside = "" if single is None else f" beside {single!r}"
            text = f"the label {listed[0]!r}{beside} looks like several answers in one cell"
            whole = f"{_combinations(len(several))} taken for a class of its own"
            yield DataWarning(f"{text}, and {whole}: give a column for each answer, and learn one of them")
            return


def _combinations(number: int) -> str:
    return "this combination is" if number == 1 else f"each of {number} combinations is"


def header_warnings(header: Sequence[str]) -> tuple[DataWarning, ...]:
    """Return a warning if the line of column names looks like a record, because at least half of the names are numbers.

    The tuple is empty otherwise, and also if the numbers are consecutive integers, which may be names.
    """
    numbers = [name for name in header if any(is_number(name, mark) for mark in DECIMAL_MARKS)]
    whole = [int(name) for name in numbers if re.fullmatch(r"\d+", name)]
    numbered = len(whole) == len(numbers) and whole == list(range(whole[0], whole[0] + len(whole))) if whole else False
    if 2 * len(numbers) < len(header) or not numbers or numbered:
        return ()
    names_text = first_names_text([repr(name) for name in numbers])
    text = f"the first line has {names_text} for names of columns, and looks like a record"
    return (DataWarning(f"{text}: put a line of names above it, else this record is lost"),)


def _leaked_label(table: ReadTable) -> Iterator[DataWarning]:
    """Yield a warning for each column from which the label follows."""
    yield from label_leak_warnings(table.frame, table.label, table.named)


def _repeated_records(table: ReadTable) -> Iterator[DataWarning]:
    """Yield a warning about records that repeat another one, unless the table is so coarse that chance repeats them."""
    frame = table.frame
    repeats = table.repeats
    different = prod(min(frame[name].nunique(), len(frame)) for name in frame.columns)
    if not repeats or different <= _COARSE * len(frame):
        return
    remedy = remedies.unique()
    verb = "repeats" if repeats == 1 else "repeat"
    remark = f"{repeats:,} of {len(frame):,} records {verb} another one in every column"
    guarantee = "a guarantee for one record does not cover somebody who is in the table twice"
    yield DataWarning(f"{remark}: {guarantee}; {remedy} keeps the first of each", (remedy,), in_report=True)


def _same_features(table: ReadTable) -> Iterator[DataWarning]:
    """Yield a warning if every feature is the same in all records."""
    if (table.features == table.features[0]).all():
        same = "every feature is the same in all records, so that only the share of each class can be learned"
        yield DataWarning(f"{same}: give the table columns that differ")


RULES: tuple[Callable[[ReadTable], Iterator[DataWarning]], ...] = (
    _nameless,
    _words_kept,
    _sentinels,
    _label_warnings,
    _spellings,
    _leaked_label,
    _repeated_records,
    _same_features,
)
"""The rules for warnings about a table that was read; to add one, write a function and add a line here."""
_ABOUT_CLASSES = (_nameless, _label_warnings, _leaked_label)
