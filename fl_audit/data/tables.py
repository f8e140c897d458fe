"""CSV tables that users bring along."""

import io
import warnings
from dataclasses import replace
from pathlib import Path

import pandas as pd

from fl_audit.data.files import resolve
from fl_audit.data.frames import TableSettings, chosen_columns, source_of_frames
from fl_audit.data.records import Source
from fl_audit.data.table_text import TableText, decimal_mark, doubtful, read_table_text
from fl_audit.errors import InputError


def load_csv(
    directory: Path | None, path: str, label: str, test_path: str | None = None, settings: TableSettings | None = None
) -> Source:
    """Return the records of a CSV file with a header line, and what each of its columns became.

    Numeric columns are scaled to [0, 1] by their range in `path`; columns of words are one-hot encoded over the levels
    of both files. Labels become 0..c-1 in sorted order.

    Parameters
    ----------
    directory
        Where relative paths that are not in the working directory are looked for, or None.
    path
        CSV file, plain or gzipped.
    label
        Name of the label column: whole numbers or strings.
    test_path
        CSV file with the same columns, the official test records; or None.
    settings
        How the files are read; None is `TableSettings()`.

    Raises
    ------
    InputError
        If a file is missing or damaged, its numbers could be read in two ways, a column is missing or cannot be used,
        or a cell is missing or not finite.

    Examples
    --------
    >>> load_csv(None, "patients.csv", label="outcome")  # doctest: +SKIP
    """
    settings = settings or TableSettings()
    paths = [resolve(directory, name) for name in (path, test_path) if name is not None]
    texts = [read_table_text(file, settings.encoding, settings.separator) for file in paths]
    found = replace(settings, encoding=texts[0].encoding, separator=texts[0].separator)
    frames = [_frame(text, label, found) for text in texts]
    if settings.decimal is None:
        found = replace(found, decimal=_decimal(texts[0], frames[0], label, found))
        # Points between thousands are no decimals: the parser must see none in them.
        frames = frames if found.decimal == "." else [_frame(text, label, found) for text in texts]
    return source_of_frames(frames, paths, label, found)


def _decimal(text: TableText, frame: pd.DataFrame, label: str, settings: TableSettings) -> str:
    """Return the mark of the decimals of a file."""
    cells = frame.drop(columns=[label])
    # Where commas separate cells nobody writes points between thousands.
    names = [] if text.separator == "," else doubtful(cells)
    raw = _frame(text, label, settings, as_text=True)[names] if names else pd.DataFrame()
    return decimal_mark(cells, raw, text.path)


def _frame(text: TableText, label: str, settings: TableSettings, as_text: bool = False) -> pd.DataFrame:
    """Read the cells of a file, and leave out the columns that are to be dropped."""
    # Surplus fields would become row names and shift every column; with index_col=False they are at least warned of.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(
                io.StringIO(text.text),
                sep=text.separator,
                decimal=settings.decimal or ".",
                dtype=str if as_text else None,
                na_values=list(settings.missing or ()),
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
            )
        except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"{text.path} is no CSV table ({reason}): accepted is text whose cells are separated by "
                f"{text.separator!r}"
            ) from error
    frame.columns = [str(column).strip() for column in frame.columns]
    return chosen_columns(frame, text.path, label, settings)
