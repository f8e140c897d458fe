"""Curves over rounds and releases, as several findings draw them: a median of worlds with its spread."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fl_audit.arrays import Floats
from fl_audit.evidence.run_tables import quantiles_by_round
from fl_audit.report.style import BIT_STYLES, MUTED, PALE, draw_band, markers_for


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
