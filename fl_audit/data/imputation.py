"""Fill missing cells of a table with the median or the most frequent word, beside an indicator of where they were."""

from typing import Any

import pandas as pd

from fl_audit.data import remedies
from fl_audit.data.column_encoding import SourceFileRows, numbers_of
from fl_audit.data.loaded_dataset import DataWarning, first_names_text
from fl_audit.data.table_settings import TableSettings
from fl_audit.errors import require

INDICATOR = "{} is missing"
"""Name of the column that says where a column had no value."""


def imputed(
    joint: pd.DataFrame, file_rows: SourceFileRows, settings: TableSettings
) -> tuple[pd.DataFrame, list[DataWarning]]:
    """Return a table without gaps in its features, and a warning that the fillings are not private.

    A gap in a column of numbers or dates gets the median, one in a column of words the most frequent word, and of ties
    the first in the order of words; both of the training records. For each column with a gap there, a further column is
    1 where the value was missing, and 0 elsewhere.

    Raises `InputError` if a column has no value in any training record.

    Shapes: `joint` has the training records first, then the test records.
    """
    filled = dict[str, Any]()
    names = list[str]()
    gaps = joint.drop(columns=settings.kept).isna()
    for name in map(str, gaps.columns[gaps.any()]):
        missing = gaps[name]
        in_training = missing.iloc[: file_rows.train]
        drop = remedies.drop(name)
        empty = f"{file_rows.file} has no value in column {name}, so there is none to fill in"
        require(not in_training.all(), f"{empty}: leave it out with {drop}", drop)
        filled[name] = _filled(joint[name], missing, file_rows, settings)
        names.append(name)
        if in_training.any():
            indicator = INDICATOR.format(name)
            problem = f"{file_rows.file} has a column {indicator!r}, which would say where {name} is missing"
            require(indicator not in joint, f"{problem}: accepted is another name")
            filled[indicator] = missing.astype(float)
    if not names:
        return joint, []
    count = int(gaps.to_numpy().sum())
    text = (
        f"{count:,} missing values in column {first_names_text(names)} are filled with the median or the most frequent "
        "word of the training file, which the guarantee does not cover: both are computed from the records as they are"
    )
    return joint.assign(**filled), [DataWarning(text, in_report=True)]


def _filled(
    column: "pd.Series[Any]", missing: "pd.Series[bool]", file_rows: SourceFileRows, settings: TableSettings
) -> "pd.Series[Any]":
    """Return a column whose gaps are filled; its numbers and dates become float64."""
    series = column[~missing]
    in_training = int((~missing).iloc[: file_rows.train].sum())
    rows = SourceFileRows(file_rows.file, file_rows.test_file, in_training, file_rows.rows[(~missing).to_numpy()])
    numbers, _ = numbers_of(series, str(column.name), rows, settings.decimal or ".")
    if numbers is not None:
        values = pd.Series(numbers, index=series.index)
        return values.reindex(column.index).fillna(values.iloc[: rows.train].median())
    words = series.astype(str).str.strip()
    most_frequent = words.iloc[: rows.train].mode().iloc[0]
    return words.reindex(column.index).fillna(most_frequent)
