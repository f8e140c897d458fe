"""CSV tables that users bring along: their encoding, the character between cells, the mark of decimals, their cells."""

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data.columns import DECIMAL_MARKS, amounts, is_number
from fl_audit.data.files import read_bytes, resolve
from fl_audit.data.frames import TableSettings, chosen_columns, source_of_frames
from fl_audit.data.records import Caution, Source
from fl_audit.errors import InputError, Remedy, first_line, require

_NAMED = Remedy("encoding", "cp1252")
_SEPARATORS = (",", ";", "\t", "|")
_ROWS_LOOKED_AT = 50
_BYTES_LOOKED_AT = 2**18
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n')  # the first line of a file that a spreadsheet wrote for itself
_WESTERN = ("cp1252", "latin_1")
_ENCODINGS = (*_WESTERN, "cp1250", "cp1251", "cp1253", "cp1254", "utf_16_le", "utf_16_be", "shift_jis", "gb18030")
"""Encodings of tables that are not UTF-8; with more candidates, short texts would be guessed worse."""
_MOST_CHAOS = 0.6  # as charset-normalizer counts it, for which letters that are all accents or Cyrillic look odd
_ALIKE = 0.08  # so much less coherence tells nothing: short texts have much of it by chance
_WORD = re.compile(r"[^\s;,|\"]+")
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # as Excel writes them
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class TableText:
    """A file of text, and how it is written."""

    path: Path  # the file, for messages
    text: str  # its content
    encoding: str  # its encoding
    separator: str  # the character between its cells
    doubts: tuple[Caution, ...] = ()  # about an encoding that was found

    @property
    def header(self) -> list[str]:
        """The names of its columns."""
        return [name.strip() for name in next(csv.reader(self.text.splitlines()[:1], delimiter=self.separator), [])]


def read_table_text(
    path: Path, encoding: str | None = None, separator: str | None = None, names: Sequence[str] = ()
) -> TableText:
    """Read a table as text; what is not said of it is found.

    A byte-order mark names the encoding; what is no UTF-8 is judged by the library charset-normalizer. Where that finds
    several alike, the header has to hold the names that the user has given, and western ones are by far the most
    frequent. The separator is the character that divides the header and the first rows into equally many cells.

    Parameters
    ----------
    path
        The file, plain or gzipped.
    encoding, separator
        Its encoding, as Python names it, and the character between cells; None is to be found.
    names
        Names of columns that the user has given.

    Raises
    ------
    InputError
        If the file cannot be read, or not with that encoding.
    """
    content = read_bytes(path)
    workbook = "is an Excel workbook, or another archive: accepted is text, so save it as CSV (UTF-8)"
    require(not content.startswith(_WORKBOOKS), f"{path} {workbook}")
    found = [encoding] if encoding else _encodings(content, path)
    encoding = next((one for one in found if _holds(content, one, names)), found[0])
    doubts = _doubts(content, path, encoding, found) if len(found) > 1 else ()
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(f"encoding is {encoding!r}: accepted are those of Python, such as 'cp1252'") from None
    except UnicodeDecodeError as error:
        wrong = f"byte {error.object[error.start]:#x} at {error.start}, which {encoding} does not have"
        accepted = f"accepted is text, and {_NAMED}, or another name, says how it is written"
        raise InputError(f"{path} has {wrong}: {accepted}", choices=(_NAMED,)) from error
    own = _SEPARATOR_LINE.match(text)
    text = text[own.end() :] if own else text
    return TableText(path, text, encoding, separator or (own[1] if own else _separator(text)), doubts)


def _encodings(content: bytes, path: Path) -> list[str]:
    """Return the encodings that a file may have, the likeliest first."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return [name]
    try:
        if "\0" not in content.decode("utf-8"):
            return ["utf-8"]
    except UnicodeDecodeError:
        pass
    from charset_normalizer import from_bytes

    found = from_bytes(content[:_BYTES_LOOKED_AT], cp_isolation=list(_ENCODINGS), threshold=_MOST_CHAOS)
    if (best := found.best()) is None:
        accepted = f"accepted is a CSV file; {_NAMED}, or another name, says how it is written"
        raise InputError(f"{path} is no text in an encoding that is known: {accepted}", choices=(_NAMED,))
    alike = [one for one in found if one.chaos <= best.chaos and one.coherence >= best.coherence - _ALIKE]
    names = [next((name for name in _WESTERN if name in one.could_be_from_charset), one.encoding) for one in alike]
    return sorted(names, key=lambda name: name not in _WESTERN)


def _holds(content: bytes, encoding: str, names: Sequence[str]) -> bool:
    """Return whether the first lines of a file hold all of some names in an encoding."""
    try:
        return all(name.encode(encoding) in content[:_BYTES_LOOKED_AT] for name in names)
    except (LookupError, UnicodeEncodeError):
        return False


def _doubts(content: bytes, path: Path, encoding: str, others: Sequence[str]) -> tuple[Caution, ...]:
    """Return a warning if the beginning of a file would have other words in encodings that are as likely."""
    content = content[:_BYTES_LOOKED_AT]
    own = _WORD.findall(content.decode(encoding, "replace"))
    instead: dict[Remedy, tuple[str, str]] = {}
    for other in others:
        rivals = zip(own, _WORD.findall(content.decode(other, "replace")), strict=False)
        if pair := next((pair for pair in rivals if pair[0] != pair[1]), None):
            instead[Remedy("encoding", other)] = pair
    said = "; ".join(
        f"{remedy} would have {rival!r} in the place of {word!r}" for remedy, (word, rival) in instead.items()
    )
    return (Caution(f"{path.name} is read as {encoding}: {said}", tuple(instead)),) if instead else ()


def _separator(text: str) -> str:
    lines = [line for line in islice(text.splitlines(), _ROWS_LOOKED_AT) if line.strip()]

    def cells(separator: str) -> tuple[float, int]:
        widths = [len(row) for row in csv.reader(lines, delimiter=separator)]
        is_one = not widths or widths[0] == 1
        return (0.0, 0) if is_one else (widths.count(widths[0]) / len(widths), widths[0])

    return max(_SEPARATORS, key=cells)


def load_csv(directory: Path | None, options: Mapping[str, Any]) -> Source:
    """Return the records of a CSV file with a header line, and what each of its columns became.

    Numeric columns are scaled to [0, 1] by their range in `path`; columns of words are one-hot encoded over the levels
    of both files. Labels become 0..c-1 in sorted order. `InputError` if a file is missing or damaged, its numbers could
    be read in two ways, a column is missing or cannot be used, or a cell is missing or not finite.

    Parameters
    ----------
    directory, options
        As for `resolve`, a `path`, plain or gzipped, and, if there is one, a `test-path` to official test records with
        the same columns; and how the files are read, as in `TableSettings`.
    """
    settings = TableSettings.of(options)
    paths = [resolve(directory, options[key]) for key in ("path", "test-path") if key in options]
    names = (*settings.kept, *settings.drop)
    texts = [read_table_text(file, settings.encoding, settings.separator, names) for file in paths]
    found = replace(settings, encoding=texts[0].encoding, separator=texts[0].separator)
    frames = [_frame(text, found) for text in texts]
    if settings.decimal is None:
        found = replace(found, decimal=_decimal_mark(texts[0], frames[0].drop(columns=[settings.label]), found))
        # Points between thousands are no decimals: the parser must see none in them.
        frames = frames if found.decimal == "." else [_frame(text, found) for text in texts]
    source = source_of_frames(frames, paths, found, "csv", "CSV")
    return replace(source, cautions=(*texts[0].doubts, *source.cautions))


def _frame(text: TableText, settings: TableSettings, as_text: bool = False) -> pd.DataFrame:
    """Read the cells of a file, and leave out the columns that are to be dropped."""
    missing, label = list(settings.missing or ()), settings.label
    frame = chosen_columns(
        _read(text, decimal=settings.decimal or ".", dtype=str if as_text else None, na_values=missing),
        text.path,
        settings,
    )
    if frame[label].isna().any() and pd.api.types.infer_dtype(frame[label], skipna=True) == "string":
        # "None" and "NA" among words are classes, unless the user says that they are missing.
        own = {"usecols": lambda name: name.strip() == label, "keep_default_na": False}
        words = _read(text, dtype=str, na_values=["", *missing], **own)
        frame = frame.assign(**{label: words[label]})
    return frame


def _read(text: TableText, **options: Any) -> pd.DataFrame:
    # Surplus fields would become row names and shift every column; with index_col=False they are at least warned of.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        content = io.StringIO(text.text)
        try:
            frame: pd.DataFrame = pd.read_csv(
                content, sep=text.separator, index_col=False, skipinitialspace=True, low_memory=False, **options
            )
        except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
            accepted = f"accepted is text whose cells are separated by {text.separator!r}"
            rows = csv.reader(text.text.splitlines(), delimiter=text.separator)
            (_, first), *below = [(line, len(row)) for line, row in enumerate(rows, start=1)] or [(0, 0)]
            if longer := next((f"line {line} has {cells}" for line, cells in below if cells > first), None):
                accepted += f" below one line of names; the first line has {first}, and {longer}"
            raise InputError(f"{text.path} is no CSV table ({first_line(error)}): {accepted}") from error
    frame.columns = [str(column).strip() for column in frame.columns]
    return frame


def column_of(text: TableText, name: str) -> "pd.Series[Any]":
    """Return the cells of a column: numbers, or words where one is none.

    Parameters
    ----------
    text, name
        The table, and the name of the column.

    Raises
    ------
    InputError
        If there is no such column, or the text is no table.
    """
    listed = ", ".join(text.header[:20])
    require(name in text.header, f"{text.path} has no column {name!r}: its columns are {listed}")
    exact = {"keep_default_na": False, "float_precision": "round_trip"}
    column: pd.Series[Any] = _read(text, usecols=lambda one: str(one).strip() == name, **exact)[name]
    return column


def _decimal_mark(text: TableText, frame: pd.DataFrame, settings: TableSettings) -> str:
    """Return which mark the decimals of a table have; refuse one all of whose marks could be meant either way."""
    # `raw` has as text the columns of numbers with points of `frame`, none where points can only be decimal: where
    # commas separate cells nobody writes points between thousands.
    names = [] if text.separator == "," else _doubtful(frame)
    raw = _frame(text, settings, as_text=True)[names] if names else pd.DataFrame()
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
    found = f"{cell!r} in column {where}, which can be {cell.replace(',', '.')} or {re.sub('[,.]', '', cell)}"
    remedy = f"{of_decimals} says the first, {of_thousands} the second"
    message = f"{text.path} has {found}, and no number of the file tells which: {remedy}"
    raise InputError(message, choices=(comma, point))


def _marks_of(column: "pd.Series[Any]") -> dict[str, str | None]:
    """Return the numbers with a mark, and which mark is decimal if only one can be; none unless most cells are such."""
    cells = amounts(pd.Series(column.dropna().unique()))[0].tolist()
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


def _doubtful(frame: pd.DataFrame) -> list[str]:
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
