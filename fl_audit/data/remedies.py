"""The settings of [data] that fix a table or other data of a user: all of them, in one list.

Errors and warnings about data take their remedies from here, and the tests try each of them.
"""

from fl_audit.errors import Remedy


def drop(*names: str) -> Remedy:
    """Leave columns out."""
    return Remedy("drop", names)


def missing(*words: str) -> Remedy:
    """Take words for missing values, beside empty cells, and leave out the records that have one."""
    return Remedy("missing", words)


def impute() -> Remedy:
    """Fill missing values instead of leaving out their records."""
    return Remedy("missing", "impute")


def task() -> Remedy:
    """Learn the label as a quantity."""
    return Remedy("task", "regression")


def max_levels(number: int) -> Remedy:
    """Accept more different words in a column, or more classes."""
    return Remedy("max-levels", number)


def user(name: str) -> Remedy:
    """Name the column that says whom each record is about."""
    return Remedy("user", name)


def decimal(mark: str) -> Remedy:
    """Name the mark of decimals."""
    return Remedy("decimal", mark)


def encoding(name: str) -> Remedy:
    """Name the encoding of the file."""
    return Remedy("encoding", name)


def skip_lines(number: int) -> Remedy:
    """Leave out lines above the names of columns."""
    return Remedy("skip-lines", number)


def sheet(name: str) -> Remedy:
    """Name the sheet of a workbook."""
    return Remedy("sheet", name)


def unique() -> Remedy:
    """Leave out records that repeat another one in every column."""
    return Remedy("unique", True)


def ignore_case() -> Remedy:
    """Take words that differ by case or spaces only for one."""
    return Remedy("ignore-case", True)


def axes(name: str) -> Remedy:
    """Say what the axes of a record are."""
    return Remedy("axes", name)


def image_size(number: int) -> Remedy:
    """Scale all pictures to one size."""
    return Remedy("image-size", number)
