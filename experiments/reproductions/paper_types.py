"""Types of reproductions: a paper, its tables and figures (called items), and their results."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fl_audit.errors import InputError
from fl_audit.experiments.reproductions.claims import PaperClaim
from fl_audit.experiments.runs.progress import RunsProgress, no_runs_progress
from fl_audit.experiments.runs.ray_engine import Engine
from fl_audit.report.formatting import number_text
from fl_audit.statistics.interval_estimates import IntervalEstimate

COLUMNS = ("setting", "quantity", "published", "theory", "measured", "low", "high", "repetitions", "note")
"""Columns of the CSV file of every item."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class ItemRow:
    """A row of a reproduced table: one number as published, by theory, and as measured here."""

    setting: str  # the setting that was run or computed
    quantity: str  # name of the number
    published: float = math.nan  # the number as printed or read off a figure; NaN if there is none
    # The number by the distribution of the insider's log-odds or by a closed form; NaN if there is neither.
    theory: float = math.nan
    measured: float = math.nan  # the number as measured; NaN if nothing was measured
    # Lower end of the 95 % interval of the measured number, or of the interval in the note; NaN if there is none.
    low: float = math.nan
    high: float = math.nan  # upper end of the same interval; NaN if there is none
    repetitions: int = 0  # number of trials, also of simulated ones; 0 if nothing is random
    note: str = ""  # basis of the numbers

    @property
    def found(self) -> IntervalEstimate:
        """The measured number with its interval."""
        return IntervalEstimate(self.measured, self.low, self.high)


def measured_row(
    setting: str, quantity: str, found: IntervalEstimate, repetitions: int = 0, note: str = "", **more: float
) -> ItemRow:
    """Return the table row of a measured number.

    Parameters
    ----------
    setting
        Setting that was run.
    quantity
        Name of the number.
    repetitions
        Number of trials, also of simulated ones; 0 if nothing is random.
    note
        Remark on the number.
    found
        The measured number with its interval.
    **more
        `published` and `theory`; without them these are NaN.
    """
    return ItemRow(setting, quantity, measured=found.value, low=found.low, high=found.high, repetitions=repetitions,
                   note=note, **more)  # fmt: skip


def table(rows: Iterable[ItemRow]) -> pd.DataFrame:
    """Return rows as a table with the columns of the CSV file, one column for each field of `ItemRow`."""
    return pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS))


@dataclass(frozen=True)
class ItemRunProvenance:
    """Number of trials, duration and software versions of the runs behind a table or figure."""

    trials: int = 0  # trials of all runs together
    minutes: float = 0.0  # sum of the durations of all runs; NaN if one was not timed
    commits: tuple[str, ...] = ()  # commits of the software that carried them out, sorted


@dataclass(frozen=True)
class ItemResult:
    """A reproduced table or figure, with its remarks and claims."""

    frame: pd.DataFrame  # its rows, see `table`
    figure: Figure  # the figure, arranged as in the paper
    caption: str  # description of the image
    remarks: tuple[str, ...] = ()  # reasons why our numbers differ, or may differ, from the printed ones
    shown_rows: int = 60  # number of rows on the page; the CSV file holds all of them
    played: str = ""  # what was trained or simulated for it; empty if the page describes it elsewhere
    data: tuple[str, ...] = ()  # the data sets that it shows; empty if the page says so elsewhere
    # Description of a known departure from theory, which is then not counted as a disagreement; else empty.
    finding: str = ""
    claims: tuple[PaperClaim, ...] = ()  # claims in the text of the paper, tested by the numbers
    spent: ItemRunProvenance = field(default_factory=ItemRunProvenance)  # the runs behind it, and how long they took

    def beside(self, column: str) -> int:
        """Return the number of rows with an interval and a number in `column`, which is "published" or "theory"."""
        return int(np.isfinite(self.frame[[column, "low", "high"]].to_numpy(dtype=np.float64)).all(axis=1).sum())

    def outside(self, column: str) -> tuple[str, ...]:
        """Return a sentence on each number in `column` ("published" or "theory") outside the measured interval."""
        frame, said = self.frame, {"published": "in print", "theory": "by theory"}[column]
        return tuple(
            f"{row.setting}: {row.quantity} is {getattr(row, column):.4g} {said}, here {row.measured:.4g} "
            f"({row.low:.4g} to {row.high:.4g})"
            for row in frame[(frame[column] < frame["low"]) | (frame[column] > frame["high"])].itertuples()
        )

    @property
    def computed(self) -> tuple[int, tuple[str, ...]]:
        """Number of printed values that are computed by a formula without any run, and sentences on differences.

        There is one sentence for each printed value that differs from the computed value.
        """
        frame = self.frame
        rows = frame[frame["published"].notna() & frame["theory"].notna() & frame["low"].isna()]
        # Six digits: two numbers that print alike may differ in them.
        lines = (
            f"{one['setting']}: {one['quantity']} is {number_text(one['published'], 6)} in print, "
            f"{number_text(one['theory'], 6)} by theory"
            for one in rows.to_dict("records") if not _agrees(one["theory"], one["published"])
        )  # fmt: skip
        return len(rows), tuple(lines)


def _agrees(computed: float, printed: float) -> bool:
    """Return whether a computed number equals a printed one after rounding to the printed number's decimals."""
    decimals = len(np.format_float_positional(printed, trim="-").partition(".")[2])
    return bool(abs(computed - printed) <= 0.5 * 10.0**-decimals * (1 + 1e-9))


class ComputeExtent(StrEnum):
    """The form of a reproduction: full, sized as in the paper, or quick, with few repetitions."""

    FULL = "full"
    QUICK = "quick"


MINUTES = 65.0
"""Default time within which trials are added; a first part of everything is played in any case."""


@dataclass(frozen=True)
class ItemContext:
    """The options of a reproduction."""

    directory: Path  # directory of all files
    data_dir: Path | None = None  # data directory; None means that of the environment
    extent: ComputeExtent = ComputeExtent.FULL  # full or quick
    engine: Engine | None = None  # engine of the clients; None means in this process, or in one for every core
    progress: RunsProgress = no_runs_progress  # shows the progress of all runs together
    # Called with a line of text as soon as a data set or item is replaced or left out.
    announce: Callable[[str], None] = field(default=lambda line: None)
    minutes: float = MINUTES  # limit of time for adding trials for undecided claims, on all cores
    # Address of a running Ray cluster; None starts a Ray on this machine where one is needed.
    ray_address: str | None = None

    @property
    def runs(self) -> Path:
        """Directory of the runs; the full form cannot use runs of the quick form."""
        return self.directory / ("runs" if self.extent is ComputeExtent.FULL else f"runs-{self.extent}")


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of a paper."""

    key: str  # the last part of its name on the command line, and the name of its files
    title: str  # its number in the paper and its subject


ItemT = TypeVar("ItemT", bound=PaperItem)


@dataclass(frozen=True)
class PaperResults:
    """The results of reproducing tables and figures of one paper."""

    results: tuple[tuple[PaperItem, ItemResult], ...]  # each item that could be made, with its result
    left_out: tuple[str, ...] = ()  # a line for every item that could not be made because data are missing
    remarks: tuple[str, ...] = ()  # a line for every data set that is replaced or left out
    # Basis of the results, in a few words each, such as the data sets and the number of runs.
    basis: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # warnings to read before any number
    played: str = ""  # HTML that says what was trained or simulated
    # The paragraph with which the page opens; empty for the usual one, which counts published numbers.
    opening: str = ""


@dataclass(frozen=True)
class PublishedReproduction:
    """The results of a paper's reproduction, as published in the documentation."""

    claims: tuple[PaperClaim, ...]  # all claims, with their published numbers
    tables: Mapping[str, pd.DataFrame]  # the rows of every item, by its key

    def rows(self, item: str) -> list[ItemRow]:
        """Return the published rows of a table or figure, given its key."""
        frame = self.tables[item]
        told = frame.assign(note=frame["note"].fillna(""), repetitions=frame["repetitions"].astype(int))
        return [ItemRow(**{str(name): value for name, value in row.items()}) for row in told.to_dict("records")]


@dataclass(frozen=True)
class Paper(Generic[ItemT]):
    """A paper that can be reproduced: its items, and functions that compute them."""

    key: str  # name of the whole paper, and the first part of the name of each of its items
    heading: str  # authors and year, as in running text
    reference: str  # the full reference
    items: tuple[ItemT, ...]  # every table and figure that shows results, in the order of the paper
    # Computes the given items. Items whose data are missing are left out, and the result names them.
    make: Callable[[Sequence[ItemT], ItemContext], PaperResults]
    # Returns all settings of the paper's runs on every data set, as values for JSON.
    settings: Callable[[ComputeExtent], Any]
    # Returns the items that can be recomputed from published numbers, keyed by item; None if no item can.
    rejudge: Callable[["PublishedReproduction"], Mapping[str, ItemResult]] | None = None

    def digest(self, extent: ComputeExtent) -> str:
        """Return a hash of all settings of the full or quick form, which tells whether settings have changed."""
        text = json.dumps([COLUMNS, self.settings(extent)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def name_of(self, item: PaperItem) -> str:
        """Return the name of a table or figure on the command line."""
        return f"{self.key}-{item.key}"


class NoDataError(InputError):
    """Raised if a data set that a table or figure needs is missing; tables and figures without it can still be made."""
