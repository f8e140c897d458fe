"""Store several named arrays per record, such as token ids and an attention mask, in one row, and compare records."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from fl_audit.array_types import Floats32, Integers
from fl_audit.data.data_setting_enums import Dissimilarity, Measure
from fl_audit.data.packed_graphs import comparable as comparable_graphs
from fl_audit.data.records import Records
from fl_audit.errors import require
from fl_audit.learning.named_inputs import LARGEST_WHOLE, NamedInput, width_of

_SET = 4096
"""Length of the 0/1 vector of a text's tokens; with a larger vocabulary, ids that are equal modulo it share a place."""


def packed(arrays: Mapping[str, NDArray[np.generic]], what: str) -> tuple[Floats32, tuple[NamedInput, ...]]:
    """Return named arrays packed into one row for each record, float32 (n, width), and the layout of a row.

    Shapes: `arrays` (n, ...).
    """
    require(bool(arrays), f"{what} holds no array beside the labels: at least 1 is needed, such as input_ids")
    first = next(iter(arrays))
    rows = []
    inputs = []
    for name, values in arrays.items():
        location = f"{what}: {name}"
        accepted = "accepted are whole or real numbers, records first"
        require(values.dtype.kind in "biuf", f"{location} has type {values.dtype}: {accepted}")
        require(values.ndim >= 1, f"{location} is a single number: {accepted}")
        require(name.isidentifier(), f"{location}: accepted are names of arguments, such as input_ids")
        problem = f"{location} has {len(values)} records and {first} has {len(arrays[first])}"
        require(len(values) == len(arrays[first]), f"{problem}: accepted are equal numbers")
        is_whole = values.dtype.kind in "biu"
        largest = max(abs(int(values.max())), abs(int(values.min()))) if is_whole and values.size else 0
        limit = f"accepted are whole numbers up to {LARGEST_WHOLE:,}"
        require(largest <= LARGEST_WHOLE, f"{location} has the number {largest:,}: {limit}")
        with np.errstate(over="ignore"):
            rows.append(values.reshape(len(values), -1).astype(np.float32))
        inputs.append(NamedInput(name, values.shape[1:], is_whole))
    return np.concatenate(rows, axis=1), tuple(inputs)


def array_of(records: Records, name: str) -> NDArray[np.generic]:
    """Return one named array of packed records, shape (n, ...): int64 if it held integers, otherwise float32."""
    before = list(takewhile(lambda named_input: named_input.name != name, records.inputs))
    named_input = records.inputs[len(before)]
    start = width_of(tuple(before))
    values_found = records.features[:, start : start + named_input.width].reshape(len(records), *named_input.shape)
    return values_found.astype(np.int64) if named_input.is_whole else values_found


def comparable(records: Records, measure: Measure = Dissimilarity.EUCLIDEAN) -> Records:
    """Return records in a form in which two of them can be compared feature by feature.

    Differences of token ids have no meaning, so texts are compared as sets of tokens. An array of ids, such as
    input_ids, becomes a 0/1 vector that marks the ids that occur. Other integer arrays, such as masks, are left out.
    The Euclidean distance of two texts is then the square root of the number of tokens that only one of them has.
    Graphs are unpacked, see `fl_audit.data.packed_graphs`. Other records stay unchanged.

    Examples
    --------
    >>> rows, inputs = packed({"input_ids": np.array([[3, 5, 0], [5, 7, 3]])}, "here")
    >>> found = comparable(Records(rows, np.array([0, 1]), 2, inputs=inputs))
    >>> float(np.square(found.features[0] - found.features[1]).sum())  # 0 and 7
    2.0
    """
    if not records.inputs:
        return comparable_graphs(records)
    ids = _ids_of(records)
    _require_comparable(records, measure, ids)
    features_of_parts = []
    start = 0
    for named_input in records.inputs:
        block = records.features[:, start : start + named_input.width]
        start += named_input.width
        if named_input.name in ids:
            features_of_parts.append(_sets(block.astype(np.int64), min(named_input.count or _SET, _SET)))
        elif not named_input.is_whole or not ids:
            features_of_parts.append(block)
    return replace(records, features=np.concatenate(features_of_parts, axis=1), inputs=())


def _require_comparable(records: Records, measure: Measure, ids: set[str]) -> None:
    """Raise `InputError` if a built-in measure has no meaning for records that consist of named arrays.

    SSIM compares images only. Other measures cannot compare integers that could be ids.
    """
    or_function = "and 'package.module:name' of your own"
    measures_text = ", ".join(
        dissimilarity for dissimilarity in Dissimilarity if dissimilarity is not Dissimilarity.SSIM
    )
    of_pictures = f"dissimilarity is {measure} and records are {records.kind_of_arrays}, which are no pictures"
    require(measure is not Dissimilarity.SSIM, f"{of_pictures}: accepted are {measures_text} {or_function}")
    whole = [named_input.name for named_input in records.inputs if named_input.is_whole]
    unclear = f"dissimilarity is {measure}, and nothing says whether the whole numbers of {', '.join(whole)} are ids"
    is_clear = bool(ids) or not whole or not isinstance(measure, Dissimilarity)
    remedy = "a dissimilarity of your own, and neighbour = 'random' in [audit]"
    require(is_clear, f"{unclear}: accepted are arrays whose name ends in _ids, {remedy}")


def _ids_of(records: Records) -> set[str]:
    """Return the names of the integer arrays that hold ids, judged by their name and layout, not by their values."""
    return {
        named_input.name
        for named_input in records.inputs
        if named_input.is_whole and (named_input.count or named_input.name.endswith("_ids"))
    }


def _sets(ids: Integers, places_count: int) -> Floats32:
    presence = np.zeros((len(ids), places_count), dtype=np.float32)
    presence[np.arange(len(ids))[:, np.newaxis], ids % places_count] = 1
    return presence
