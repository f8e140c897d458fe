"""What a finding gives to a report: numbers, pictures with captions, sentences, entries of tables, terminal lines."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from matplotlib.figure import Figure

from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun, RunFacts
from fl_audit.report.wording import DASH


class Findable(Protocol):
    """The numbers of a finding: a frozen dataclass that can say itself in JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the entries of `summary.json` by their names at its top level."""
        ...


N = TypeVar("N", bound=Findable)


@dataclass(frozen=True)
class Caption:
    """The words around one figure: a heading, an explanation and a text that can stand for the picture."""

    title: str
    text: str
    alternative: str


@dataclass(frozen=True)
class Entry:
    """One number of the report and what it rests on.

    Parameters
    ----------
    name
        What the number is, with its unit.
    value
        The number itself; None where it was not determined.
    accountant
        Who accounts for it, or a dash.
    confidence
        The confidence it comes with, or why it has none.
    method
        How it was found.
    assumption
        What it rests on.
    is_share
        Whether it reads best as a percentage.
    """

    name: str
    value: Any
    accountant: str = DASH
    confidence: str = DASH
    method: str = DASH
    assumption: str = DASH
    is_share: bool = False


class Place(Enum):
    """Under which heading of the page a table stands."""

    TESTS = auto()
    NUMBERS = auto()
    CONFIGURATION = auto()


@dataclass(frozen=True)
class Table:
    """A table of its own.

    Parameters
    ----------
    title
        What it shows.
    columns
        Names of the columns; the first names the rows.
    rows
        Cells, as many in each row as there are columns: numbers, text, or None for what was not determined.
    place
        Under which heading it stands.
    look
        Class of the style sheet.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    place: Place = Place.NUMBERS
    look: str = "short"


@dataclass(frozen=True)
class Picture(Generic[N]):
    """One figure of a finding.

    Parameters
    ----------
    name
        File name without `.png`.
    draw
        Draws it.
    caption
        Describes it.
    applies
        Whether this run has what it shows.
    """

    name: str
    draw: Callable[[N, RunContents], Figure]
    caption: Callable[[N, RunContents], Caption]
    applies: Callable[[N, RunContents], bool] = lambda numbers, contents: True


@dataclass(frozen=True)
class Section(Generic[N]):
    """A finding in its one home: how its numbers follow from a run, and how a report shows them.

    Parameters
    ----------
    numbers
        Type of the numbers, by which other sections find them.
    keys
        Names of its entries at the top level of `summary.json`; None stands there where the run has no such numbers.
    measure
        Computes the numbers from a run and from what the sections before it have found; None where the run has none.
    heading
        Above its entries in the table of all numbers.
    entries
        Its numbers with what each rests on.
    tables
        Tables of its own.
    pictures
        Its figures.
    sentence
        What it adds to the opening paragraph.
    closing
        What it adds to the end of the opening paragraph.
    console
        Its lines on the terminal: names and findings.
    unmeasured
        Names of lines on the terminal that say so where the run has no such numbers.
    belongs
        Whether a run of this kind could have such numbers at all.
    """

    numbers: type[N]
    keys: tuple[str, ...]
    measure: Callable[[FinishedRun, Findings], N | None]
    heading: str = ""
    entries: Callable[[N, RunContents], list[Entry]] | None = None
    tables: Callable[[N, RunContents], list[Table]] | None = None
    pictures: tuple[Picture[N], ...] = ()
    sentence: Callable[[N, RunContents], str] | None = None
    closing: Callable[[N, RunContents], str] | None = None
    console: Callable[[N, RunContents], list[tuple[str, str]]] | None = None
    unmeasured: tuple[str, ...] = ()
    belongs: Callable[[RunFacts], bool] = lambda facts: True


def finite(value: float | None) -> float | None:
    """Return a number as JSON can hold it: None for what is infinite or not a number."""
    return value if value is not None and math.isfinite(value) else None
