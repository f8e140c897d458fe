"""Read tables as text, workbooks and Parquet as CSV, and detect encoding, separator and lines above column names."""

import codecs
import csv
import datetime
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from charset_normalizer import from_bytes
from pyarrow import csv as arrow_csv

from fl_audit.data import remedies
from fl_audit.data.data_files import read_bytes
from fl_audit.data.file_format_detection import PARQUET, TABLES, WORKBOOK, file_format_phrase, require_text
from fl_audit.data.loaded_dataset import DataWarning
from fl_audit.data.table_settings import WHITESPACE
from fl_audit.errors import InputError, Remedy, first_line, require
from fl_audit.ordinary_files import LARGEST_FILE, readable, require_size
from fl_audit.parquet_files import parquet_table

_READER = "python_calamine"
_INSTALL = "pip install 'fl-audit[excel]'"
_SEPARATORS = (",", ";", "\t", "|")
_ROWS_LOOKED_AT = 50
_BYTES_LOOKED_AT = 2**18
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n')  # the first line of a file that a spreadsheet wrote for itself
_WESTERN = ("cp1252", "latin_1")
_ENCODINGS = (*_WESTERN, "cp1250", "cp1251", "cp1253", "cp1254", "utf_16_le", "utf_16_be", "shift_jis", "gb18030")
"""Candidate encodings of tables that are not UTF-8; with more candidates, short texts would be guessed worse."""
_MOST_CHAOS = 0.6  # as charset-normalizer counts it, for which letters that are all accents or Cyrillic look odd
_ALIKE = 0.08  # so much less coherence tells nothing: short texts have much of it by chance
_WORD = re.compile(r"[^\s;,|\"]+")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def workbook_text(content: bytes, path: Path, sheet: str | None) -> str:
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


csv.field_size_limit(
    2**31 - 1
)  # by itself Python refuses a cell, or a line without its separator, of 131,073 characters


@dataclass(frozen=True)
class TableText:
    """A table as text, with its encoding and its separator."""

    path: Path  # path of the file, for messages
    text: str  # content of the file, from the line of column names on
    encoding: str  # encoding of the file, as Python names it
    separator: str  # character between the cells, or `WHITESPACE`
    doubts: tuple[DataWarning, ...] = ()  # warnings about a detected encoding that may be wrong
    title: str = "CSV"  # kind of file

    @property
    def header(self) -> list[str]:
        """Column names in the first line of the table that is not blank."""
        filled = (line for line in io.StringIO(self.text) if line.strip())
        return [name.strip() for name in next(split_rows(filled, self.separator), [])]

    def lines_above(self, names: Sequence[str]) -> int:
        """Return the number of lines above the line of column names, such as a title; 0 if there seem to be none.

        If `names`, column names in the user's settings, are given, the line of column names contains all of them.
        """
        lines = _first_lines(self.text)
        for separator in (self.separator, *_SEPARATORS, WHITESPACE):
            rows = [{cell.strip() for row in split_rows([line], separator) for cell in row} for line in lines]
            if names and (header_row := next((index for index, row in enumerate(rows) if row >= set(names)), 0)):
                return header_row * any(map(str.strip, lines[:header_row]))
        # A title has few cells above lines that have several, and equally many. Other separators are tried where the
        # one that was found divides the lines no better.
        for separator in dict.fromkeys((self.separator, *_SEPARATORS)):
            filled = [
                sum(bool(cell.strip()) for row in split_rows([line], separator) for cell in row) for line in lines
            ]
            usual, times = Counter(filled[1:]).most_common(1)[0] if filled[1:] else (0, 0)
            if usual > 1 and 2 * times > len(filled):
                header_row = next(index for index, count in enumerate(filled) if 2 * count > usual)
                return header_row * any(map(str.strip, lines[:header_row]))  # blank lines alone are passed over anyway
        return 0


def read_table_text(
    path: Path,
    encoding: str | None = None,
    separator: str | None = None,
    names: Sequence[str] = (),
    skip_lines: int = 0,
    sheet: str | None = None,
) -> TableText:
    """Read a table file as text, and detect its encoding and separator if they are not given.

    Excel workbooks and Parquet files become CSV. The encoding is that of a byte-order mark, UTF-8, or one that
    charset-normalizer detects. Of several likely encodings, the function prefers those in which the beginning of the
    file contains `names`, and among them a Western one. The separator is stated by a first line such as `sep=;`.
    Without this line, it is the character that splits the first lines into equally many cells.
    """
    content = read_bytes(path)
    kind = file_format_phrase(content)
    if kind in (WORKBOOK, PARQUET):
        for key, value in (("encoding", encoding), ("separator", separator)):
            require(value is None, f"{path} is {kind}, which has no {key}: leave {key} out of [data]")
        require(sheet is None or kind == WORKBOOK, f"{path} is {kind}, which has no sheets: leave sheet out of [data]")
        text = workbook_text(content, path, sheet) if kind == WORKBOOK else parquet_text(content, path)
        title = kind.removeprefix("an ").removeprefix("a ")
        return TableText(path, _below(text, skip_lines, path), "utf-8", ",", title=title)
    require_text(content, path)
    require(sheet is None, f"{path} is no Excel workbook, and text has no sheets: leave sheet out of [data]")
    encodings = [encoding] if encoding else _encodings(content, path)
    encoding = next((candidate for candidate in encodings if _holds(content, candidate, names)), encodings[0])
    # In another encoding the names that the user has given would not be there.
    other_encodings = (
        [candidate for candidate in encodings if _holds(content, candidate, names)]
        if _holds(content, encoding, names)
        else encodings
    )
    doubts = _doubts(content, path, encoding, other_encodings) if len(encodings) > 1 else ()
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        wrong = f"byte {error.object[error.start]:#x} at {error.start}, which {encoding} does not have"
        encodings = [name for name in _encodings(content, path) if name != encoding]
        fits = tuple(remedies.encoding(candidate) for candidate in encodings[:1])
        accepted = f"{fits[0]} fits what stands there" if fits else "accepted is text"
        raise InputError(f"{path} has {wrong}: {accepted}", choices=fits) from error
    except (LookupError, ValueError):  # ValueError: some are no encodings of files, such as punycode
        raise InputError(f"encoding is {encoding!r}: accepted are those of Python, such as 'cp1252'") from None
    separator_line = _SEPARATOR_LINE.match(text)
    text = _below(text[separator_line.end() :] if separator_line else text, skip_lines, path)
    return TableText(
        path, text, encoding, separator or (separator_line[1] if separator_line else _separator(text)), doubts
    )


def _below(text: str, lines: int, path: Path) -> str:
    """Return a text without its first `lines` lines; raise `InputError` if no line of column names is left."""
    if lines == 0:
        return text
    lines_split = text.split("\n", lines)
    accepted = "accepted are fewer, so that the line of names is left"
    require(
        len(lines_split) > lines and bool(lines_split[lines].strip()), f"skip-lines is {lines} for {path}: {accepted}"
    )
    return lines_split[lines]


def _first_lines(text: str) -> list[str]:
    return text[:_BYTES_LOOKED_AT].splitlines()[:_ROWS_LOOKED_AT]


def split_rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Yield the list of cells of each line of a table."""
    if separator == WHITESPACE:
        return csv.reader((" ".join(line.split("\t")).strip() for line in lines), delimiter=" ", skipinitialspace=True)
    return csv.reader(lines, delimiter=separator)


def _encodings(content: bytes, path: Path) -> list[str]:
    """Return the encodings that a file may have, Western ones first."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return [name]
    try:
        if "\0" not in content.decode("utf-8"):
            return ["utf-8"]
    except UnicodeDecodeError:
        pass
    matches = from_bytes(content[:_BYTES_LOOKED_AT], cp_isolation=list(_ENCODINGS), threshold=_MOST_CHAOS)
    if (best := matches.best()) is None:
        remedy = f"{TABLES}; a text in another encoding than is known has to be saved in UTF-8"
        raise InputError(f"{path} is no text, and no kind of file that is known: accepted are {remedy}")
    alike = [
        match_found
        for match_found in matches
        if match_found.chaos <= best.chaos and match_found.coherence >= best.coherence - _ALIKE
    ]
    names = [
        next((name for name in _WESTERN if name in match_found.could_be_from_charset), match_found.encoding)
        for match_found in alike
    ]
    return sorted(names, key=lambda name: name not in _WESTERN)


def _holds(content: bytes, encoding: str, names: Sequence[str]) -> bool:
    """Return True if all names, encoded with `encoding`, occur at the beginning of a file."""
    try:
        return all(name.encode(encoding) in content[:_BYTES_LOOKED_AT] for name in names)
    except (LookupError, ValueError):  # it has no such letters, is no encoding of files, or none at all
        return False


def _doubts(content: bytes, path: Path, encoding: str, other_encodings: Sequence[str]) -> tuple[DataWarning, ...]:
    """Return a warning if another encoding would change words at the beginning of a file.

    The file is read with `encoding`; `other_encodings` are encodings that are equally likely.
    """
    content = content[:_BYTES_LOOKED_AT]
    own_words = _WORD.findall(content.decode(encoding, "replace"))
    instead: dict[Remedy, tuple[str, str]] = {}
    for other_encoding in other_encodings:
        rivals = zip(own_words, _WORD.findall(content.decode(other_encoding, "replace")), strict=False)
        if pair := next((pair for pair in rivals if pair[0] != pair[1]), None):
            instead[remedies.encoding(other_encoding)] = pair
    doubts = "; ".join(
        f"{remedy} would have {rival!r} in the place of {word!r}" for remedy, (word, rival) in instead.items()
    )
    return (DataWarning(f"{path.name} is read as {encoding}: {doubts}", tuple(instead)),) if instead else ()


def _separator(text: str) -> str:
    lines = [line for line in _first_lines(text) if line.strip()]

    def cells(separator: str) -> tuple[float, int]:
        widths = [len(row) for row in split_rows(lines, separator)]
        is_one = not widths or widths[0] == 1
        return (0.0, 0) if is_one else (widths.count(widths[0]) / len(widths), widths[0])

    best = max(_SEPARATORS, key=cells)
    # Words have spaces between them too: lines of equally many are needed, and nothing else that divides them.
    return WHITESPACE if cells(best)[1] == 0 and cells(WHITESPACE)[0] == 1 and len(lines) > 1 else best
