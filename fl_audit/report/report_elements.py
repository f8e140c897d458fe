"""Presentation of a finding (the numbers of one analysis) in reports: sentence, rows, tables and at most one figure."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from fl_audit.array_types import finite
from fl_audit.errors import in_a_line
from fl_audit.federation.findings import FindingBase, Findings, Numbers
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.html_tables import Markup, exactly_html
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.figure_style import REPORT_WIDTH, add_legend, new_figure
from fl_audit.report.unit_words import UnitWords, unit_words
from fl_audit.statistics.claim_comparisons import (
    READING_LEVEL,
    ClaimComparison,
    Ends,
    Reading,
    compare_with_claim,
    interval_by_confidence,
    reading_text,
)
from fl_audit.words import RoundedInterval, rounded, uncapital

N = TypeVar("N", bound=FindingBase)


@dataclass(frozen=True)
class SectionError:
    """A part of a report that could not be computed, with the reason in one line."""

    part: str  # title of a section, or the name of a figure
    reason: str

    def __str__(self) -> str:
        return f"Not computed: {uncapital(self.part)}, because of an error ({self.reason}); everything else stands"

    def to_json(self) -> dict[str, str]:
        """Return the entry of the list `not_computed` in `summary.json`."""
        return {"part": self.part, "reason": self.reason}


@contextmanager
def noted_in(errors: list[SectionError], part_name: str) -> Iterator[None]:
    """Turn an error in a `with` block into a note, so that all other parts of a report are written.

    Parameters
    ----------
    errors
        The notes, to which it is added.
    part_name
        Title of the part that cannot be computed then.
    """
    try:
        yield
    except Exception as error:  # whatever goes wrong in one part concerns this part alone
        errors.append(SectionError(part_name, in_a_line(error)))


@dataclass(frozen=True)
class ReportContents:
    """Contents from which the report of one run is made: the finished run, its findings, and their presentation."""

    run: FinishedRun  # the finished run
    findings: Findings  # the numbers of each finding
    summary: dict[str, Any]  # the content of `summary.json`, schema 1
    sections: "tuple[Section[Any], ...]"  # the presentation of each finding, in this order
    is_violated: bool = False  # whether the verdict is `violated`; then no reading of a number is `kept`
    errors: tuple[SectionError, ...] = ()  # the parts that could not be computed; the verdict is not consistent then

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the run's finding of a given type; None if the run has none."""
        return self.findings.find(kind)

    @property
    def plan(self) -> RunPlan:
        """Facts about the run: its claim, its federation and its settings."""
        return self.run.plan

    @property
    def trials(self) -> pd.DataFrame:
        """The table with one row for each trial."""
        return self.run.tables.trials

    @property
    def rounds(self) -> pd.DataFrame:
        """The table with one row for each trial and round."""
        return self.run.tables.rounds

    @property
    def releases(self) -> pd.DataFrame:
        """The table with one row for each trial and evaluated release (models after a round)."""
        return self.run.tables.releases

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the run; only for runs that have one."""
        return self.plan.stated_guarantee

    @property
    def words(self) -> UnitWords:
        """The nouns and phrases with which texts name the unit in which D and D' differ."""
        return unit_words(self.plan.adjacency)

    @property
    def noise(self) -> MechanismNoise:
        """The noise of the run, from whose facts texts are made."""
        return self.plan.federation.mechanism.noise


@dataclass(frozen=True)
class ReportNumber:
    """A number of the report, with its interval, its claimed limit, and the method by which it was obtained."""

    name: str  # name of the number, with its unit
    value: Any  # the number itself; None where it was not determined
    basis: str = ""  # the method, the accountant, and the assumptions
    low: float | None = None  # lower end of the interval; None without an interval or a lower limit
    high: float | None = None  # upper end of the interval; None without an interval or an upper limit
    confidence: float | None = None  # confidence of the interval; None without an interval
    limit: float | None = None  # the claimed limit of the number; None without a claim
    is_least: bool = False  # whether `limit` is a lower limit of the number; otherwise it is an upper limit
    is_bound: bool = False  # whether the number is a lower confidence bound; its interval ranges from it to infinity
    origin: float = 0.0  # value at which the number carries no information, e.g. 1/2 for an AUC
    largest: float = math.inf  # the largest possible value, e.g. 1 for a share and an advantage
    is_share: bool = False  # whether the number is written as a percentage
    digits: int = 3  # significant digits that are shown
    on_page: bool = False  # whether the number is also in the table of the first page, and in `findings` of the summary
    # Function that returns the interval at a given confidence; for a lower bound, the bound and infinity. None derives
    # it from the given interval, as if its ends were normal quantiles.
    wide: Callable[[float], Ends] | None = field(default=None, repr=False, compare=False)
    level: float = READING_LEVEL  # largest probability with which a number that keeps its claim is called broken
    is_violated: bool = False  # whether the verdict of the run is `violated`
    note: str = ""  # a note after the number, for numbers without a claim

    @property
    def claim_comparison(self) -> ClaimComparison | None:
        """The comparison of the number with its claim; None without a number or a claim.

        The comparison consists of its result, such as `kept`, and of the interval that decided the result.
        """
        if self.limit is None or self.value is None or math.isnan(self.value):
            return None
        return compare_with_claim(
            self._ends(),
            self.limit,
            is_least=self.is_least,
            origin=self.origin,
            largest=self.largest,
            wide=self._wide(),
            level=self.level,
            sides=1 if self.is_bound else 2,
            is_violated=self.is_violated,
        )

    @property
    def reading(self) -> Reading | None:
        """The result of comparing the number with its claim, such as `kept`; None without a number or a claim."""
        return None if self.claim_comparison is None else self.claim_comparison.reading

    @property
    def reading_text(self) -> str:
        """Text that says how the number compares with its claim; without a claim, the note of the number's table row.

        If the comparison was decided by another interval than the shown one, the text states this interval too.
        """
        claim_comparison = self.claim_comparison
        return (
            self.note
            if claim_comparison is None
            else reading_text(claim_comparison.reading, _wide_json(claim_comparison), self.limit, self.is_share)
        )

    @property
    def comparison_in_brackets(self) -> str:
        """Text in brackets that states, after a number, how the number compares with its claim.

        The text is empty if the claim is kept, or if nothing is compared.
        """
        if self.reading in (None, Reading.KEPT, Reading.ALONE):
            return ""
        return f" ({self.reading_text.replace(' (', ': ').removesuffix(')')})"

    @property
    def shown(self) -> RoundedInterval:
        """The number, its interval and its claim as text, rounded to consistent digits."""
        return rounded(self.value, self.low, self.high, self.limit, self.is_share)

    @property
    def cells(self) -> tuple[Markup, Markup, Markup]:
        """The number and both ends of its interval as HTML: rounded for display, with the exact values attached."""
        interval = self.shown
        ends = exactly_html(self.low, interval.low), exactly_html(self.high, interval.high)
        return exactly_html(self.value, interval.value), *ends

    @property
    def text(self) -> str:
        """The number with its interval, and in brackets how the number compares with its claim.

        An interval of width 0 is written as "no interval". The comparison is left out if there is none, or if the claim
        is kept.

        Examples
        --------
        >>> ReportNumber("Advantage", 0.29, low=0.15, high=0.4, limit=0.206).text
        '0.29 (0.15 to 0.4) (no contradiction)'
        """
        interval = self.shown
        return (
            f"{interval.value} "
            f"({'no interval' if self.low == self.high else interval.interval}){self.comparison_in_brackets}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the row as an entry of the list `findings` in `summary.json`, with values for JSON keyed by name."""
        numbers = {"value": self.value, "low": self.low, "high": self.high, "claimed": self.limit}
        values = {
            "name": self.name,
            "is_share": self.is_share,
            "is_least": self.is_least,
            "confidence": self.confidence,
        }
        values_told = values | {name: finite(value) for name, value in numbers.items()}
        values_told |= {
            "reading": self.reading,
            "wide": None if self.claim_comparison is None else _wide_json(self.claim_comparison),
        }
        return values_told | ({"note": self.note} if self.note else {})

    def _ends(self) -> Ends:
        """Return the interval of the row, with infinity in place of a missing end.

        The interval of a bound begins at its value and has no upper end. An exact number, which has no confidence, is
        both ends of its interval.
        """
        if self.is_bound:
            return self.value, math.inf
        if self.low is None and self.high is None and self.confidence is None:
            return self.value, self.value
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def _wide(self) -> Callable[[float], Ends] | None:
        """Return the function that maps a confidence to the number's interval; None if the number has no interval."""
        if self.wide is not None:
            return self.wide
        if self.confidence is None or not 0 < self.confidence < 1:
            return None
        return interval_by_confidence(self.value, self._ends(), self.confidence)


def _wide_json(comparison: ClaimComparison) -> dict[str, Any] | None:
    """Return the interval that decided the comparison as a JSON object; None if the printed interval decided it."""
    if comparison.wide is None:
        return None
    return {
        "low": finite(comparison.wide.low),
        "high": finite(comparison.wide.high),
        "confidence": comparison.wide.confidence,
    }


class TableKind(StrEnum):
    """The layout of a table: numbers, pairs of name and value, settings of a configuration, or tests."""

    NUMBERS = "numbers"
    PAIRS = "pairs"
    CONFIGURATION = "configuration"
    TESTS = "tests"


@dataclass(frozen=True)
class Table:
    """A table of a section, in addition to its rows of numbers."""

    title: str  # title of the table
    columns: tuple[str, ...]  # names of the columns; the first column has the names of the rows
    # Cells, one for each column in every row: numbers, text, or None for a value that was not determined.
    rows: tuple[tuple[Any, ...], ...]
    look: TableKind = TableKind.NUMBERS  # layout of the table


@dataclass(frozen=True)
class FindingFigure(Generic[N]):
    """The figure of a finding: heading, caption, and the function that draws it."""

    title: str  # heading of the figure
    draw: Callable[[Figure, N, ReportContents], None]  # function that draws into an empty figure, without the legend
    # Function that returns the caption, at most 40 words; heading and caption also serve as the alternative text.
    caption: Callable[[N, ReportContents], str]
    applies: Callable[[N, ReportContents], bool] = lambda numbers, contents: True  # whether this run has the figure
    height: float = 3.8  # in inches, without the legend

    def figure(self, numbers: N, contents: ReportContents) -> Figure:
        """Return the drawn figure with its legend, which has two columns if its labels are short."""
        figure = new_figure(self.height, REPORT_WIDTH)
        self.draw(figure, numbers, contents)
        if not figure.legends and figure.axes[0].get_legend_handles_labels()[0]:
            add_legend(figure.axes[0], columns=2)
        return figure


@dataclass(frozen=True)
class Section(Generic[N]):
    """A section of the report: how one finding is computed from a run, and how it is presented."""

    name: str  # file name of the figure, and anchor of the section on the page
    title: str  # heading of the section
    numbers: type[N]  # type of the finding, by which other sections look it up
    # Computes the finding from the run and the findings of earlier sections; None if the run has no such finding.
    measure: Callable[[FinishedRun, Findings], N | None]
    # Top-level keys of the finding in `summary.json`; their values are None if the run has no such finding.
    keys: tuple[str, ...] = ()
    # Whether sentence and figure are on the first page; rows and tables are in the appendix.
    on_page: bool = False
    # Whether sentence, rows and figure assume that the claimed noise was added, so that they mean little if the verdict
    # is `violated`.
    trusts: bool = False
    # Returns the sentence of the section; "" if there is none.
    sentence: Callable[[N, ReportContents], str] = lambda numbers, contents: ""
    # Returns the rows of numbers, each with its basis.
    rows: Callable[[N, ReportContents], list[ReportNumber]] = lambda numbers, contents: []
    tables: Callable[[N, ReportContents], list[Table]] = lambda numbers, contents: []  # returns further tables
    picture: FindingFigure[N] | None = None  # the figure; None without one
    # Returns further top-level entries of `summary.json`, such as explanatory text.
    said: Callable[[N, FinishedRun], Mapping[str, Any]] = lambda numbers, run: {}

    def read_rows(self, numbers: N, contents: ReportContents) -> list[ReportNumber]:
        """Return the section's rows of numbers, each with `is_violated` set to whether the run's verdict is
        `violated`.
        """
        return [replace(row, is_violated=contents.is_violated) for row in self.rows(numbers, contents)]
