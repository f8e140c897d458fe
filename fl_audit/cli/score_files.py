"""Reading of users' files of scores, losses or coins. A coin says whether a canary was in a training.

A file has one number per line, a column of a table, or a NumPy array.
"""

import codecs
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fl_audit.array_files import read_array
from fl_audit.array_types import Floats, in_one_axis
from fl_audit.data.data_files import first_bytes, read_bytes
from fl_audit.errors import InputError, require

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

ACCEPTED = "one number a line, a column of a table (--column NAME), or an array in .npy or .npz"
_ARRAY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
_BETWEEN_CELLS = re.compile(r"[,;\t| ]+")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WORDS = {"true": 1.0, "false": 0.0}  # coins, as NumPy and pandas write them
_NAME = re.compile(r'"?[^\W\d][\w ()*%-]*"?')  # pattern of a line above numbers that is taken as a name


def columns_for(columns_given: list[str] | None) -> tuple[str | None, str | None]:
    """Return the names of the columns to read in the first and in the second of two files; None if none are given.

    `columns_given` holds the values of the option `--column`: one for both files, or one for each.
    """
    names = columns_given or []
    require(len(names) <= 2, f"--column is given {len(names)} times: accepted is once for both files, or once for each")
    return (names[0], names[-1]) if names else (None, None)


def read_numbers(path: Path, column: str | None = None) -> Floats:
    """Return the numbers in a file as float64, shape (n,); booleans become 1 and 0.

    Parameters
    ----------
    path
        A text (UTF-8 or UTF-16) with one number per line, and perhaps a header; a table with a header row; an array
        (`.npy`); or an archive of arrays (`.npz`). All but archives may be compressed by gzip.
    column
        Name of the column of a table, or of the array in an archive; None if the file has only one.

    Raises
    ------
    InputError
        If the file cannot be read, is empty, or contains anything but numbers.
    """
    beginning = first_bytes(path)
    if beginning.startswith(_ARRAY) or (beginning.startswith(_ZIP) and path.suffix == ".npz"):
        numbers = _of_array(path, read_array(path, column))
    elif beginning.startswith(_ZIP) or column is not None or (lines := _lines(read_bytes(path))) is None:
        numbers = _of_table(path, column)
    else:
        numbers = _listed(path, lines)
    require(numbers.size > 0, f"{path} is empty: accepted is {ACCEPTED}")
    return numbers


def _of_array(path: Path, values: "NDArray[np.generic]") -> Floats:
    flat = in_one_axis(values)
    accepted = "accepted are numbers in one dimension, shape (n,), (n, 1) or (1, n)"
    require(
        flat.ndim == 1 and flat.dtype.kind in "biuf", f"{path} holds {values.dtype} of shape {values.shape}: {accepted}"
    )
    return flat.astype(np.float64)


def _lines(content: bytes) -> list[str] | None:
    """Return the lines of a text; None if its encoding is unknown, or if its first line has several cells.

    Such a first line shows that the file is a table.
    """
    try:
        text = content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    lines = text.rstrip().split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    return lines if len(_BETWEEN_CELLS.split(first)) <= 1 else None


def _listed(path: Path, lines: list[str]) -> Floats:
    """Return the numbers in lines with one number each; the first line may be a header."""
    if (numbers := _numbers(lines)) is not None:
        return numbers
    first = next(index for index, line in enumerate(lines) if line.strip())
    # A name above the only column; a mistyped number, such as O.1, is none.
    is_named = bool(_NAME.fullmatch(lines[first].strip())) and lines[first].strip().lower() not in _WORDS
    if is_named and (numbers := _numbers(lines[first + 1 :])) is not None:
        return numbers
    wrong = next(
        index
        for index, line in enumerate(lines)
        if line.strip() and index >= first + is_named and _numbers([line]) is None
    )
    accepted = "accepted is one number a line, with a point before decimals"
    raise InputError(f"{path} line {wrong + 1} is {lines[wrong].strip()[:40]!r}: {accepted}")


def _of_table(path: Path, column: str | None) -> Floats:
    """Return the numbers in a column of a table; `column` may be None if there is only one."""
    from fl_audit.data.table_text import read_table_text

    text = read_table_text(path, names=() if column is None else (column,))
    header = text.header
    if column is None and len(header) > 1:
        are_names = all(_numbers([name]) is None for name in header)
        columns = f"{path} has columns {', '.join(header[:20])}: name one with --column"
        lacking = "several numbers a line and no line of names (decimals have a point)"
        raise InputError(columns if are_names else f"{path} has {lacking}: write one, and choose with --column")

    from fl_audit.data.tables import column_of

    cells = column_of(text, header[0] if column is None and header else column or "")
    return _of_cells(path, cells)


def _of_cells(path: Path, cells: "pd.Series[Any]") -> Floats:
    if cells.dtype.kind in "biuf":
        return cells.to_numpy(dtype=np.float64)
    words = cells.astype(str).str.strip().tolist()
    blank = next((index for index, word in enumerate(words) if not word), None)
    if blank is None and (numbers := _numbers(words)) is not None:
        return numbers
    wrong = next(index for index, word in enumerate(words) if not word or _numbers([word]) is None)
    cell = f"{words[wrong][:40]!r} in column {cells.name}, row {wrong + 1}"
    raise InputError(f"{path} has {cell}: accepted are numbers, with a point before decimals")


def _numbers(lines: list[str]) -> Floats | None:
    """Return one number per line, or None if a line is no number; blank lines are ignored."""
    try:
        return np.fromiter(map(float, lines), np.float64, len(lines))
    except ValueError:
        pass
    filled = [line for line in lines if line and not line.isspace()]
    try:
        return np.fromiter(map(float, filled), np.float64, len(filled))
    except ValueError:
        pass
    words = [_WORDS.get(line.strip().lower()) for line in filled]
    return None if None in words else np.array(words, dtype=np.float64)
