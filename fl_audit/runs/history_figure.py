"""The curves of a run over its rounds, for notebooks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_audit.errors import require
from fl_audit.report.figure_style import BIT_STYLES, finish_axes, markers_for, new_figure
from fl_audit.words import name_list

_PANEL_HEIGHT = 2.6  # in inches
_PREFIXES = ("test_", "train_")
_EPSILON = "epsilon"


def history_figure(history: pd.DataFrame, columns: Sequence[str]) -> Figure:
    """Return a figure with a panel for each column of a run's history; without columns, of each metric and epsilon.

    Raises `InputError` if the history has no such column.
    """
    known_columns = [str(column) for column in history if column != "round"]
    for column in columns:
        require(
            column in known_columns, f"the history has no column {column!r}: accepted are {name_list(known_columns)}"
        )
    metrics = [name for name in known_columns if name.startswith(_PREFIXES) or name == _EPSILON]
    columns_shown = list(columns) or [name for name in metrics if history[name].notna().any()]
    rows = (len(columns_shown) + 1) // 2
    figure = new_figure(max(_PANEL_HEIGHT * rows, 3.0))
    panels = list(figure.subplots(rows, min(2, len(columns_shown)), squeeze=False).flat)
    style = BIT_STYLES[1]
    for axes, name in zip(panels, columns_shown, strict=False):
        curve = history[["round", name]].dropna()
        values = curve[name].to_numpy(dtype=np.float64)
        axes.plot(curve["round"], values, "-", color=style.colour, marker=style.marker, **markers_for(len(curve)))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        finish_axes(axes, name.replace("_", " "), "Release", "")
    for unused in panels[len(columns_shown) :]:
        unused.remove()
    return figure
