"""Convert Excel workbooks and Parquet files to CSV text, so that one parser reads all tables."""

import csv
import datetime
import io
import zipfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from fl_audit.data import remedies
from fl_audit.errors import InputError, first_line, require
from fl_audit.ordinary_files import LARGEST_FILE, readable, require_size
from fl_audit.parquet_files import parquet_table

_READER = "python_calamine"
_INSTALL = "pip install 'fl-audit[excel]'"


def workbook_text(content: bytes, path: Path, sheet: str | None = None) -> str:
    """Return a sheet of an Excel workbook as CSV text; blank rows become blank lines."""
    needed = (
        f"{path} is an Excel workbook, and its reader is missing: {_INSTALL} installs it; or save it as CSV (UTF-8)"
    )
    require(find_spec(_READER) is not None, needed)
    # The extra `excel`, which an installation may lack.
    from python_calamine import CalamineError, CalamineWorkbook  # noqa: PLC0415

    _require_unpacked_size(content, path)
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(content))
        names = book.sheet_names if sheet is None or sheet not in book.sheet_names else [sheet]
        sheets = {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in names}
    except (CalamineError, ValueError, OSError) as error:
        accepted = "accepted are workbooks without a password, or CSV (UTF-8)"
        raise InputError(f"{path} is a workbook that cannot be read ({first_line(error)}): {accepted}") from error
    listed = ", ".join(map(repr, sheets))
    require(sheet is None or sheet in sheets, f"{path} has no sheet {sheet!r}: its sheets are {listed}")
    filled = [name for name, rows in sheets.items() if any(map(_is_filled, rows))]
    require(bool(filled), f"{path} has no cell that holds anything in {listed}: accepted are tables")
    if len(filled) > 1:
        choices = tuple(remedies.sheet(name) for name in filled)
        choices_text = ", or ".join(map(str, choices))
        raise InputError(
            f"{path} has {len(filled)} sheets: name the one that is meant, {choices_text}", choices=choices
        )
    return _written([] if not _is_filled(row) else [_cell(value) for value in row] for row in sheets[filled[0]])


def _require_unpacked_size(content: bytes, path: Path) -> None:
    """Raise `InputError` if a workbook, which may be a zip archive, would become too large."""
    if not content.startswith(b"PK"):
        return
    with readable(path, "a damaged workbook", "a complete file"), zipfile.ZipFile(io.BytesIO(content)) as archive:
        size = sum(member.file_size for member in archive.infolist())
        require_size(path, size, LARGEST_FILE, "decompressed ")


def _is_filled(row: Iterable[object]) -> bool:
    return any(value != "" and value is not None for value in row)


def _cell(value: object) -> object:
    """Return a cell as CSV has it: whole numbers without decimals, dates at midnight without the time."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case datetime.datetime() if value.time() == datetime.time():
            return value.date().isoformat()
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case datetime.timedelta():
            return value.total_seconds()
        case _:
            return value


def _written(rows: Iterable[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def parquet_text(content: bytes, path: Path) -> str:
    """Return the columns of a Parquet file as CSV text."""
    table = parquet_table(content, path)
    # pandas keeps the numbers of its rows beside the columns.
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    text = io.BytesIO()
    arrow_csv.write_csv(pa.table([_writable(table[name]) for name in names], names), text)
    return text.getvalue().decode("utf-8")


def _writable(column: Any) -> Any:
    """Return a column in a type that CSV can hold: lists, structs and bytes become strings."""
    types = pa.types
    as_text = (types.is_nested, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    if any(holds(column.type) for holds in as_text):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return column
