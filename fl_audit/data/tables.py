"""Load data sets from CSV tables, Excel workbooks and Parquet files."""

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data import remedies
from fl_audit.data.data_files import resolve
from fl_audit.data.data_frames import chosen_columns, source_of_frames
from fl_audit.data.loaded_dataset import DataWarning, LoadedDataset
from fl_audit.data.missing_values import missing_value_word_counts
from fl_audit.data.table_settings import WHITESPACE, TableSettings
from fl_audit.data.table_text import TableText, read_table_text, split_rows
from fl_audit.data.warnings import header_warnings
from fl_audit.data.written_numbers import DECIMAL_MARKS, is_number, rewrite_amounts
from fl_audit.errors import InputError, first_line, require

MOST_COLUMNS = 10_000  # columns of a table, each of which is looked at
_SPACES = r"\s+"
_ZEROS = re.compile(r"0(?<![\w.:/-]0)\d{2,}(?![\w.:/-])")  # a code of three digits or more that begins with a zero
_LONG_CODE = re.compile(r"(?<![\w.])\d{16,}(?![\w.])")  # more digits than a double holds
_ROUNDED = 2.0**53  # from here on, numbers with a point are no longer exact


def load_csv(directory: Path | None, options: Mapping[str, Any]) -> LoadedDataset:
    """Load a data set from a table whose first line holds the column names.

    The file is text (CSV), an Excel workbook or a Parquet file. Numeric columns are scaled to [0, 1] by their range in
    the training file. Columns of strings are one-hot encoded over the levels in both files. Labels become 0..c-1 in
    sorted order.

    Raises `InputError` if a file is missing or damaged, if its decimal mark is ambiguous, if a column is missing or
    cannot be used, or if a cell is missing or not finite.

    `options`: Optionally also `test-path`, the file of the official test records, with the same columns.
    """
    settings = TableSettings.of(options).located(directory)
    paths = [resolve(directory, options[key]) for key in ("path", "test-path") if key in options]
    names = (*settings.kept, *settings.drop)
    written = (settings.encoding, settings.separator, names, settings.skip_lines, settings.sheet)
    texts = [read_table_text(file, *written) for file in paths]
    for text in texts:
        _require_columns(text, settings)
    table_settings = replace(settings, encoding=texts[0].encoding, separator=texts[0].separator)
    frames = [_frame(text, table_settings) for text in texts]
    if settings.decimal is None:
        table_settings = replace(
            table_settings, decimal=_decimal_mark(texts[0], frames[0].drop(columns=_words_of(settings)), table_settings)
        )
        # Points between thousands are no decimals: the parser must see none in them.
        frames = frames if table_settings.decimal == "." else [_frame(text, table_settings) for text in texts]
    frames = [_with_exact_codes(frame, text, settings) for frame, text in zip(frames, texts, strict=True)]
    source = source_of_frames(
        frames, paths, table_settings, "table", texts[0].title, _missing_words(frames, texts, table_settings)
    )
    above = (*texts[0].doubts, *header_warnings(texts[0].header), *_zero_cautions(frames[0], texts[0], settings))
    return replace(source, cautions=(*above, *source.cautions))


def _require_columns(text: TableText, settings: TableSettings) -> None:
    """Refuse a table with more columns than can be looked through one by one."""
    number = 1 if settings.text is not None else len(text.header) - len(settings.drop)
    accepted = f"accepted are up to {MOST_COLUMNS:,}; a NumPy archive (.npz) with x and y takes any number"
    require(number <= MOST_COLUMNS, f"{text.path} has {number:,} columns: {accepted}")


def _words_of(settings: TableSettings) -> list[str]:
    return [settings.label, *([] if settings.text is None else [settings.text])]


def _frame(text: TableText, settings: TableSettings, as_text: bool = False) -> pd.DataFrame:
    """Return a table without the columns to drop. With `as_text`, all cells are read as strings."""
    # Only empty cells and the words of the setting are missing: a country can have the code NA.
    options: dict[str, Any] = {
        "decimal": settings.decimal or ".",
        "dtype": str if as_text else None,
        "na_values": ["", *(settings.missing or ())],
    }
    frame = _read(text, settings.kept, **options)
    if not set(frame.columns) >= set(settings.kept):
        _require_names(text, settings.kept)
    return chosen_columns(frame, text.path, settings)


def _require_names(text: TableText, names: Sequence[str] = ()) -> None:
    """Refuse a table that has lines, such as a title, above its column names; `names` are some known column names."""
    if above := text.lines_above(names):
        remedy = remedies.skip_lines(above)
        lines = "a line, such as a title," if above == 1 else f"{above} lines, such as a title,"
        raise InputError(
            f"{text.path} has {lines} above the line of names: {remedy} leaves out what stands above", (remedy,)
        )


def _as_written(text: TableText, names: Sequence[str]) -> pd.DataFrame:
    """Return the named columns with every cell as the string in the file."""
    return _read(text, dtype=str, na_filter=False, usecols=lambda name: name.strip() in names)


def _with_exact_codes(frame: pd.DataFrame, text: TableText, settings: TableSettings) -> pd.DataFrame:
    """Return the table with the original text in each column whose codes would change as numbers.

    Long codes lose digits as numbers, and identifiers of owners or users, such as 007, lose their zeros.
    """
    persons = [name for name in (settings.owner, settings.user) if name is not None]
    floats = frame.select_dtypes("float")
    names = sorted(map(str, floats.columns[(floats.abs() >= _ROUNDED).any()]))
    names = sorted({*names, *(name for name in persons if pd.api.types.is_numeric_dtype(frame[name]))})
    for name, written in _as_written(text, names).items() if names else ():
        cells = written.str.strip()
        odd = _ZEROS if name in persons else _LONG_CODE
        if cells.str.fullmatch(odd).any() or cells.str.fullmatch(_LONG_CODE).any():
            frame = frame.assign(**{str(name): cells.where(frame[name].notna())})
    return frame


def _missing_words(
    frames: Sequence[pd.DataFrame], texts: Sequence[TableText], settings: TableSettings
) -> Mapping[str, int]:
    """Return the number of records with each word for a missing value; the key "" counts empty cells."""
    counts: Counter[str] = Counter()
    for frame, text in zip(frames, texts, strict=True):
        names = [str(name) for name in frame.columns[frame.isna().any()]] if settings.missing else []
        counts.update(missing_value_word_counts(_as_written(text, names), frame[names]) if names else {})
    return counts


def _zero_cautions(frame: pd.DataFrame, text: TableText, settings: TableSettings) -> Iterator[DataWarning]:
    """Yield a warning for each column of codes whose leading zeros are lost, because the codes are read as numbers."""
    if not _ZEROS.search(text.text):
        return
    coded_columns = [str(name) for name, column in frame.items() if pd.api.types.is_numeric_dtype(column)]
    for name, written in _as_written(text, [name for name in coded_columns if name not in settings.kept]).items():
        padded = written[written.str.strip().str.fullmatch(_ZEROS)]
        if len(padded):
            cell = str(padded.iloc[0]).strip()
            drop = remedies.drop(str(name))
            remark = f"column {name} has codes with leading zeros in {len(padded):,} of {len(written):,} rows"
            lost = f"such as {cell!r}, which is read as the number {int(cell)}"
            fix = f"a letter before each makes them words, such as 'N{cell}', and {drop} leaves them out"
            yield DataWarning(f"{remark}, {lost}: {fix}", (drop,))


def _read(text: TableText, names: Sequence[str] = (), **options: Any) -> pd.DataFrame:
    # Surplus fields would become row names and shift every column; with index_col=False they are at least warned of.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        content = io.StringIO(text.text)
        separator = _SPACES if text.separator == WHITESPACE else text.separator
        try:
            frame: pd.DataFrame = pd.read_csv(
                content,
                sep=separator,
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
                keep_default_na=False,
                **options,
            )
        except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            _require_names(text, names)
            accepted = f"accepted is text whose cells are separated by {text.separator!r}"
            rows = split_rows(text.text.splitlines(), text.separator)
            (_, first), *below = [(line, len(row)) for line, row in enumerate(rows, start=1)] or [(0, 0)]
            if longer := next((f"line {line} has {cells}" for line, cells in below if cells > first), None):
                accepted += f" below one line of names; the first line has {first}, and {longer}"
            raise InputError(f"{text.path} is no CSV table ({first_line(error)}): {accepted}") from error
    frame.columns = [str(column).strip() for column in frame.columns]
    return frame


def column_names(path: Path, options: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns of a table file."""
    written = (options.get("encoding"), options.get("separator"))
    text = read_table_text(path, *written, skip_lines=options.get("skip-lines") or 0, sheet=options.get("sheet"))
    _require_names(text)
    return text.header


def column_of(text: TableText, name: str) -> "pd.Series[Any]":
    """Return the cells of a table column as numbers, or as strings if one of them is not a number."""
    listed = ", ".join(text.header[:20])
    require(name in text.header, f"{text.path} has no column {name!r}: its columns are {listed}")
    # Scores and losses are read to the last bit.
    frame = _read(text, usecols=lambda header: str(header).strip() == name, float_precision="round_trip")
    column: pd.Series[Any] = frame[name]
    return column


def _decimal_mark(text: TableText, frame: pd.DataFrame, settings: TableSettings) -> str:
    """Return the decimal mark of a table, "." or ","; raise `InputError` if no number in the table shows which."""
    # `raw` has as text the columns of numbers with points of `frame`, none where points can only be decimal: where
    # commas separate cells nobody writes points between thousands.
    names = [] if text.separator == "," else _doubtful(frame)
    raw = _frame(text, settings, as_text=True)[names] if names else pd.DataFrame()
    sure: Counter[str] = Counter()
    unsure: tuple[str, str] | None = None
    decimals = frame.select_dtypes("float").drop(columns=names)
    sure["."] += int((decimals.notna() & (decimals % 1 != 0)).any().sum())
    words = frame.select_dtypes(exclude="number")
    for name, column in (*words.items(), *raw.items()):
        if not pd.api.types.is_numeric_dtype(column):
            marks = _marks_of(column)
            sure.update({only for only in marks.values() if only})
            unsure = unsure or next(((str(name), cell) for cell, only in marks.items() if not only), None)
    # If numbers are written both ways, the columns with the rarer mark are refused when they are encoded.
    if sure.total() or unsure is None:
        return max(DECIMAL_MARKS, key=lambda mark: sure[mark])
    where, cell = unsure
    comma, point = (remedies.decimal(mark) for mark in (",", "."))
    of_decimals, of_thousands = (comma, point) if "," in cell else (point, comma)
    problem = f"{cell!r} in column {where}, which can be {cell.replace(',', '.')} or {re.sub('[,.]', '', cell)}"
    remedy = f"{of_decimals} says the first, {of_thousands} the second"
    message = f"{text.path} has {problem}, and no number of the file tells which: {remedy}"
    raise InputError(message, choices=(comma, point))


def _marks_of(column: "pd.Series[Any]") -> dict[str, str | None]:
    """Return the decimal mark of each cell that is a number with a comma or a point; None if the mark is ambiguous.

    The result is empty if the column does not mainly consist of numbers.
    """
    cells = rewrite_amounts(pd.Series(column.dropna().unique()))[0].tolist()
    mark_by_column: dict[str, str | None] = {}
    numbers = 0
    for cell in cells:
        ways = [mark for mark in DECIMAL_MARKS if is_number(cell, mark)]
        if not ways and re.fullmatch(r"[\d.,:/ -]+", cell):
            return {}  # dates, versions, several answers in one cell: whatever these are, they are no numbers
        numbers += bool(ways)
        if ways and ("," in cell or "." in cell):
            mark_by_column[cell] = ways[0] if len(ways) == 1 else None
    return mark_by_column if 2 * numbers > len(cells) else {}


def _doubtful(frame: pd.DataFrame) -> list[str]:
    """Return the names of the numeric columns in which every point may be a thousands mark, as in 1.234."""
    names = []
    for name, column in frame.items():
        if not pd.api.types.is_float_dtype(column):
            continue
        numbers = column.dropna().to_numpy(dtype=np.float64)
        fractions = np.abs(numbers[numbers % 1 != 0])
        if ((fractions >= 1) & (fractions < 1000) & (np.abs(fractions - np.round(fractions, 3)) < 1e-9)).all():
            names.append(str(name))
    return names
