"""How a report shows a finding: one sentence, rows with what each rests on, at most one figure, a place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Generic, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from fl_audit.evidence.findings.found import Findable, Findings, Numbers, finite
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.report.units import UnitWords, unit_words

N = TypeVar("N", bound=Findable)


@dataclass(frozen=True)
class RunContents:
    """Everything that the report of one run is drawn from.

    Parameters
    ----------
    run
        The finished run.
    findings
        The numbers of each finding.
    summary
        The content of `summary.json`, schema 1.
    """

    run: FinishedRun
    findings: Findings
    summary: dict[str, Any]

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the numbers of a finding, None where the run has none."""
        return self.findings.find(kind)

    @property
    def facts(self) -> RunFacts:
        """What was promised and played."""
        return self.run.facts

    @property
    def worlds(self) -> pd.DataFrame:
        """The table of worlds."""
        return self.run.tables.worlds

    @property
    def rounds(self) -> pd.DataFrame:
        """The table of rounds."""
        return self.run.tables.rounds

    @property
    def releases(self) -> pd.DataFrame:
        """The table of releases."""
        return self.run.tables.releases

    @property
    def words(self) -> UnitWords:
        """How the report speaks of what the two training sets differ in."""
        return unit_words(self.facts.relation)


class Reading(StrEnum):
    """How a measured number stands to what was promised: the one table of such words."""

    WITHIN = "as promised"
    BY_CHANCE = "not as promised, within chance"
    BEYOND = "not as promised, beyond chance"


@dataclass(frozen=True)
class Row:
    """One number of the report and what it rests on.

    Parameters
    ----------
    name
        What the number is, with its unit.
    value
        The number itself; None where it was not determined.
    basis
        How it was found, by whom it is accounted for, what it assumes.
    low, high, confidence
        Its interval, and the least probability with which that covers; None where there is none.
    limit
        What the promise allows; None where the promise says nothing of it.
    is_least
        Whether the promise allows no less than `limit`, and not no more.
    is_share
        Whether it reads best as a percentage.
    digits
        Significant digits that are shown.
    on_page
        Whether it stands in the table of the first page too, and in `findings` of the summary.
    """

    name: str
    value: Any
    basis: str = ""
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    limit: float | None = None
    is_least: bool = False
    is_share: bool = False
    digits: int = 3
    on_page: bool = False

    @property
    def reading(self) -> Reading | None:
        """How the number stands to what is promised; None where one of them is missing."""
        if self.limit is None or self.value is None:
            return None
        sign = -1.0 if self.is_least else 1.0
        if sign * (self.value - self.limit) <= 0:
            return Reading.WITHIN
        nearest = self.high if self.is_least else self.low
        by_chance = nearest is not None and sign * (nearest - self.limit) <= 0
        return Reading.BY_CHANCE if by_chance else Reading.BEYOND

    def to_json(self) -> dict[str, Any]:
        """Return an entry of the list `findings`."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "promised": self.limit}
        said = {"name": self.name, "is_share": self.is_share, "confidence": self.confidence}
        return said | {name: finite(value) for name, value in numbers.items()} | {"reading": self.reading}


class Look(StrEnum):
    """How a table is set: as numbers, as pairs of name and value, or as settings of a configuration."""

    NUMBERS = "numbers"
    PAIRS = "pairs"
    CONFIGURATION = "configuration"


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
    look
        How it is set.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    look: Look = Look.NUMBERS


@dataclass(frozen=True)
class Picture(Generic[N]):
    """The figure of a finding.

    Parameters
    ----------
    title
        Its heading.
    draw
        Draws it.
    caption
        Describes it in at most 40 words; heading and caption can stand for the picture.
    applies
        Whether this run has what it shows.
    """

    title: str
    draw: Callable[[N, RunContents], Figure]
    caption: Callable[[N, RunContents], str]
    applies: Callable[[N, RunContents], bool] = lambda numbers, contents: True


class Place(Enum):
    """Where the sentence and the figure of a finding stand; its rows and tables stand in the appendix."""

    PAGE = auto()
    APPENDIX = auto()


@dataclass(frozen=True)
class Section(Generic[N]):
    """A finding in its one home: how its numbers follow from a run, and how a report shows them.

    Parameters
    ----------
    name
        Of its figure's file, and of its place on the page.
    title
        Its heading.
    numbers
        Type of the numbers, by which other sections find them.
    measure
        Computes the numbers from a run and from what the sections before it have found; None where the run has none.
    keys
        Names of its entries at the top level of `summary.json`; None stands there where the run has no such numbers.
    place
        Where its sentence and figure stand.
    trusts
        Whether sentence, rows and figure take the claimed noise at its word, and so acquit nobody who broke it.
    sentence
        What it says in words; empty where it has nothing to say.
    rows
        Its numbers with what each rests on.
    tables
        Tables of its own.
    picture
        Its figure.
    console
        Its lines on the terminal: names and findings.
    said
        Words that stand in `summary.json` beside its numbers, by their names.
    belongs
        Whether a run of this kind could have such numbers at all; the terminal then says that they were not measured.
    """

    name: str
    title: str
    numbers: type[N]
    measure: Callable[[FinishedRun, Findings], N | None]
    keys: tuple[str, ...] = ()
    place: Place = Place.APPENDIX
    trusts: bool = False
    sentence: Callable[[N, RunContents], str] | None = None
    rows: Callable[[N, RunContents], list[Row]] | None = None
    tables: Callable[[N, RunContents], list[Table]] | None = None
    picture: Picture[N] | None = None
    console: Callable[[N, RunContents], list[tuple[str, str]]] | None = None
    said: Callable[[N, FinishedRun], Mapping[str, Any]] | None = None
    belongs: Callable[[RunFacts], bool] = field(default=lambda facts: False)
