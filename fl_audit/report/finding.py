"""The parts of a finding in a report: one sentence, rows with their bases, at most one figure, and a place."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from fl_audit.array_types import finite
from fl_audit.federation.findings import FindingBase, Findings, Numbers
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.notebook import Markup, exactly_html
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.formatting import Reading, UnitWords, reading_text, unit_words
from fl_audit.report.style import REPORT_WIDTH, add_legend, new_figure
from fl_audit.rounding import RoundedInterval, rounded
from fl_audit.statistics.readings import ClaimComparison, Ends, read, widened
from fl_audit.statistics.significance_levels import READING_LEVEL

N = TypeVar("N", bound=FindingBase)


@dataclass(frozen=True)
class ReportContents:
    """Everything that the report of one run is drawn from."""

    run: FinishedRun  # the finished run
    findings: Findings  # the numbers of each finding
    summary: dict[str, Any]  # the content of `summary.json`, schema 1
    sections: "tuple[Section[Any], ...]"  # the presentation of each finding, in this order
    is_violated: bool = False  # whether the verdict is `violated`, so that no number acquits by itself

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the numbers of a finding, None where the run has none."""
        return self.findings.find(kind)

    @property
    def facts(self) -> RunFacts:
        """The facts about the claim and the run."""
        return self.run.facts

    @property
    def trials(self) -> pd.DataFrame:
        """The table of trials."""
        return self.run.tables.trials

    @property
    def rounds(self) -> pd.DataFrame:
        """The table of rounds."""
        return self.run.tables.rounds

    @property
    def releases(self) -> pd.DataFrame:
        """The table of releases."""
        return self.run.tables.releases

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee, for findings that only a run with a guarantee has."""
        return self.facts.stated_guarantee

    @property
    def words(self) -> UnitWords:
        """The report's words for the unit in which the two training sets differ."""
        return unit_words(self.facts.relation)


@dataclass(frozen=True)
class Row:
    """One number of the report with its basis."""

    name: str  # name of the number, with its unit
    value: Any  # the number itself; None where it was not determined
    basis: str = ""  # the method, the accountant, and the assumptions
    low: float | None = None  # lower end of its interval; None where there is none, or no limit
    high: float | None = None  # upper end of its interval; None where there is none, or no limit
    confidence: float | None = None  # the least probability with which the interval covers; None where there is none
    limit: float | None = None  # limit of the guarantee; None without one
    is_least: bool = False  # whether the guarantee allows no less than `limit`, and not no more
    is_bound: bool = False  # whether it is a lower bound: its interval starts at it and has no upper end
    origin: float = 0.0  # value without information: 1/2 for an AUC
    largest: float = math.inf  # the largest value that it can have: 1 for a share and an advantage
    is_share: bool = False  # whether it reads best as a percentage
    digits: int = 3  # significant digits that are shown
    on_page: bool = False  # whether it stands in the table of the first page too, and in `findings` of the summary
    # Its interval at any confidence, of a lower bound the bound and infinity; None where nobody can say it: then that
    # of a normal distribution with the given interval.
    wide: Callable[[float], Ends] | None = field(default=None, repr=False, compare=False)
    level: float = READING_LEVEL  # chance with which it may be called broken though it keeps its guarantee
    is_violated: bool = False  # whether the verdict of its run is `violated`
    note: str = ""  # a note that always accompanies the number, if nothing is claimed of it

    @property
    def read(self) -> ClaimComparison | None:
        """The number's reading relative to its claim, and the interval used; None without a number or a claim."""
        if self.limit is None or self.value is None or math.isnan(self.value):
            return None
        return read(
            self._ends(self.low, self.high), self.limit, is_least=self.is_least, origin=self.origin,
            largest=self.largest, wide=self._wide(), level=self.level, sides=1 if self.is_bound else 2,
            is_violated=self.is_violated,
        )  # fmt: skip

    @property
    def reading(self) -> Reading | None:
        """The number's reading relative to its claim, in words; None without a number or a claim."""
        return None if self.read is None else self.read.reading

    @property
    def reading_text(self) -> str:
        """The reading, with the interval that decided if it is not the row's; otherwise the row's note, if any."""
        found = self.read
        return self.note if found is None else reading_text(found.reading, _wide_json(found), self.limit, self.is_share)

    @property
    def aside(self) -> str:
        """The addition to the number in a sentence: its reading, or nothing where the number keeps its claim."""
        if self.reading in (None, Reading.KEPT, Reading.ALONE):
            return ""
        return f" ({self.reading_text.replace(' (', ': ').removesuffix(')')})"

    @property
    def shown(self) -> RoundedInterval:
        """The number, its interval and its claim, rounded together."""
        return rounded(self.value, self.low, self.high, self.limit, self.is_share)

    @property
    def cells(self) -> tuple[Markup, Markup, Markup]:
        """The number and both ends of its interval as HTML, rounded together and kept in full."""
        shown = self.shown
        ends = exactly_html(self.low, shown.low), exactly_html(self.high, shown.high)
        return exactly_html(self.value, shown.value), *ends

    @property
    def text(self) -> str:
        """The number with its interval, unless that has no width, and the addition in a sentence.

        Examples
        --------
        >>> Row("Advantage", 0.29, low=0.15, high=0.4, limit=0.206).text
        '0.29 (0.15 to 0.4) (no contradiction)'
        """
        shown = self.shown
        return f"{shown.value} ({'no interval' if self.low == self.high else shown.interval}){self.aside}"

    def to_json(self) -> dict[str, Any]:
        """Return an entry of the list `findings`."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "claimed": self.limit}
        said = {"name": self.name, "is_share": self.is_share, "is_least": self.is_least, "confidence": self.confidence}
        told = said | {name: finite(value) for name, value in numbers.items()}
        told |= {"reading": self.reading, "wide": None if self.read is None else _wide_json(self.read)}
        return told | ({"note": self.note} if self.note else {})

    def _ends(self, low: float | None, high: float | None) -> Ends:
        """Return an interval with missing ends filled in: a number without any is exact, unless it is a lower bound."""
        if self.is_bound:
            return self.value, math.inf
        if low is None and high is None and self.confidence is None:
            return self.value, self.value
        return -math.inf if low is None else low, math.inf if high is None else high

    def _wide(self) -> Callable[[float], Ends] | None:
        """Return the interval at any confidence; None where the given one has no confidence."""
        if self.wide is not None:
            return self.wide
        if self.confidence is None or not 0 < self.confidence < 1:
            return None
        return widened(self.value, self._ends(self.low, self.high), self.confidence)


def _wide_json(found: ClaimComparison) -> dict[str, Any] | None:
    """Return as JSON the interval that decided; None if it is that of the row."""
    if found.wide is None:
        return None
    return {"low": finite(found.wide.low), "high": finite(found.wide.high), "confidence": found.wide.confidence}


class TableLook(StrEnum):
    """The layout of a table: numbers, pairs of name and value, or settings of a configuration."""

    NUMBERS = "numbers"
    PAIRS = "pairs"
    CONFIGURATION = "configuration"


@dataclass(frozen=True)
class Table:
    """A separate table of a section."""

    title: str  # its title
    columns: tuple[str, ...]  # names of the columns; the first names the rows
    # Cells, as many in each row as there are columns: numbers, text, or None for what was not determined.
    rows: tuple[tuple[Any, ...], ...]
    look: TableLook = TableLook.NUMBERS  # its layout


@dataclass(frozen=True)
class FindingFigure(Generic[N]):
    """The figure of a finding."""

    title: str  # its heading
    draw: Callable[[Figure, N, ReportContents], None]  # draws it into an empty figure, but for the legend
    # Describes it in at most 40 words; heading and caption can stand for the picture.
    caption: Callable[[N, ReportContents], str]
    applies: Callable[[N, ReportContents], bool] = lambda numbers, contents: True  # whether this run has what it shows
    height: float = 3.8  # in inches, without the legend

    def figure(self, numbers: N, contents: ReportContents) -> Figure:
        """Return the figure with its legend, with two labels in a line if they are short.

        Parameters
        ----------
        numbers
            The finding that the picture shows.
        contents
            Contents of the report in which the picture stands.
        """
        figure = new_figure(self.height, REPORT_WIDTH)
        self.draw(figure, numbers, contents)
        if not figure.legends and figure.axes[0].get_legend_handles_labels()[0]:
            add_legend(figure.axes[0], columns=2)
        return figure


@dataclass(frozen=True)
class Section(Generic[N]):
    """A finding in one place: the computation of its numbers from a run, and their presentation in a report."""

    name: str  # of its figure's file, and of its place on the page
    title: str  # its heading
    numbers: type[N]  # type of the numbers, by which other sections find them
    # Computes the numbers from a run and from what the sections before it have found; None where the run has none.
    measure: Callable[[FinishedRun, Findings], N | None]
    # Names of its entries at the top level of `summary.json`; None stands there where the run has no such numbers.
    keys: tuple[str, ...] = ()
    # Whether its sentence and its figure stand on the first page; rows and tables stand in the appendix.
    on_page: bool = False
    # Whether sentence, rows and figure take the claimed noise at its word, and so acquit nobody who broke it.
    trusts: bool = False
    # Its sentence; empty where it has none.
    sentence: Callable[[N, ReportContents], str] = lambda numbers, contents: ""
    # Its numbers with what each rests on.
    rows: Callable[[N, ReportContents], list[Row]] = lambda numbers, contents: []
    tables: Callable[[N, ReportContents], list[Table]] = lambda numbers, contents: []  # tables of its own
    picture: FindingFigure[N] | None = None  # its figure
    # Words that stand in `summary.json` beside its numbers, by their names.
    said: Callable[[N, FinishedRun], Mapping[str, Any]] = lambda numbers, run: {}

    def read_rows(self, numbers: N, contents: ReportContents) -> list[Row]:
        """Return the section's rows of numbers with their bases, each with its reading under the verdict of the run.

        Parameters
        ----------
        numbers
            The finding that the section shows.
        contents
            Contents of the report in which the section stands.
        """
        return [replace(row, is_violated=contents.is_violated) for row in self.rows(numbers, contents)]
