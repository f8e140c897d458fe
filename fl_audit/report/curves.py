"""Curves over rounds and releases, as several findings draw them: a median of worlds with its spread."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fl_audit.report.style import BIT_STYLES, markers_for
from fl_audit.report.theory import Floats


def quantiles_by_round(table: pd.DataFrame, column: str, levels: tuple[float, ...]) -> tuple[Floats, list[Floats]]:
    """Return the rounds of a table and, for each level, that quantile over the worlds at each round.

    Values that are not finite are left out; a round without any has NaN.
    """
    finite = table[np.isfinite(table[column].to_numpy(dtype=np.float64, na_value=np.nan))]
    by_round = finite.groupby("round")[column]
    rounds = np.sort(table["round"].unique())
    curves = [by_round.quantile(level).reindex(rounds).to_numpy(dtype=np.float64) for level in levels]
    return rounds.astype(np.float64), curves


def median_name(worlds: int) -> str:
    """Return what a median over worlds is called in a legend."""
    return "measured, the one world" if worlds == 1 else f"measured, median of {worlds:,} worlds"


def draw_median(axes: Axes, x: Floats, y: Floats, label: str) -> None:
    """Draw a measured curve, with marks on few of its points."""
    style = BIT_STYLES[1]
    axes.plot(x, y, "-", color=style.colour, linewidth=2, marker=style.marker, **markers_for(len(x)), label=label)
