"""What is made of a table or figure of a paper: rows of numbers, a figure, a caption, remarks and claims."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.reproductions.claims import PaperClaim
from experiments.reproductions.spent import RunCosts
from fl_audit.report.wording import number_text

COLUMNS = ("setting", "quantity", "published", "theory", "measured", "low", "high", "repetitions", "note")
"""Columns of the CSV file of every item."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class ItemRow:
    """One number of the paper, and what theory and our own runs say of it."""

    setting: str  # the setting that was run or computed
    quantity: str  # name of the number
    published: float = math.nan  # the number as printed or read off a figure; NaN if there is none
    # The number by the law of the insider's log-odds or by a closed form; NaN if there is neither.
    theory: float = math.nan
    measured: float = math.nan  # the number as measured; NaN if nothing was measured
    # `low`, `high`: 95 % interval of the measured number, unless the note says that it is another interval; NaN if
    # there is none.
    low: float = math.nan
    high: float = math.nan
    repetitions: int = 0  # number of worlds or of simulated games; 0 if nothing is random
    note: str = ""  # what the numbers rest on


def table(rows: Iterable[ItemRow]) -> pd.DataFrame:
    """Return rows as a table with the columns of the CSV file."""
    return pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS))


@dataclass(frozen=True)
class ItemResult:
    """A reproduced table or figure."""

    frame: pd.DataFrame  # its rows, see `table`
    figure: Figure  # the picture, arranged as in the paper
    caption: str  # what the picture shows
    remarks: tuple[str, ...] = ()  # why our numbers differ, or may differ, from the printed ones
    shown_rows: int = 60  # how many rows the page shows; the CSV file holds all of them
    played: str = ""  # what was trained or simulated for it; empty if the page says so elsewhere
    data: tuple[str, ...] = ()  # the data sets that it shows; empty if the page says so elsewhere
    # What it shows where that is a known departure from theory, which is then not counted as missed; else empty.
    finding: str = ""
    claims: tuple[PaperClaim, ...] = ()  # what the paper says in words, held against the numbers
    spent: RunCosts = field(default_factory=RunCosts)  # the runs behind it, and how long they took

    @property
    def differences(self) -> tuple[str, ...]:
        """One line for every published number outside our interval."""
        return self._outside("published", "in print")

    @property
    def theory_misses(self) -> tuple[str, ...]:
        """One line for every number of theory outside our interval."""
        return self._outside("theory", "by theory")

    def _outside(self, column: str, said: str) -> tuple[str, ...]:
        frame = self.frame
        outside = frame[(frame[column] < frame["low"]) | (frame[column] > frame["high"])]
        return tuple(
            f"{row.setting}: {row.quantity} is {getattr(row, column):.4g} {said}, here {row.measured:.4g} "
            f"({row.low:.4g} to {row.high:.4g})"
            for row in outside.itertuples()
        )

    @property
    def held_against_theory(self) -> int:
        """Number of intervals of ours beside which theory says a number."""
        return self._beside("theory")

    @property
    def computed(self) -> tuple[int, int]:
        """Printed numbers that are computed here and not measured, and how many agree in all printed digits."""
        rows = self._computed_rows
        return len(rows), len(rows) - len(self.computed_differences)

    @property
    def _computed_rows(self) -> pd.DataFrame:
        frame = self.frame
        return frame[frame["published"].notna() & frame["theory"].notna() & frame["low"].isna()]

    @property
    def computed_differences(self) -> tuple[str, ...]:
        """One line for every printed number that theory gives another digit of."""
        rows = self._computed_rows
        names = zip(rows["setting"], rows["quantity"], strict=True)
        pairs = rows[["theory", "published"]].to_numpy(dtype=np.float64)
        return tuple(
            f"{setting}: {quantity} is {_in_full(printed)} in print, {_in_full(computed)} by theory"
            for (setting, quantity), (computed, printed) in zip(names, pairs, strict=True)
            if not _agrees(float(computed), float(printed))
        )

    @property
    def compared(self) -> int:
        """Number of published numbers for which we have an interval."""
        return self._beside("published")

    def _beside(self, column: str) -> int:
        return int(np.isfinite(self.frame[[column, "low", "high"]].to_numpy(dtype=np.float64)).all(axis=1).sum())


def _in_full(number: float) -> str:
    """Return a number with the digits in which two that print alike may differ."""
    return number_text(float(number), 6)


def _agrees(computed: float, printed: float) -> bool:
    """Whether a number rounds to a printed one."""
    decimals = len(np.format_float_positional(printed, trim="-").partition(".")[2])
    return bool(abs(computed - printed) <= 0.5 * 10.0**-decimals * (1 + 1e-9))
