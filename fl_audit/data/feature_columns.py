"""Encode all feature columns of a table.

If columns are refused, one error names the settings that fix all of them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data import remedies
from fl_audit.data.column_encoding import TEXT_HINT, EncodedColumn, SourceFileRows, encode_column
from fl_audit.data.loaded_dataset import IdentifyingColumn
from fl_audit.data.table_settings import TableSettings
from fl_audit.errors import InputError, Remedy


def encode_columns(
    frame: pd.DataFrame, file_rows: SourceFileRows, settings: TableSettings, persons: IdentifyingColumn | None
) -> list[EncodedColumn]:
    """Encode all feature columns of a table, in their order."""
    encoded = list[EncodedColumn]()
    width = 0
    refused = list[InputError]()
    for name, cells in frame.items():
        try:
            if pd.api.types.is_numeric_dtype(cells):
                refuse_infinite(cells, str(name), file_rows)
            identifier = persons if persons is not None and persons.name == name else None
            column = encode_column(cells, str(name), file_rows, settings, width, identifier)
        except InputError as error:
            # Columns that a setting fixes are collected, so that the user learns of all of them at once.
            if not error.remedies:
                raise
            refused.append(error)
            continue
        encoded.append(column)
        width += column.features.shape[1]
    if refused:
        refusal = _together(refused, [str(name) for name in frame.columns])
        raise refusal
    return encoded


def _together(refused: Sequence[InputError], names: Sequence[str]) -> InputError:
    """Return one error for all refused columns, with the settings that fix them."""
    words: dict[str, dict[str, None]] = {}
    single = []
    for remedy in (remedy for error in refused for remedy in error.remedies):
        if isinstance(remedy.value, tuple):
            words.setdefault(remedy.key, {}).update(dict.fromkeys(remedy.value))
        else:
            single.append(remedy)
    if set(words.get("drop", ())) >= set(names):
        return _nothing_left(refused[0])
    if len(names) == 1:
        # The only column is no longer offered to be left out.
        drop = remedies.drop(names[0])
        choices = tuple(choice for choice in refused[0].choices if choice != drop)
        return InputError(str(refused[0]).replace(f", {drop} the column", ""), refused[0].remedies, choices)
    if len(refused) == 1:
        return refused[0]
    merged = (*single, *(Remedy(key, tuple(values)) for key, values in words.items()))
    further = f"{len(refused) - 1} further {'column is' if len(refused) == 2 else 'columns are'} refused too"
    message = f"{refused[0]}; {further}, and {' with '.join(map(str, merged))} fixes all"
    return InputError(message, merged, (*refused[0].remedies, *refused[0].choices))


def _nothing_left(error: InputError) -> InputError:
    """Return the error for a table in which every column would have to be left out."""
    reason = str(error).split(": ", 2)
    accepted = "accepted is a table with a column of numbers, or of few words, beside the label"
    hint = f"; {TEXT_HINT}" if TEXT_HINT in str(error) else ""
    remedies = tuple(remedy for remedy in error.choices if remedy.key != "drop")
    keeps = f"; {remedies[0]} keeps the column" if remedies else ""
    return InputError(
        f"{': '.join(reason[:2])}, and no other column is left to learn from: {accepted}{hint}{keeps}", remedies[:1]
    )


def refuse_infinite(column: "pd.Series[Any]", name: str, file_rows: SourceFileRows) -> None:
    """Raise `InputError` if a numeric column has a number that is not finite; the message names its cell."""
    finite = np.isfinite(column.to_numpy(dtype=np.float64))
    if not finite.all():
        position = int(np.argmin(finite))
        drop = remedies.drop(name)
        cell = file_rows.cell(position, name, str(column.iloc[position]))
        raise InputError(f"{cell}: accepted are finite numbers; {drop} leaves out the column", (drop,))
