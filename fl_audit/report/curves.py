"""Curves over rounds and releases, as several findings draw them: a median of worlds with its spread."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fl_audit.arrays import Floats
from fl_audit.report.style import BIT_STYLES, MUTED, PALE, draw_band, markers_for


def quantiles_by_round(table: pd.DataFrame, column: str, levels: tuple[float, ...]) -> tuple[Floats, list[Floats]]:
    """Return the rounds of a table and, for each level, that quantile over the worlds at each round.

    Values that are not finite are left out; a round without any has NaN.

    Parameters
    ----------
    table
        With the columns `round` and `column`, a row for each world and round.
    column
        The column whose quantiles are wanted.
    levels
        Which quantiles, each from 0 to 1.
    """
    finite = table[np.isfinite(table[column].to_numpy(dtype=np.float64, na_value=np.nan))]
    by_round = finite.groupby("round")[column]
    rounds = np.sort(table["round"].unique())
    curves = [by_round.quantile(level).reindex(rounds).to_numpy(dtype=np.float64) for level in levels]
    return rounds.astype(np.float64), curves


def draw_spread(axes: Axes, table: pd.DataFrame, column: str, scale: float = 1.0) -> Floats:
    """Draw the median of the worlds with the range of all and, darker, of the middle half; return the median.

    Parameters
    ----------
    axes
        Where to draw.
    table
        With the columns `round`, `world` and `column`, a row for each world and round.
    column
        The column to draw.
    scale
        What its values are multiplied with.
    """
    rounds, curves = quantiles_by_round(table, column, (0, 0.25, 0.5, 0.75, 1))
    lowest, lower, middle, upper, highest = (scale * curve for curve in curves)
    worlds, style = table["world"].nunique(), BIT_STYLES[1]
    if worlds > 1:
        draw_band(axes, rounds, lowest, highest, facecolor=PALE, edgecolor=MUTED, linewidth=0.6,
                  label="smallest to largest world")  # fmt: skip
        draw_band(axes, rounds, lower, upper, facecolor=style.fill, edgecolor=style.colour, linewidth=0.6, alpha=0.7,
                  label="middle half of the worlds")  # fmt: skip
    label = "measured, the one world" if worlds == 1 else f"measured, median of {worlds:,} worlds"
    axes.plot(rounds, middle, "-", color=style.colour, linewidth=2, marker=style.marker, **markers_for(len(rounds)),
              label=label)  # fmt: skip
    return np.asarray(middle, dtype=np.float64)
