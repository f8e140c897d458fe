"""The figure of the benchmark `growth`: time and memory against a size that grows, such as the number of clients."""

from math import log
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fl_audit.array_types import Floats
from fl_audit.report.figure_style import INK, MUTED, SMALL_TEXT_SIZE, finish_axes, new_figure

_HEIGHT = 6.2
_WIDTH = 13.0
_FLAT = 0.05
"""Share of the smallest run's cost below which a cost does not grow."""
_UNITS = {"clients": "clients", "trials": "trials", "parameters": "parameters", "rounds": "rounds"}


class ScalingFit(NamedTuple):
    """A power function fitted to costs: `least` + (`most` - `least`) * (size / `largest`)^`power`.

    `least` and `most` are the costs at the smallest and the largest size.
    """

    least: float
    most: float
    largest: float
    power: float  # from the two largest sizes; 0 where the cost does not grow

    def at(self, sizes: Floats) -> Floats:
        """Return the predicted cost at each of the sizes, in their shape."""
        if self.power == 0:
            return np.full_like(sizes, self.least)
        return self.least + (self.most - self.least) * (sizes / self.largest) ** self.power

    @property
    def words(self) -> str:
        return "does not grow" if self.power == 0 else f"slope {self.power:.2f}"


def fit_scaling(sizes: Floats, costs: Floats) -> ScalingFit:
    """Fit a cost that grows with size, as a constant plus a power function through the costs at the two largest sizes.

    The constant is the cost at the smallest size. With two sizes, the power is 1. The function is constant if the cost
    at the largest size hardly exceeds the cost at the smallest size.

    Shapes: `sizes` (sizes,), `costs` (sizes,).
    """
    smallest = float(costs[0])
    largest = float(costs[-1])
    before = float(costs[-2]) - smallest
    if largest - smallest < _FLAT * smallest:
        return ScalingFit(smallest, largest, float(sizes[-1]), 0.0)
    # Where the last size but one costs no more than the smallest, the cost begins to grow after it.
    rise = (largest - smallest) / max(before, 1e-3 * (largest - smallest))
    power = 1.0 if len(sizes) == 2 else log(rise) / log(float(sizes[-1] / sizes[-2]))
    return ScalingFit(smallest, largest, float(sizes[-1]), power)


def growth_figure(table: pd.DataFrame) -> Figure:
    """Return the figure of a table of `growth`: a column of panels for each quantity that grows.

    The upper panel shows time, the lower panel memory. The number of cores has no panel on memory. The columns of the
    table are `axis` (what grows), `size`, `seconds`, `processor_seconds`, `mib` and `kind`.
    """
    axes_there = [name for name in (*_UNITS, "cores") if (table["axis"] == name).any()]
    figure = new_figure(_HEIGHT, _WIDTH)
    panels = figure.subplots(2, len(axes_there), squeeze=False)
    for column, name in enumerate(axes_there):
        frame = table[table["axis"] == name]
        if name == "cores":
            _draw_cores(panels[0, column], frame)
            panels[1, column].set_axis_off()
        else:
            _draw_time(panels[0, column], frame, name)
            _draw_memory(panels[1, column], frame, name)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    entries = [(handle, label) for handle, label in zip(handles, labels, strict=True) if not label.startswith("slope")]
    figure.legend(
        *zip(*entries, strict=True), loc="outside lower center", ncols=4, frameon=False, fontsize=SMALL_TEXT_SIZE
    )
    return figure


def _draw_time(axes: Axes, frame: pd.DataFrame, name: str) -> None:
    sizes = frame["size"].to_numpy(np.float64)
    processor = frame["processor_seconds"].to_numpy(np.float64)
    axes.loglog(sizes, frame["seconds"], "o", color=INK, markerfacecolor="white", label="by the clock")
    axes.loglog(sizes, processor, "s", color=INK, markersize=4, label="processor seconds")
    _draw_slope(axes, sizes, processor)
    _label_plainly(axes)
    finish_axes(axes, "", "", "seconds of a run")


def _draw_memory(axes: Axes, frame: pd.DataFrame, name: str) -> None:
    sizes = frame["size"].to_numpy(np.float64)
    memory = frame["mib"].to_numpy(np.float64)
    axes.loglog(sizes, memory, "s", color=INK, markersize=4)
    _draw_slope(axes, sizes, memory)
    axes.set_ylim(100, max(2_000.0, 2 * memory.max()))
    _label_plainly(axes)
    finish_axes(axes, "", _UNITS[name], "MiB at the most")


def _label_plainly(axes: Axes) -> None:
    """Label the vertical axis with 1, 2, 5, 10 and so on."""
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_slope(axes: Axes, sizes: Floats, costs: Floats) -> None:
    if len(sizes) < 2:
        return
    fit = fit_scaling(sizes, costs)
    fine = np.geomspace(sizes[0], sizes[-1], 60)
    axes.loglog(fine, fit.at(fine), "--", color=MUTED, linewidth=1.2, label="fitted, above the smallest run")
    axes.text(0.05, 0.95, fit.words, transform=axes.transAxes, va="top", fontsize=SMALL_TEXT_SIZE, color=INK)


def _draw_cores(axes: Axes, frame: pd.DataFrame) -> None:
    sizes = frame["size"].to_numpy(np.float64)
    axes.loglog(sizes, frame["processor_seconds"], "s", color=INK, markersize=4)
    for kind, marker in (("measured", "o"), ("on paper", "D")):
        rows = frame[frame["kind"] == kind]
        axes.loglog(rows["size"].astype(float), rows["seconds"], marker, color=INK, markerfacecolor="white")
    words = frame[frame["kind"] == "on paper"]
    for size, seconds in zip(words["size"], words["seconds"], strict=True):
        text_style: dict[str, Any] = {
            "textcoords": "offset points",
            "xytext": (0, -16),
            "ha": "center",
            "fontsize": SMALL_TEXT_SIZE,
        }
        axes.annotate("on paper", (float(size), seconds), **text_style)
    axes.set_xlim(0.6, 2500)
    axes.set_ylim(0.5 * frame["seconds"].min(), 1.5 * frame["seconds"].max())
    _label_plainly(axes)
    finish_axes(axes, "", "cores (512: 8 nodes)", "seconds of a round")
