"""Encode all feature columns of a table.

If columns are refused, one error names the settings that fix all of them.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data.column_encoding import TEXT_HINT, EncodedColumn, SourceFileRows, drop_remedy, encode_column
from fl_audit.data.loaded_dataset import IdentifyingColumn
from fl_audit.data.table_settings import TableSettings
from fl_audit.errors import InputError, Remedy


def encode_columns(
    frame: pd.DataFrame, origin: SourceFileRows, settings: TableSettings, persons: IdentifyingColumn | None
) -> list[EncodedColumn]:
    """Encode all feature columns of a table, in their order."""
    encoded, width, refused = [], 0, []
    for name, column in frame.items():
        try:
            if pd.api.types.is_numeric_dtype(column):
                refuse_infinite(column, str(name), origin)
            repeats = persons if persons is not None and persons.name == name else None
            decimal = settings.decimal or "."
            found = encode_column(column, str(name), origin, settings.max_levels, width, decimal, repeats)
        except InputError as error:
            # Columns that a setting fixes are collected, so that the user learns of all of them at once.
            if not error.remedies:
                raise
            refused.append(error)
            continue
        encoded.append(found)
        width += found.features.shape[1]
    if refused:
        together = _together(refused, frame)
        raise together
    return encoded


def _together(refused: Sequence[InputError], frame: pd.DataFrame) -> InputError:
    """Return one error for all refused columns, with the settings that together fix them."""
    if _drops(refused) >= set(frame.columns):
        return _nothing_left(refused)
    if len(frame.columns) == 1:
        # The column is no longer offered to be left out: nothing would be left.
        drop = drop_remedy(str(frame.columns[0]))
        text = str(refused[0]).replace(f", {drop} the column", "")
        return InputError(text, refused[0].remedies, tuple(one for one in refused[0].choices if one != drop))
    if len(refused) == 1:
        return refused[0]
    values: dict[str, dict[str, None]] = {}
    single = []
    for remedy in (remedy for error in refused for remedy in error.remedies):
        if isinstance(remedy.value, tuple):
            values.setdefault(remedy.key, {}).update(dict.fromkeys(remedy.value))
        else:
            single.append(remedy)
    remedies = (*single, *(Remedy(key, tuple(words)) for key, words in values.items()))
    further = f"{len(refused) - 1} further {'column is' if len(refused) == 2 else 'columns are'} refused too"
    message = f"{refused[0]}; {further}, and {' with '.join(map(str, remedies))} fixes all"
    return InputError(message, remedies, (*refused[0].remedies, *refused[0].choices))


def _drops(refused: Sequence[InputError]) -> set[str]:
    named = (one.value for error in refused for one in error.remedies if one.key == "drop")
    return {word for words in named if isinstance(words, tuple) for word in words}


def _nothing_left(refused: Sequence[InputError]) -> InputError:
    """Return the error for a table in which every column is refused, so that no column would be left."""
    other = ((error, one) for error in refused for one in error.choices if one.key != "drop")
    error, remedy = next(other, (refused[0], None))
    # The reason of the refusal, without the advice to leave the column out.
    reason = re.split(rf"[:;,] [^:;]*{re.escape(str(error.remedies[0]))}", str(error))[0]
    lacking = "without it no column is left to learn from"
    if remedy is None:
        hint = f"; {TEXT_HINT}" if TEXT_HINT in str(error) else ""
        return InputError(
            f"{reason}, and {lacking}: accepted is a table with a column of numbers, or of few words, beside the label"
            f"{hint}"
        )
    rest = [one for one in refused if one is not error]
    remedies = (remedy, *((Remedy("drop", tuple(sorted(_drops(rest)))),) if rest else ()))
    return InputError(f"{reason}: {' with '.join(map(str, remedies))} keeps it, and {lacking}", remedies)


def refuse_infinite(column: "pd.Series[Any]", name: str, origin: SourceFileRows) -> None:
    """Raise `InputError` if a numeric column has a number that is not finite; the message names its cell."""
    finite = np.isfinite(column.to_numpy(dtype=np.float64))
    if not finite.all():
        position, drop = int(np.argmin(finite)), drop_remedy(name)
        cell = origin.cell(position, name, str(column.iloc[position]))
        raise InputError(f"{cell}: accepted are finite numbers; {drop} leaves out the column", (drop,))
