"""CSV tables that users bring along: their encoding, the character between cells, the mark of decimals, their cells."""

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fl_audit.data.cautions import header_cautions
from fl_audit.data.columns import DECIMAL_MARKS, amounts, is_number
from fl_audit.data.files import read_bytes, resolve
from fl_audit.data.frames import WHITESPACE, TableSettings, chosen_columns, source_of_frames
from fl_audit.data.kinds import PARQUET, TABLES, WORKBOOK, kind_of, require_text
from fl_audit.data.missing import words_gone
from fl_audit.data.records import Caution, Source
from fl_audit.data.workbooks import parquet_text, workbook_text
from fl_audit.errors import InputError, Remedy, first_line, require

_SEPARATORS = (",", ";", "\t", "|")
_SPACES = r"\s+"
_ROWS_LOOKED_AT = 50
_BYTES_LOOKED_AT = 2**18
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n')  # the first line of a file that a spreadsheet wrote for itself
_WESTERN = ("cp1252", "latin_1")
_ENCODINGS = (*_WESTERN, "cp1250", "cp1251", "cp1253", "cp1254", "utf_16_le", "utf_16_be", "shift_jis", "gb18030")
"""Encodings of tables that are not UTF-8; with more candidates, short texts would be guessed worse."""
_MOST_CHAOS = 0.6  # as charset-normalizer counts it, for which letters that are all accents or Cyrillic look odd
_ALIKE = 0.08  # so much less coherence tells nothing: short texts have much of it by chance
_WORD = re.compile(r"[^\s;,|\"]+")
_ZEROS = re.compile(r"0(?<![\w.:/-]0)\d{2,}(?![\w.:/-])")  # a code of three digits or more that begins with a zero
_LONG_CODE = re.compile(r"(?<![\w.])\d{16,}(?![\w.])")  # more digits than a double holds
_ROUNDED = 2.0**53  # from here on, numbers with a point are no longer exact
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
csv.field_size_limit(
    2**31 - 1
)  # by itself Python refuses a cell, or a line without its separator, of 131,073 characters


@dataclass(frozen=True)
class TableText:
    """A file of text, and how it is written."""

    path: Path  # the file, for messages
    text: str  # its content, from the line of names on
    encoding: str  # its encoding
    separator: str  # the character between its cells, or `WHITESPACE`
    doubts: tuple[Caution, ...] = ()  # about an encoding that was found
    title: str = "CSV"  # what kind of file it is

    @property
    def header(self) -> list[str]:
        """The names of its columns."""
        filled = (line for line in io.StringIO(self.text) if line.strip())
        return [name.strip() for name in next(_rows(filled, self.separator), [])]

    def lines_above(self, names: Sequence[str] = ()) -> int:
        """Return how many lines stand above the line of names, as a title does; 0 where none seems to.

        Parameters
        ----------
        names
            Names of columns that the user has given: the line of names has all of them.
        """
        lines = _first_lines(self.text)
        for separator in (self.separator, *_SEPARATORS, WHITESPACE):
            rows = [{cell.strip() for row in _rows([line], separator) for cell in row} for line in lines]
            if names and (found := next((place for place, row in enumerate(rows) if row >= set(names)), 0)):
                return found * any(map(str.strip, lines[:found]))
        # A title has few cells above lines that have several, and equally many. Other separators are tried where the
        # one that was found divides the lines no better.
        for separator in dict.fromkeys((self.separator, *_SEPARATORS)):
            filled = [sum(bool(cell.strip()) for row in _rows([line], separator) for cell in row) for line in lines]
            usual, times = Counter(filled[1:]).most_common(1)[0] if filled[1:] else (0, 0)
            if usual > 1 and 2 * times > len(filled):
                found = next(place for place, cells in enumerate(filled) if 2 * cells > usual)
                return found * any(map(str.strip, lines[:found]))  # blank lines alone are passed over anyway
        return 0


def read_table_text(
    path: Path,
    encoding: str | None = None,
    separator: str | None = None,
    names: Sequence[str] = (),
    skip_lines: int = 0,
    sheet: str | None = None,
) -> TableText:
    """Read a table as text; what is not said of it is found. A workbook or a Parquet file becomes that of a CSV file.

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
    skip_lines, sheet
        Lines above the line of names; and the sheet of a workbook, None where only one holds anything.

    Raises
    ------
    InputError
        If the file cannot be read, or not with that encoding, or is of another kind.
    """
    content = read_bytes(path)
    kind = kind_of(content)
    if kind in (WORKBOOK, PARQUET):
        for key, value in (("encoding", encoding), ("separator", separator)):
            require(value is None, f"{path} is {kind}, which has no {key}: leave {key} out of [data]")
        require(sheet is None or kind == WORKBOOK, f"{path} is {kind}, which has no sheets: leave sheet out of [data]")
        text = workbook_text(content, path, sheet) if kind == WORKBOOK else parquet_text(content, path)
        title = kind.removeprefix("an ").removeprefix("a ")
        return TableText(path, _below(text, skip_lines, path), "utf-8", ",", title=title)
    require_text(content, path)
    require(sheet is None, f"{path} is no Excel workbook, and text has no sheets: leave sheet out of [data]")
    found = [encoding] if encoding else _encodings(content, path)
    encoding = next((one for one in found if _holds(content, one, names)), found[0])
    # In another encoding the names that the user has given would not be there.
    others = [one for one in found if _holds(content, one, names)] if _holds(content, encoding, names) else found
    doubts = _doubts(content, path, encoding, others) if len(found) > 1 else ()
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        wrong = f"byte {error.object[error.start]:#x} at {error.start}, which {encoding} does not have"
        found = [one for one in _encodings(content, path) if one != encoding]
        fits = tuple(Remedy("encoding", one) for one in found[:1])
        accepted = f"{fits[0]} fits what stands there" if fits else "accepted is text"
        raise InputError(f"{path} has {wrong}: {accepted}", choices=fits) from error
    except (LookupError, ValueError):  # ValueError: some are no encodings of files, such as punycode
        raise InputError(f"encoding is {encoding!r}: accepted are those of Python, such as 'cp1252'") from None
    own = _SEPARATOR_LINE.match(text)
    text = _below(text[own.end() :] if own else text, skip_lines, path)
    return TableText(path, text, encoding, separator or (own[1] if own else _separator(text)), doubts)


def _below(text: str, lines: int, path: Path) -> str:
    """Return a text without its first lines."""
    if lines == 0:
        return text
    parts = text.split("\n", lines)
    accepted = "accepted are fewer, so that the line of names is left"
    require(len(parts) > lines and bool(parts[lines].strip()), f"skip-lines is {lines} for {path}: {accepted}")
    return parts[lines]


def _first_lines(text: str) -> list[str]:
    return text[:_BYTES_LOOKED_AT].splitlines()[:_ROWS_LOOKED_AT]


def _rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Yield the cells of lines."""
    if separator == WHITESPACE:
        return csv.reader((" ".join(line.split("\t")).strip() for line in lines), delimiter=" ", skipinitialspace=True)
    return csv.reader(lines, delimiter=separator)


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
        known = f"{TABLES}; a text in another encoding than is known has to be saved in UTF-8"
        raise InputError(f"{path} is no text, and no kind of file that is known: accepted are {known}")
    alike = [one for one in found if one.chaos <= best.chaos and one.coherence >= best.coherence - _ALIKE]
    names = [next((name for name in _WESTERN if name in one.could_be_from_charset), one.encoding) for one in alike]
    return sorted(names, key=lambda name: name not in _WESTERN)


def _holds(content: bytes, encoding: str, names: Sequence[str]) -> bool:
    """Return whether the first lines of a file hold all of some names in an encoding."""
    try:
        return all(name.encode(encoding) in content[:_BYTES_LOOKED_AT] for name in names)
    except (LookupError, ValueError):  # it has no such letters, is no encoding of files, or none at all
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
    lines = [line for line in _first_lines(text) if line.strip()]

    def cells(separator: str) -> tuple[float, int]:
        widths = [len(row) for row in _rows(lines, separator)]
        is_one = not widths or widths[0] == 1
        return (0.0, 0) if is_one else (widths.count(widths[0]) / len(widths), widths[0])

    best = max(_SEPARATORS, key=cells)
    # Words have spaces between them too: lines of equally many are needed, and nothing else that divides them.
    return WHITESPACE if cells(best)[1] == 0 and cells(WHITESPACE)[0] == 1 and len(lines) > 1 else best


def load_csv(directory: Path | None, options: Mapping[str, Any]) -> Source:
    """Return the records of a table with a line of names, and what each of its columns became.

    The file is text (CSV), an Excel workbook or a Parquet file.

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
    written = (settings.encoding, settings.separator, names, settings.skip_lines, settings.sheet)
    texts = [read_table_text(file, *written) for file in paths]
    found = replace(settings, encoding=texts[0].encoding, separator=texts[0].separator)
    frames = [_frame(text, found) for text in texts]
    if settings.decimal is None:
        found = replace(found, decimal=_decimal_mark(texts[0], frames[0].drop(columns=[settings.label]), found))
        # Points between thousands are no decimals: the parser must see none in them.
        frames = frames if found.decimal == "." else [_frame(text, found) for text in texts]
    frames = [_with_exact_codes(frame, text, settings) for frame, text in zip(frames, texts, strict=True)]
    source = source_of_frames(frames, paths, found, "csv", texts[0].title, _missing_words(frames, texts, found))
    above = (*texts[0].doubts, *header_cautions(texts[0].header), *_zero_cautions(frames[0], texts[0], settings))
    return replace(source, cautions=(*above, *source.cautions))


def _frame(text: TableText, settings: TableSettings, as_text: bool = False) -> pd.DataFrame:
    """Read the cells of a file, and leave out the columns that are to be dropped."""
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
    """Refuse a table whose line of names is not the first one."""
    if above := text.lines_above(names):
        remedy = Remedy("skip-lines", above)
        lines = "a line, such as a title," if above == 1 else f"{above} lines, such as a title,"
        raise InputError(
            f"{text.path} has {lines} above the line of names: {remedy} leaves out what stands above", (remedy,)
        )


def _as_written(text: TableText, names: Sequence[str]) -> pd.DataFrame:
    """Return columns of a file with the text of every cell."""
    return _read(text, dtype=str, na_filter=False, usecols=lambda name: name.strip() in names)


def _with_exact_codes(frame: pd.DataFrame, text: TableText, settings: TableSettings) -> pd.DataFrame:
    """Return a table in which codes that numbers would not tell apart are text.

    Codes of 16 digits and more beside an empty cell would be rounded, and owners 007 and 7 would be one.
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
    """Return in how many records each word stands for a missing value; an empty text is an empty cell."""
    found: Counter[str] = Counter()
    for frame, text in zip(frames, texts, strict=True):
        names = [str(name) for name in frame.columns[frame.isna().any()]] if settings.missing else []
        found.update(words_gone(_as_written(text, names), frame[names]) if names else {})
    return found


def _zero_cautions(frame: pd.DataFrame, text: TableText, settings: TableSettings) -> Iterator[Caution]:
    """Yield a warning of codes whose leading zeros are lost as they are read as numbers."""
    if not _ZEROS.search(text.text):
        return
    kept = [str(name) for name, column in frame.items() if pd.api.types.is_numeric_dtype(column)]
    for name, written in _as_written(text, [name for name in kept if name not in settings.kept]).items():
        padded = written[written.str.strip().str.fullmatch(_ZEROS)]
        if len(padded):
            cell, drop = str(padded.iloc[0]).strip(), Remedy("drop", (str(name),))
            told = f"column {name} has codes with leading zeros in {len(padded):,} of {len(written):,} rows"
            lost = f"such as {cell!r}, which is read as the number {int(cell)}"
            mend = f"a letter before each makes them words, such as 'N{cell}', and {drop} leaves them out"
            yield Caution(f"{told}, {lost}: {mend}", (drop,))


def _read(text: TableText, names: Sequence[str] = (), **options: Any) -> pd.DataFrame:
    # Surplus fields would become row names and shift every column; with index_col=False they are at least warned of.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        content, separator = io.StringIO(text.text), _SPACES if text.separator == WHITESPACE else text.separator
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
            rows = _rows(text.text.splitlines(), text.separator)
            (_, first), *below = [(line, len(row)) for line, row in enumerate(rows, start=1)] or [(0, 0)]
            if longer := next((f"line {line} has {cells}" for line, cells in below if cells > first), None):
                accepted += f" below one line of names; the first line has {first}, and {longer}"
            raise InputError(f"{text.path} is no CSV table ({first_line(error)}): {accepted}") from error
    frame.columns = [str(column).strip() for column in frame.columns]
    return frame


def column_names(path: Path, options: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns of a table.

    Parameters
    ----------
    path, options
        The table, and how it is read, as in `TableSettings`: encoding, separator, skip-lines, sheet.

    Raises
    ------
    InputError
        If the file cannot be read, or other lines stand above the line of names.
    """
    written = (options.get("encoding"), options.get("separator"))
    text = read_table_text(path, *written, skip_lines=options.get("skip-lines") or 0, sheet=options.get("sheet"))
    _require_names(text)
    return text.header


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
    # Scores and losses are read to the last bit.
    frame = _read(text, usecols=lambda one: str(one).strip() == name, float_precision="round_trip")
    column: pd.Series[Any] = frame[name]
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
