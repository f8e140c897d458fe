"""The text of a table: its encoding, the character between its cells, and the mark of its decimals."""

import codecs
import csv
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data.files import read_bytes
from fl_audit.errors import InputError, Remedy

DECIMAL_MARKS = (".", ",")
_NAMED = Remedy("encoding", "cp1252")
_SEPARATORS = (",", ";", "\t", "|")
_ROWS_LOOKED_AT = 50
_BYTES_LOOKED_AT = 2**18
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n')  # the first line of a file that a spreadsheet wrote for itself
_WESTERN = ("cp1252", "latin_1")
_ENCODINGS = (*_WESTERN, "cp1250", "cp1251", "cp1253", "cp1254", "utf_16_le", "utf_16_be", "shift_jis", "gb18030")
"""Encodings of tables that are not UTF-8; with more candidates, short texts would be guessed worse."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_GROUPS = r"[1-9]\d{0,2}(?:%s\d{3})+"
_SPACES = re.compile(r"(?<=\d)['\u2019\u00a0\u202f ](?=\d{3}(?!\d))")
"""What else stands between thousands, and between nothing else."""
_NUMBER = {
    ".": re.compile(rf"[+-]?(?:\d*|{_GROUPS % ','})(?:(?<=\d)\.|\.?\d+)?(?:[eE][+-]?\d+)?\s*%?"),
    ",": re.compile(rf"[+-]?(?:\d*|{_GROUPS % '[.]'})(?:(?<=\d),|,?\d+)?(?:[eE][+-]?\d+)?\s*%?"),
}


@dataclass(frozen=True)
class TableText:
    """A file of text, and how it is written."""

    path: Path  # the file, for messages
    text: str  # its content
    encoding: str  # its encoding
    separator: str  # the character between its cells

    @property
    def header(self) -> list[str]:
        """The names of its columns."""
        return [name.strip() for name in next(csv.reader(self.text.splitlines()[:1], delimiter=self.separator), [])]


def read_table_text(path: Path, encoding: str | None = None, separator: str | None = None) -> TableText:
    """Read a table as text; what is not said of it is found.

    A byte-order mark names the encoding; what is no UTF-8 is judged by the library charset-normalizer. The separator is
    the character that divides the header and the first rows into equally many cells.

    Parameters
    ----------
    path
        The file, plain or gzipped.
    encoding
        Name of its encoding, as Python knows it; None is to be found.
    separator
        The character between cells; None is to be found.

    Raises
    ------
    InputError
        If the file cannot be read, or not with that encoding.
    """
    content = read_bytes(path)
    encoding = encoding or _encoding(content, path)
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(f"encoding is {encoding!r}: accepted are those of Python, such as 'cp1252'") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} has byte {error.object[error.start]:#x} at {error.start}, which {encoding} does not have: "
            f"accepted is text, and {_NAMED}, or another name, says how it is written",
            choices=(_NAMED,),
        ) from error
    own = _SEPARATOR_LINE.match(text)
    text = text[own.end() :] if own else text
    return TableText(path, text, encoding, separator or (own[1] if own else _separator(text)))


def _encoding(content: bytes, path: Path) -> str:
    for mark, name in _MARKS:
        if content.startswith(mark):
            return name
    try:
        if "\0" not in content.decode("utf-8"):
            return "utf-8"
    except UnicodeDecodeError:
        pass
    from charset_normalizer import from_bytes

    found = from_bytes(content[:_BYTES_LOOKED_AT], cp_isolation=list(_ENCODINGS)).best()
    if found is None:
        raise InputError(
            f"{path} is no text in an encoding that is known: accepted is a CSV file; {_NAMED}, or another name, says "
            "how it is written",
            choices=(_NAMED,),
        )
    # Where several read the text alike, the western ones are by far the most frequent.
    return next((name for name in _WESTERN if name in found.could_be_from_charset), found.encoding)


def _separator(text: str) -> str:
    lines = [line for line in islice(text.splitlines(), _ROWS_LOOKED_AT) if line.strip()]

    def cells(separator: str) -> tuple[float, int]:
        widths = [len(row) for row in csv.reader(lines, delimiter=separator)]
        if not widths or widths[0] == 1:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    return max(_SEPARATORS, key=cells)


def without_groups(text: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return cells without spaces around them, and without spaces and apostrophes between thousands."""
    return text.astype(str).str.strip().str.replace(_SPACES, "", regex=True)


def is_number(cell: str, decimal: str) -> bool:
    """Return whether a cell is a number where decimals have this mark, and thousands may have the other.

    Parameters
    ----------
    cell
        What stands in the cell, without spaces around it.
    decimal
        The mark of decimals, "." or ",".

    Examples
    --------
    >>> is_number("1.234,5", ","), is_number("1.234,5", "."), is_number("12 %", ".")
    (True, False, True)
    """
    return _NUMBER[decimal].fullmatch(cell) is not None and any(map(str.isdigit, cell))


def plain_numbers(text: "pd.Series[Any]", decimal: str) -> "pd.Series[Any]":
    """Return numbers as Python writes them.

    Parameters
    ----------
    text
        Cells that `is_number` accepts.
    decimal
        The mark of decimals, "." or ",".
    """
    other = DECIMAL_MARKS[decimal == "."]
    return text.str.replace(rf"[{other}%\s]", "", regex=True).str.replace(",", ".", regex=False)


def decimal_mark(frame: pd.DataFrame, raw: pd.DataFrame, path: Path) -> str:
    """Return which mark the decimals of a table have, by its cells.

    Parameters
    ----------
    frame
        The table as it is read with decimal points.
    raw
        Its columns of numbers with points as text; empty where points can only be decimal.
    path
        Where it comes from, for the message.

    Raises
    ------
    InputError
        If there are numbers with marks, and all of them could be meant either way.
    """
    sure: Counter[str] = Counter()
    unsure: tuple[str, str] | None = None
    for name, column in (*frame.items(), *raw.items()):
        if pd.api.types.is_float_dtype(column):
            sure["."] += name not in raw.columns and bool((column.dropna() % 1 != 0).any())
        elif not pd.api.types.is_numeric_dtype(column):
            marks = _marks_of(column)
            sure.update({only for only in marks.values() if only})
            unsure = unsure or next(((str(name), cell) for cell, only in marks.items() if not only), None)
    # Where numbers are written both ways, the columns with the rarer mark are refused when they are encoded.
    if sure.total() or unsure is None:
        return max(DECIMAL_MARKS, key=lambda mark: sure[mark])
    where, cell = unsure
    comma, point = (Remedy("decimal", mark) for mark in (",", "."))
    of_decimals, of_thousands = (comma, point) if "," in cell else (point, comma)
    raise InputError(
        f"{path} has {cell!r} in column {where}, which can be {cell.replace(',', '.')} or {re.sub('[,.]', '', cell)}, "
        f"and no number of the file tells which: {of_decimals} says the first, {of_thousands} the second",
        choices=(comma, point),
    )


def _marks_of(column: "pd.Series[Any]") -> dict[str, str | None]:
    """Return the numbers with a mark, and which mark is decimal if only one can be; none unless most cells are such."""
    cells = without_groups(column.dropna()).unique().tolist()
    found: dict[str, str | None] = {}
    numbers = 0
    for cell in cells:
        ways = [mark for mark in DECIMAL_MARKS if is_number(cell, mark)]
        if not ways and re.fullmatch(r"[\d.,:/ -]+", cell):
            return {}  # dates, versions, several answers in one cell: whatever these are, they are no numbers
        numbers += bool(ways)
        if ways and ("," in cell or "." in cell):
            found[cell] = ways[0] if len(ways) == 1 else None
    return found if 2 * numbers > len(cells) else {}


def doubtful(frame: pd.DataFrame) -> list[str]:
    """Return the columns of numbers whose points could stand between thousands: 1 to 999 and three decimals at most."""
    names = []
    for name, column in frame.items():
        if not pd.api.types.is_float_dtype(column):
            continue
        numbers = column.dropna().to_numpy(dtype=np.float64)
        parts = np.abs(numbers[numbers % 1 != 0])
        if ((parts >= 1) & (parts < 1000) & (np.abs(parts - np.round(parts, 3)) < 1e-9)).all():
            names.append(str(name))
    return names
