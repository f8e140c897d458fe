"""CSV tables that users bring along."""

import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fl_audit.data.files import read_bytes, resolve
from fl_audit.data.frames import TableSettings, chosen_columns, source_of_frames
from fl_audit.data.records import Source
from fl_audit.errors import InputError

_OTHER_SEPARATORS = (";", "\t", "|")


def load_csv(
    directory: Path | None,
    path: str,
    label: str,
    test_path: str | None = None,
    settings: TableSettings | None = None,
) -> Source:
    """Return the records of a CSV file with a header line, and what each of its columns became.

    Numeric columns are scaled to [0, 1] by their range in `path`; columns of words are one-hot encoded over the levels
    of both files. Labels become 0..c-1 in sorted order.

    Parameters
    ----------
    directory
        Where relative paths that are not in the working directory are looked for, or None.
    path
        CSV file, plain or gzipped, UTF-8.
    label
        Name of the label column: whole numbers or strings.
    test_path
        CSV file with the same columns, the official test records; or None.
    settings
        How the files are read; None is `TableSettings()`.

    Raises
    ------
    InputError
        If a file is missing or damaged, a column is missing or cannot be used, or a cell is missing or not finite.

    Examples
    --------
    >>> load_csv(None, "patients.csv", label="outcome")  # doctest: +SKIP
    """
    settings = settings or TableSettings()
    paths = [resolve(directory, name) for name in (path, test_path) if name is not None]
    return source_of_frames([_read_frame(file, label, settings) for file in paths], paths, label, settings)


def _read_frame(path: Path, label: str, settings: TableSettings) -> pd.DataFrame:
    """Read a file and leave out the columns that are to be dropped."""
    content = io.BytesIO(read_bytes(path))
    # Surplus fields would become row names and shift every column; with index_col=False they are at least warned of.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(
                content,
                sep=settings.separator,
                na_values=list(settings.missing or ()),
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
            )
        except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"{path} is no CSV table ({reason}): accepted is UTF-8 text whose cells are separated by "
                f"{settings.separator!r}"
            ) from error
    columns = [str(column) for column in frame.columns]
    return chosen_columns(frame, path, label, settings, _hint(columns))


def _hint(columns: Sequence[str]) -> str:
    """Return the separator that a header of one column seems to be written with."""
    for separator in _OTHER_SEPARATORS:
        if len(columns) == 1 and separator in columns[0]:
            return f"; set separator = {json.dumps(separator)} in [data] if that is what separates its cells"
    return ""
