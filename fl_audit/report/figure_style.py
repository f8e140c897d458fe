"""The common style of all figures: light, with large text, and readable without colour.

All functions use matplotlib's object-oriented interface: drawing changes no global state and needs no display.
"""

import io
import re
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from fl_audit.array_types import Floats
from fl_audit.federation.run_tables import quantiles_by_round

WIDTH = 7.6
REPORT_WIDTH = 5.2  # width of a report's figures, so that on a phone their text is as large as the text around them
HEIGHT = 4.3
DOTS_PER_INCH = 150

TEXT_SIZE = 11
SMALL_TEXT_SIZE = 10

INK = "#1a1a1a"
MUTED = "#5c5c5c"
GRID = "#dddddd"
PALE = "#e9e9e9"

LIMIT: dict[str, Any] = {"color": INK, "linestyle": "-.", "linewidth": 1.8}
"""Style of a line that shows a claim, or another number for comparison."""

_CHARACTERS = 56  # number of characters that fit into a line of a report's figure
_SHORT_LABEL = 22
_LINE = 0.19  # height of a line of a legend, in inches


@dataclass(frozen=True)
class SecretBitPlotStyle:
    """Style of the plots of trials with one value of the secret bit; colour, line, marker and hatch differ by bit."""

    name: str
    short: str
    colour: str
    fill: str
    line: Literal["-", "--"]
    marker: str
    hatch: str


BIT_STYLES = {
    1: SecretBitPlotStyle("D was used (b = 1)", "b = 1", "#12426e", "#7fa3c7", "-", "o", ""),
    0: SecretBitPlotStyle("D' was used (b = 0)", "b = 0", "#b35806", "#f8d9b0", "--", "v", "////"),
}


def new_figure(height: float = HEIGHT, width: float = WIDTH) -> Figure:
    """Return an empty white figure, in which matplotlib arranges the axes without overlaps (constrained layout)."""
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def literal(text: str) -> str:
    """Return a text with escaped dollar signs, so that matplotlib does not read parts of users' names as formulas."""
    return text.replace("$", r"\$")


def finish_axes(axes: Axes, title: str, x_name: str, y_name: str) -> None:
    """Set the title and the axis labels of axes, and style their spines, ticks and grid."""
    title, x_name, y_name = (_wrapped(axes, text, share) for text, share in ((title, 0.95), (x_name, 1), (y_name, 0.6)))
    if title:
        axes.set_title(title, fontsize=TEXT_SIZE, fontweight="bold", loc="left", color=INK)
    axes.set_xlabel(x_name, fontsize=TEXT_SIZE, color=INK)
    axes.set_ylabel(y_name, fontsize=TEXT_SIZE, color=INK)
    axes.tick_params(labelsize=SMALL_TEXT_SIZE, colors=INK, length=3)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)


def add_legend(axes: Axes, columns: int) -> None:
    """Add a legend below the axes, where it hides no data.

    In a figure narrower than `WIDTH`, labels are wrapped, and the figure grows in height with the legend. The legend
    then has one column if some label is long.
    """
    handles, labels = axes.get_legend_handles_labels()
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes have a figure"
    if _is_narrow(axes):
        labels = [_wrapped(axes, label, 0.85) for label in labels]
        columns = columns if max(map(len, labels), default=0) <= _SHORT_LABEL else 1
        lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
        figure.set_figheight(figure.get_figheight() + _LINE * max(0, lines - 2))
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        frameon=False,
        fontsize=SMALL_TEXT_SIZE,
        ncols=columns,
        handlelength=3.2,
    )


def _is_narrow(axes: Axes) -> bool:
    """Return whether the figure is narrower than `WIDTH`; the text of such figures, as in reports, must be wrapped."""
    figure = axes.get_figure(root=True)
    return figure is not None and bool(figure.get_figwidth() < WIDTH)


def _wrapped(axes: Axes, text: str, share: float) -> str:
    """Return the text, with line breaks if the figure is narrow: lines then take a `share` of the figure's width."""
    if not _is_narrow(axes):
        return text
    return "\n".join(
        line for paragraph in text.split("\n") for line in wrap(paragraph, int(share * _CHARACTERS)) or [""]
    )


def whole_number_axis(axes: Axes, low: int, high: int) -> None:
    """Set the limits of the horizontal axis to `low` and `high` with a margin, and a few ticks at whole numbers."""
    step = max(1, int(np.ceil((high - low) / 10)))
    step = next((nice for nice in (1, 2, 5, 10, 20, 25, 50, 100) if nice >= step), step)
    ticks = [tick for tick in range(low, high + 1) if tick % step == 0] or [low]
    margin = 0.5 if high == low else max(0.2, 0.02 * (high - low))
    axes.set_xticks(ticks)
    axes.set_xlim(low - margin, high + margin)


def draw_band(axes: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, **style: Any) -> None:
    """Fill the area between two curves; for a single point draw a bar, because a band of width 0 is invisible.

    Shapes: `x` (points,), `low` (points,), `high` (points,).
    """
    position = np.atleast_1d(np.asarray(x, dtype=np.float64))
    bottom, top = (np.atleast_1d(np.asarray(edge, dtype=np.float64)) for edge in (low, high))
    if position.size == 1:
        axes.bar(position, top - bottom, width=0.2, bottom=bottom, **style)
    else:
        axes.fill_between(position, bottom, top, **style)


def draw_spread(axes: Axes, table: pd.DataFrame, column: str, scale: float = 1.0) -> Floats:
    """Draw a column's values over rounds, as median and bands over trials, and return the medians, shape (rounds,).

    The wide band is the range over trials, and the darker band their middle half. With one trial there are no bands.
    """
    rounds, curves = quantiles_by_round(table, column, (0, 0.25, 0.5, 0.75, 1))
    lowest, lower, middle, upper, highest = (scale * curve for curve in curves)
    trials = table["trial"].nunique()
    style = BIT_STYLES[1]
    if trials > 1:
        draw_band(
            axes,
            rounds,
            lowest,
            highest,
            facecolor=PALE,
            edgecolor=MUTED,
            linewidth=0.6,
            label="smallest to largest trial",
        )
        draw_band(
            axes,
            rounds,
            lower,
            upper,
            facecolor=style.fill,
            edgecolor=style.colour,
            linewidth=0.6,
            alpha=0.7,
            label="middle half of the trials",
        )
    label = "measured, the one trial" if trials == 1 else f"measured, median of {trials:,} trials"
    axes.plot(
        rounds,
        middle,
        "-",
        color=style.colour,
        linewidth=2,
        marker=style.marker,
        **markers_for(len(rounds)),
        label=label,
    )
    whole_number_axis(axes, int(rounds[0]), int(rounds[-1]))
    return np.asarray(middle, dtype=np.float64)


def markers_for(points: int) -> dict[str, Any]:
    """Return matplotlib's marker settings for a curve of `points` points; long curves have fewer markers."""
    return {"markersize": 4.5, "markevery": max(1, points // 15)}


def span(*groups: ArrayLike) -> tuple[float, float]:
    """Return the smallest and the largest finite number in all groups; (0, 1) if there is no finite number."""
    values: Floats = np.concatenate([np.ravel(np.asarray(group, dtype=np.float64)) for group in groups])
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)


def to_png(figure: Figure) -> bytes:
    """Return a figure as a PNG file in bytes; equal figures give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure, salt: str = "fl_audit") -> str:
    """Return the content of an SVG file with a figure; equal figures give equal contents.

    To keep the file small, letters are text elements instead of paths, and coordinates have two decimals (in points).
    """
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    # Only numbers within tags are cut; text between tags is shown to readers.
    return re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), buffer.getvalue())
