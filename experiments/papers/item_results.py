"""Results of a table or figure of a paper: its rows, the runs behind them, and their agreement with the paper."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fl_audit.experiments.papers.claims import PaperClaim
from fl_audit.statistics.interval_estimates import IntervalEstimate
from fl_audit.words import number_text

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
    def interval(self) -> IntervalEstimate:
        """The measured number with its interval."""
        return IntervalEstimate(self.measured, self.low, self.high)


def measured_row(
    setting: str, quantity: str, interval: IntervalEstimate, repetitions: int = 0, note: str = "", **details: float
) -> ItemRow:
    """Return the table row of a measured number."""
    return ItemRow(
        setting,
        quantity,
        measured=interval.value,
        low=interval.low,
        high=interval.high,
        repetitions=repetitions,
        note=note,
        **details,
    )


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
    procedure: str = ""  # what was trained or simulated for it; empty if the page describes it elsewhere
    data: tuple[str, ...] = ()  # the data sets that it shows; empty if the page says so elsewhere
    # Description of a known departure from theory, which is then not counted as a disagreement; else empty.
    finding: str = ""
    claims: tuple[PaperClaim, ...] = ()  # claims in the text of the paper, tested by the numbers
    spent: ItemRunProvenance = field(default_factory=ItemRunProvenance)  # the runs behind it, and how long they took

    def comparable_rows(self, column: str) -> int:
        """Return the number of rows with an interval and a number in `column`, which is "published" or "theory"."""
        return int(np.isfinite(self.frame[[column, "low", "high"]].to_numpy(dtype=np.float64)).all(axis=1).sum())

    def outside_sentences(self, column: str) -> tuple[str, ...]:
        """Return sentences on the numbers of a column that lie outside the measured intervals.

        `column` is "published" or "theory".
        """
        frame = self.frame
        source = {"published": "in print", "theory": "by theory"}[column]
        return tuple(
            f"{row.setting}: {row.quantity} is {getattr(row, column):.4g} {source}, here "
            f"{_numbers_beside(*(float(getattr(row, name)) for name in (column, 'measured', 'low', 'high')))}"
            for row in frame[(frame[column] < frame["low"]) | (frame[column] > frame["high"])].itertuples()
        )

    @property
    def computed(self) -> tuple[int, tuple[str, ...]]:
        """Number of the paper's printed values that a formula gives without any run, and sentences on differences.

        There is one sentence for each printed value that differs from the computed value.
        """
        frame = self.frame
        rows = frame[frame["published"].notna() & frame["theory"].notna() & frame["low"].isna()]
        # Six digits: two numbers that print alike may differ in them.
        lines = (
            f"{row['setting']}: {row['quantity']} is {number_text(row['published'], 6)} in print, "
            f"{number_text(row['theory'], 6)} by theory"
            for row in rows.to_dict("records")
            if not _agrees(row["theory"], row["published"])
        )
        return len(rows), tuple(lines)


def _numbers_beside(expected: float, measured: float, low: float, high: float) -> str:
    """Return a measured number and its interval as text, with four significant digits.

    More digits are written if otherwise an end of the interval, rounded, would equal `expected`.
    """
    ends = [end for end in (low, high) if end != expected]
    digits = next(digits for digits in range(4, 18) if expected not in [float(f"{end:.{digits}g}") for end in ends])
    digits_text = [f"{number:.{digits}g}" for number in (measured, low, high)]
    return f"{digits_text[0]} ({digits_text[1]} to {digits_text[2]})"


def _agrees(computed: float, printed: float) -> bool:
    """Return whether a computed number equals a printed one after rounding to the printed number's decimals."""
    decimals = len(np.format_float_positional(printed, trim="-").partition(".")[2])
    return bool(abs(computed - printed) <= 0.5 * 10.0**-decimals * (1 + 1e-9))
