"""Recognise files of other formats than CSV by their first bytes, and say how to turn them into a table."""

import zipfile
from dataclasses import dataclass
from io import BytesIO

from fl_audit.errors import require

WORKBOOK = "an Excel workbook"
PARQUET = "a Parquet file"
_WORD = 6
_AS_CSV = "save it as CSV (UTF-8)"
_UNPACK = "unpack it, and give the file inside"


@dataclass(frozen=True)
class _FileFormat:
    said: str  # description of the format
    begins: tuple[bytes, ...]  # magic bytes, any of which a file of the format begins with
    remedy: str  # advice on the file

    def is_kind_of(self, content: bytes) -> bool:
        """Return True if a file's content begins with magic bytes of this format.

        Short ASCII magic bytes could also be the start of a CSV file's column name. These bytes count only if the
        content also has a zero byte, which text does not have.
        """
        beginning = next((begin for begin in self.begins if content.startswith(begin)), None)
        return beginning is not None and (len(beginning) > _WORD or not beginning.isascii() or b"\0" in content)


def _pandas(reader: str) -> str:
    return f'save it as CSV, by `pandas.{reader}(FILE).to_csv("table.csv", index=False)`'


_KINDS = (
    _FileFormat(PARQUET, (b"PAR1",), "it is read as a table"),
    _FileFormat(
        "a NumPy array (.npy)", (b"\x93NUMPY",), "save it with its labels by numpy.savez as .npz, with x and y"
    ),
    _FileFormat("an Arrow or Feather file", (b"ARROW1", b"FEA1"), _pandas("read_feather")),
    _FileFormat("an ORC file", (b"ORC",), _pandas("read_orc")),
    _FileFormat(
        "a Stata file",
        (b"<stata_dta>", *(bytes((n, order, 1)) for n in range(110, 116) for order in (1, 2))),
        _pandas("read_stata"),
    ),
    _FileFormat("an SPSS file", (b"$FL2", b"$FL3"), f"{_pandas('read_spss')} with the package pyreadstat"),
    _FileFormat("a SAS file", (b"\0" * 12 + b"\xc2\xea\x81\x60", b"HEADER RECORD*******LIB"), _pandas("read_sas")),
    _FileFormat(
        "an R data file",
        (b"RDX2\n", b"RDX3\n", b"RDA2\n", b"RDA3\n", b"X\n\0\0\0"),
        'save it as CSV in R, by `write.csv(x, "table.csv", row.names = FALSE)`',
    ),
    _FileFormat("a MATLAB file", (b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file"), "save it as CSV, by writetable"),
    _FileFormat(
        "an HDF5 file", (b"\x89HDF\r\n\x1a\n",), f"save the table inside as CSV, as {_pandas('read_hdf')[16:]}"
    ),
    _FileFormat(
        "an SQLite database",
        (b"SQLite format 3\0",),
        'save a table of it as CSV, by `sqlite3 -header -csv FILE "select * from TABLE" > table.csv`',
    ),
    _FileFormat("an Access database", (b"\0\x01\0\0Standard ",), "export a table of it as CSV (UTF-8)"),
    _FileFormat(
        "a pickle of Python objects",
        tuple(bytes((0x80, version)) for version in range(2, 6)),
        "loading it would run code of whoever wrote it, so ask for a CSV or Parquet file",
    ),
    _FileFormat("an Avro file", (b"Obj\x01",), _AS_CSV),
    _FileFormat("a tar archive", (), _UNPACK),
    _FileFormat("a zip archive", (b"PK\x03\x04", b"PK\x05\x06"), _UNPACK),
    _FileFormat("a 7z archive", (b"7z\xbc\xaf\x27\x1c",), _UNPACK),
    _FileFormat("a RAR archive", (b"Rar!\x1a\x07",), _UNPACK),
    _FileFormat("compressed by bzip2", tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)), _UNPACK),
    _FileFormat("compressed by xz", (b"\xfd7zXZ\0",), _UNPACK),
    _FileFormat("compressed by zstd", (b"\x28\xb5\x2f\xfd",), _UNPACK),
    _FileFormat("a PDF document", (b"%PDF-1.", b"%PDF-2."), "a table in it has to be copied into a CSV file"),
    _FileFormat("a rich text document", (b"{\\rtf1\\ansi",), _AS_CSV),
    _FileFormat(
        "a picture",
        (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*"),
        "pictures are read from a folder with a folder for each class",
    ),
)
_TAR = slice(257, 262)
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MARKUP = (("a web page", (b"<!doctype html", b"<html", b"<table", b"<head", b"<body")), ("an XML file", (b"<?xml",)))
_BEGINNING = 512
_MIME_TYPE = 60


def file_format_phrase(content: bytes) -> str | None:
    """Return the format of a file as a phrase, such as "a Parquet file"; None for CSV and unknown formats.

    Parameters
    ----------
    content
        Whole content of the file, not gzipped.

    Examples
    --------
    >>> file_format_phrase(b"PAR1\\0..."), file_format_phrase(b"PAR1,y")
    ('a Parquet file', None)
    """
    format_found = _of(content)
    return None if format_found is None else format_found.said


def require_text(content: bytes, path: object) -> None:
    """Raise `InputError` with advice if the content of a file has a known format other than CSV."""
    kind = _of(content)
    require(kind is None, f"{path} is {kind and kind.said}: accepted are {TABLES}; {kind and kind.remedy}")


TABLES = "tables as text (CSV), Excel workbooks and Parquet files"


def _of(content: bytes) -> _FileFormat | None:
    if content.startswith(b"PK\x03\x04"):
        return _of_zip(content)
    if content.startswith(_OLD_OFFICE):
        # Documents of other programs of that time begin alike; their streams have names.
        is_workbook = any(name.encode("utf-16-le") in content for name in ("Workbook", "Book"))
        return _FileFormat(WORKBOOK if is_workbook else "an old document of Microsoft Office", (), _AS_CSV)
    if content[_TAR] == b"ustar":
        return _FileFormat("a tar archive", (), _UNPACK)
    beginning = content[:_BEGINNING].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for description, begins in _MARKUP:
        if beginning.startswith(begins):
            return _FileFormat(description, (), "the table itself has to be saved as CSV (UTF-8)")
    if beginning.startswith((b'{"', b"[{", b"[[", b"{\n", b"[\n", b"{\r\n", b"[\r\n")):
        return _FileFormat("a JSON file", (), _pandas("read_json"))
    return next((kind for kind in _KINDS if kind.is_kind_of(content)), None)


def _of_zip(content: bytes) -> _FileFormat:
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            names = archive.namelist()
            kind = archive.open("mimetype").read(_MIME_TYPE) if "mimetype" in names else b""
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError, ValueError):
        return _FileFormat("a damaged zip archive", (), _UNPACK)
    if any(name.startswith("xl/") for name in names) or b"opendocument.spreadsheet" in kind:
        return _FileFormat(WORKBOOK, (), _AS_CSV)
    if names and all(name.endswith(".npy") for name in names):
        return _FileFormat("a NumPy archive", (), "name it .npz, and it is read as such")
    if "[Content_Types].xml" in names or kind:
        return _FileFormat("an office document", (), _AS_CSV)
    return _FileFormat("a zip archive", (), _UNPACK)
