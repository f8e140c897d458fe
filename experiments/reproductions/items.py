"""What a table or figure of a paper becomes: rows, a figure, a caption and remarks."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

COLUMNS = ("setting", "quantity", "published", "theory", "measured", "low", "high", "repetitions", "note")
"""Columns of the CSV file of every item."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """One number of the paper beside ours.

    Parameters
    ----------
    setting
        What was played, or computed.
    quantity
        Which number.
    published
        The number as printed or read off a figure; NaN where there is none.
    theory
        What follows from the law of the insider's log-odds or from a closed form; NaN where nothing does.
    measured
        What was measured; NaN where nothing was.
    low, high
        95 % interval of the measured number; the note says where it is another.
    repetitions
        Number of worlds, or of simulated games; 0 where nothing is random.
    note
        What the numbers rest on.
    """

    setting: str
    quantity: str
    published: float = math.nan
    theory: float = math.nan
    measured: float = math.nan
    low: float = math.nan
    high: float = math.nan
    repetitions: int = 0
    note: str = ""


def table(rows: Iterable[Row]) -> pd.DataFrame:
    """Return rows as a table with the columns of the CSV file."""
    return pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS))


@dataclass(frozen=True)
class ItemResult:
    """A table or figure as ours.

    Parameters
    ----------
    frame
        Rows, see `table`.
    figure
        The picture, in the paper's arrangement.
    caption
        What the picture shows.
    remarks
        Why ours differs, or may differ, from what is printed.
    shown_rows
        How many rows the page shows; all stand in the CSV file.
    played
        What was played or simulated for it, where nothing else says so.
    data
        The data sets that it shows, where nothing else says so.
    """

    frame: pd.DataFrame
    figure: Figure
    caption: str
    remarks: tuple[str, ...] = ()
    shown_rows: int = 60
    played: str = ""
    data: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[str, ...]:
        """One line for every published number outside our interval."""
        frame = self.frame
        outside = frame[(frame["published"] < frame["low"]) | (frame["published"] > frame["high"])]
        return tuple(
            f"{row.setting}: {row.quantity} is {row.published:.4g} in print, here {row.measured:.4g} "
            f"({row.low:.4g} to {row.high:.4g})"
            for row in outside.itertuples()
        )

    @property
    def compared(self) -> int:
        """How many published numbers have an interval of ours beside them."""
        frame = self.frame
        return int(np.sum(np.isfinite(frame["published"]) & np.isfinite(frame["low"]) & np.isfinite(frame["high"])))
