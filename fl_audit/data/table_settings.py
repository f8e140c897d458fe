"""Define the settings of the configuration that say how the file and the columns of a table are read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fl_audit.data.data_files import resolve
from fl_audit.data.data_setting_enums import IMPUTE, Task
from fl_audit.data.texts import TextSettings, require_one_tokenization
from fl_audit.data.written_numbers import DECIMAL_MARKS
from fl_audit.errors import Remedy, require

_MOST_WORDS, _MOST_NUMBERS = 100, 20  # words of a column, and numbers that are classes, unless the user says otherwise
WHITESPACE = "whitespace"
"""Separator of tables whose cells are separated by any number of spaces and tabs."""
_SEPARATOR_WORDS = {" ": WHITESPACE, "\\t": "\t", "tab": "\t"}  # as they are written on command lines
_USUAL = {"encoding": ("utf-8", "utf-8-sig"), "separator": (",",), "decimal": (".",)}  # usual ways to write tables


@dataclass(frozen=True)
class TableSettings:
    """Settings by which a table is read: its file format, the roles of its columns, missing values.

    Raises `InputError` if a separator or a decimal mark is not accepted, or if settings contradict each other.
    """

    label: str  # name of the label column: whole numbers or words, or with `task` REGRESSION any numbers
    task: Task = Task.CLASSIFICATION  # whether the label is a class or a quantity
    drop: tuple[str, ...] = ()  # names of columns that are left out
    separator: str | None = None  # the character between cells, or `WHITESPACE`; None detects it
    # Words that stand for a missing value, beside empty cells: records with a missing value are left out. Other words,
    # also NA and null, are what they are. None: a missing value is refused.
    missing: tuple[str, ...] | None = None
    imputes: bool = False  # whether missing values are filled, instead of records left out; `missing` is then empty
    # Largest number of different words in a column, and of classes; None: see `most_words` and `most_numbers`.
    max_levels: int | None = None
    # Name of the column that says whose each record is: whole numbers or words. It becomes no feature. None: unknown.
    owner: str | None = None
    # Name of the column that says whom each record is about: whole numbers or words. It becomes no feature. It may be
    # the owner column. None: unknown.
    user: str | None = None
    decimal: str | None = None  # decimal mark, point or comma; the other may separate thousands. None detects it
    encoding: str | None = None  # encoding of the file, as Python names it; None detects it
    ignore_case: bool = False  # whether words that differ by case or spaces only are one
    unique: bool = False  # whether records that repeat another one in every column are left out
    skip_lines: int = 0  # lines above the line of names, such as a title, that are left out
    sheet: str | None = None  # name of the sheet of a workbook; None if only one sheet is not empty
    # Name of the column of text that is the only feature of a record. None: all columns are features.
    text: str | None = None
    vocabulary: str | None = None  # path of a public file with one token on each line
    tokenizer: str | None = None  # name of the user's tokenizer, `package.module:function`
    tokens: int | None = None  # number of tokens of every record; None is 128

    def __post_init__(self) -> None:
        mark = _SEPARATOR_WORDS.get(self.separator or "", self.separator)
        object.__setattr__(self, "separator", mark)
        plain = mark is None or (len(mark) == 1 and mark.isprintable() and mark not in "\"' ")
        accepted = f"accepted is one character, such as ',' or ';', the tab '\\t', or '{WHITESPACE}'"
        require(plain or mark in ("\t", WHITESPACE), f"separator is {mark!r}: {accepted}")
        is_mark = self.decimal is None or self.decimal in DECIMAL_MARKS
        require(is_mark, f"decimal is {self.decimal!r}: accepted are '.' and ','")
        for role in ("owner", "user"):
            name = getattr(self, role)
            require(name not in self.drop, f"drop names {name!r}, the {role} column: accepted are other columns")
        if self.text is None:
            for key in ("vocabulary", "tokenizer", "tokens"):
                value = getattr(self, key)
                alone = f"{key} is {value!r} in [data], and no column of text is named"
                require(value is None, f"{alone}: accepted is it with text, the name of that column")
            return
        require(self.text not in self.drop, f"drop names {self.text!r}, the text column: accepted are other columns")
        for role in ("label", "owner", "user"):
            same = f"text is {self.text!r}, the {role} column: accepted are other columns"
            require(getattr(self, role) != self.text, same)
        require_one_tokenization(self.text, self.vocabulary, self.tokenizer, self.tokens)

    @property
    def unusual(self) -> tuple[Remedy, ...]:
        """Settings of encoding, separator and decimal mark that differ from UTF-8, comma and point."""
        values_found = {key: getattr(self, key) for key in _USUAL}
        return tuple(Remedy(key, value) for key, value in values_found.items() if value not in (None, *_USUAL[key]))

    @property
    def kept(self) -> list[str]:
        """Names of the columns that are never dropped: the label, and owner, user and text if they are set."""
        columns_named = (self.label, self.owner, self.user, self.text)
        return [*dict.fromkeys(name for name in columns_named if name is not None)]

    @property
    def most_words(self) -> int:
        """Largest number of different words that a column, or a label of words, can have: 100 unless it is set."""
        return _MOST_WORDS if self.max_levels is None else self.max_levels

    @property
    def most_numbers(self) -> int:
        """Largest number of different whole numbers that are taken for classes: 20 unless `max_levels` is set."""
        return _MOST_NUMBERS if self.max_levels is None else self.max_levels

    @property
    def is_regression(self) -> bool:
        """Whether the label is a quantity."""
        return self.task == Task.REGRESSION

    @property
    def of_text(self) -> TextSettings | None:
        """Settings of the column of text; None if there is no such column."""
        if self.text is None:
            return None
        vocabulary = None if self.vocabulary is None else Path(self.vocabulary)
        return TextSettings(self.text, vocabulary, self.tokenizer, self.tokens)

    def located(self, directory: Path | None) -> "TableSettings":
        """Return the settings with the absolute path of the vocabulary file; unchanged without a vocabulary.

        A relative path is searched in the working directory, and then in `directory`. Raises `InputError` if the file
        is missing.
        """
        if self.vocabulary is None:
            return self
        return replace(self, vocabulary=str(resolve(directory, self.vocabulary)))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "TableSettings":
        """Return the settings given by options with names such as "max-levels"; unknown options are ignored."""
        options_given = {name.replace("-", "_"): value for name, value in options.items()}
        if options_given.get("missing") == IMPUTE:
            options_given |= {"missing": (), "imputes": True}
        return cls(**{field.name: options_given[field.name] for field in fields(cls) if field.name in options_given})
