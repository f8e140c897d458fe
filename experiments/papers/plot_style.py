"""Style of the reproductions' figures: curves differ in line, marker and hatch, so that they need no colour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.report.figure_style import INK, SMALL_TEXT_SIZE
from fl_audit.statistics.interval_estimates import IntervalEstimate

PUBLISHED = "as published"
THEORY = "theory"
_DIAMOND: dict[str, Any] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 6.5,
    "markerfacecolor": "white",
    "label": PUBLISHED,
}
_DOTS = 60  # as many outliers fit beside each other over the range of a box


@dataclass(frozen=True)
class CurveLook:
    """The look of one kind of run in figures: name, colours, line style, marker and hatch."""

    name: str
    colour: str
    fill: str
    line: str
    marker: str
    hatch: str


SENSITIVITY_LOOKS = {
    SensitivityKind.LOCAL: CurveLook("local sensitivity (not a private release)", "#12426e", "#b9d0e6", "-", "o", ""),
    SensitivityKind.GLOBAL: CurveLook("global sensitivity", "#b35806", "#f8d9b0", "--", "^", "////"),
}
ADJACENCY_LOOKS = {
    Adjacency.REPLACE_RECORD: CurveLook("bounded: a record replaced", "#12426e", "#b9d0e6", "-", "o", ""),
    Adjacency.ADD_REMOVE_RECORD: CurveLook("unbounded: a record removed", "#b35806", "#f8d9b0", "--", "^", "////"),
}


def draw_published(axes: Axes, x: ArrayLike, y: ArrayLike, colour: str = INK) -> None:
    """Draw published values as open diamonds."""
    axes.plot(x, y, markeredgecolor=colour, markeredgewidth=1.6, zorder=4, **_DIAMOND)


def draw_measured(
    axes: Axes, x: ArrayLike, intervals: Sequence[IntervalEstimate], look: CurveLook, label: str, joined: bool = True
) -> None:
    """Draw measured values with their intervals; an infinite upper end is an arrow, and infinite values are
    left out."""
    value, bottom, top = (
        np.array([getattr(interval, end) for interval in intervals]) for end in ("value", "low", "high")
    )
    value = np.where(np.isfinite(value), value, np.nan)
    is_open = np.isinf(top)
    spread = np.stack([value - bottom, np.where(is_open, value, top) - value])
    axes.errorbar(
        x,
        value,
        yerr=np.maximum(np.nan_to_num(spread), 0),
        fmt=look.marker,
        color=look.colour,
        capsize=3,
        linestyle=look.line if joined else "none",
        linewidth=1.4,
        markersize=5,
        label=label,
        zorder=3,
    )
    axes.errorbar(
        np.asarray(x, dtype=np.float64)[is_open], value[is_open], yerr=0.0, lolims=True, fmt="none", ecolor=look.colour
    )


def draw_boxes(
    axes: Axes, values: Sequence[ArrayLike], positions: Sequence[float], look: CurveLook, width: float
) -> None:
    """Draw one box plot for each sample: median, quartiles, whiskers to 1.5 interquartile ranges, outliers as dots.

    `values`: Of overlapping outliers only one is drawn.
    """
    boxes = boxplot_stats([np.asarray(value) for value in values])
    for box, values_of_box in zip(boxes, values, strict=True):
        dot_distance = max(float(np.ptp(values_of_box)) / _DOTS, 1e-12)
        _, kept_rows = np.unique(np.round(box["fliers"] / dot_distance), return_index=True)
        box["fliers"] = box["fliers"][kept_rows]
    axes.bxp(
        boxes,
        positions=list(positions),
        widths=width,
        patch_artist=True,
        boxprops={"facecolor": look.fill, "edgecolor": look.colour, "hatch": look.hatch},
        medianprops={"color": INK, "linewidth": 2},
        whiskerprops={"color": look.colour},
        capprops={"color": look.colour},
        flierprops={"marker": ".", "markersize": 2.5, "markeredgecolor": look.colour, "alpha": 0.5},
        manage_ticks=False,
    )


def box_key(look: CurveLook) -> Patch:
    """Return the legend entry for box plots of a given look."""
    return Patch(facecolor=look.fill, edgecolor=look.colour, hatch=look.hatch, label=look.name)


def published_key() -> Line2D:
    """Return the legend entry for published values."""
    return Line2D([], [], markeredgecolor=INK, markeredgewidth=1.4, **_DIAMOND)


def legend_below(figure: Figure, panels: Sequence[Axes], extra: Sequence[Any] = (), columns: int = 2) -> None:
    """Draw one legend below a figure for all of its panels, with each name once."""
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for handle in extra:
        entries.setdefault(str(handle.get_label()), handle)
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        frameon=False,
        ncols=columns,
        fontsize=SMALL_TEXT_SIZE,
        handlelength=3.0,
    )


def empty_panel(axes: Axes, title: str, reason: str) -> None:
    """Turn a panel without data into a title and the reason why it is empty."""
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=SMALL_TEXT_SIZE, fontweight="bold")
    axes.text(0.5, 0.5, reason, ha="center", va="center", wrap=True, fontsize=SMALL_TEXT_SIZE, transform=axes.transAxes)
