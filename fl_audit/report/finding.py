"""How a report shows a finding: one sentence, rows with what each rests on, at most one figure, a place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Generic, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from fl_audit.evidence.findings.found import Findable, Findings, Numbers, finite
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.report.reading import Reading, aside, reading_of
from fl_audit.report.style import add_legend, report_figure
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
    sections
        How each finding is shown, in this order.
    """

    run: FinishedRun
    findings: Findings
    summary: dict[str, Any]
    sections: "tuple[Section[Any], ...]"

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
    def largest_advantage(self) -> float | None:
        """The largest advantage of an insider that is promised, None without a promise."""
        promise = self.facts.guarantee
        return None if promise is None else promise.advantage_bound_exact

    @property
    def words(self) -> UnitWords:
        """How the report speaks of what the two training sets differ in."""
        return unit_words(self.facts.relation)


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
        return reading_of(self.value, self.low, self.high, self.limit, self.is_least)

    @property
    def aside(self) -> str:
        """What follows the number in a sentence: nothing but where it is not as promised."""
        return aside(self.reading)

    def to_json(self) -> dict[str, Any]:
        """Return an entry of the list `findings`."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "promised": self.limit}
        said = {"name": self.name, "is_share": self.is_share, "is_least": self.is_least, "confidence": self.confidence}
        return said | {name: finite(value) for name, value in numbers.items()} | {"reading": self.reading}


class TableLook(StrEnum):
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
    look: TableLook = TableLook.NUMBERS


@dataclass(frozen=True)
class Picture(Generic[N]):
    """The figure of a finding.

    Parameters
    ----------
    title
        Its heading.
    draw
        Draws it into an empty figure, but for the legend.
    caption
        Describes it in at most 40 words; heading and caption can stand for the picture.
    applies
        Whether this run has what it shows.
    height
        In inches, without the legend.
    """

    title: str
    draw: Callable[[Figure, N, RunContents], None]
    caption: Callable[[N, RunContents], str]
    applies: Callable[[N, RunContents], bool] = lambda numbers, contents: True
    height: float = 3.8

    def figure(self, numbers: N, contents: RunContents) -> Figure:
        """Return the figure with its legend, two labels in a line where they are short.

        Parameters
        ----------
        numbers
            What the picture shows.
        contents
            What the report is drawn from.
        """
        figure = report_figure(self.height)
        self.draw(figure, numbers, contents)
        if not figure.legends and figure.axes[0].get_legend_handles_labels()[0]:
            add_legend(figure.axes[0], columns=2)
        return figure


class PagePlace(Enum):
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
    said
        Words that stand in `summary.json` beside its numbers, by their names.
    """

    name: str
    title: str
    numbers: type[N]
    measure: Callable[[FinishedRun, Findings], N | None]
    keys: tuple[str, ...] = ()
    place: PagePlace = PagePlace.APPENDIX
    trusts: bool = False
    sentence: Callable[[N, RunContents], str] | None = None
    rows: Callable[[N, RunContents], list[Row]] | None = None
    tables: Callable[[N, RunContents], list[Table]] | None = None
    picture: Picture[N] | None = None
    said: Callable[[N, FinishedRun], Mapping[str, Any]] | None = None
