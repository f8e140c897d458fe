"""Plot of utility against privacy for a sweep: points with error bars, and their convex frontier.

If the claimed epsilon varies, it is on the horizontal axis, and the best model without privacy is a horizontal line.
Otherwise Epsilon* (the privacy risk of the released models) is on the horizontal axis, as in figures 1 and 2 of
Negoescu et al. 2023. The margins at the top and on the right then show the distributions of Epsilon* and utility over
the models, with and without privacy.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import Bbox
from scipy.stats import gaussian_kde

from fl_audit.array_types import Flags, Floats
from fl_audit.learning.metric_names import Metric, is_share, metric_column, metric_title
from fl_audit.released_model.star_methods import PARAMETRIC_CUT, cut_text
from fl_audit.report import figure_style
from fl_audit.report.figure_style import INK, MUTED, SMALL_TEXT_SIZE, add_legend, finish_axes, literal, new_figure, span
from fl_audit.runs.sweeps.tables import guarantee_varies
from fl_audit.words import number_text

NO_GUARANTEE = "no privacy"
_MOST_GROUPS = 6
_SHADES = ("#0b2d4e", "#1f5f99", "#4f94cd", "#8ebbe0", "#12426e", "#2f6fa8")
_MARKERS = ("o", "s", "^", "D", "P", "v")
_FEWEST_FOR_A_DENSITY = 20
"""Number of models below which they are drawn one by one, because a density would show its own width."""
_MOST_LABELS = 12
_SHORT_LABEL, _MIDDLE_LABEL = 26, 45  # letters of a label in the legend with which three, or two, stand side by side
_LEGEND_LINE = 0.19  # height of a line of the legend, in inches
_DIGIT = 6.0  # width of a digit of a point's number, in points
_PLACES = ((6, -9), (-6, 9), (6, 9), (-6, -9), (8, 0), (-8, 0), (8, 16), (-8, 16), (8, -16), (-8, -16))
"""Offsets of a number from its point, in points of the page, in order of preference."""
_TICK_DISTANCE = 0.05  # least distance of labelled values of epsilon, as a share of the axis


def utility_name(utility: str) -> str:
    """Return the name of a metric on test records for axes, such as "test accuracy (share)"."""
    unit = _utility_unit(utility)
    return f"test {metric_title(utility)} ({unit})" if unit else f"test {metric_title(utility)}"


def _utility_unit(utility: str) -> str:
    """Return the unit of a metric, "share" or "probability"; "" if the metric has no unit of a known name."""
    return "share" if is_share(utility) else "probability" if utility == Metric.AUROC else ""


class _Group(NamedTuple):
    """A group of points that are drawn with the same colour and marker."""

    label: str  # text in the legend
    rows: Flags  # whether each row of the table of points belongs to the group, shape (points,)
    colour: str
    marker: str


def landscape_figure(
    points: pd.DataFrame, models: pd.DataFrame, utility: str, title: str, by_guarantee: bool = True
) -> Figure:
    """Return the plot of utility against privacy for the points of a sweep.

    `by_guarantee`: Otherwise the axis shows Epsilon*, and the margins show distributions.
    """
    if by_guarantee and guarantee_varies(points):
        return _guarantee_figure(points, utility, title)
    figure = Figure(figsize=(9.4, 7.0), dpi=figure_style.DOTS_PER_INCH, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplot_mosaic([["top", "."], ["main", "right"]], width_ratios=[4, 1], height_ratios=[1, 4])
    main = panels["main"]
    top = panels["top"]
    right = panels["right"]
    top.sharex(main)
    right.sharey(main)
    for group in _groups_of(points):
        _draw_group(main, points[group.rows], group)
    frontier = points[points["on_frontier"]].sort_values("epsilon_star")
    main.plot(frontier["epsilon_star"], frontier["utility"], "-", color=INK, linewidth=1.5, label="convex frontier")
    _list_points(main, points, "epsilon_star")
    for name, limit in (("epsilon_star", main.set_xlim), ("utility", main.set_ylim)):
        # The models with a margin: the tails of a kernel density reach where no model can be.
        low, high = span(points[[f"{name}_low", f"{name}_high"]].to_numpy(dtype=np.float64))
        margin = 0.05 * (high - low) or 0.05
        limit(low - margin, high + margin)
    is_density = {
        top: _draw_densities(top, models, "epsilon_star", upright=False),
        right: _draw_densities(right, models, metric_column(utility), upright=True),
    }
    risk = f"Epsilon* (nats; {cut_text(PARAMETRIC_CUT)}), mean and range over repetitions"
    finish_axes(main, "", risk, utility_name(utility))
    finish_axes(top, literal(title), "", "density (1/nat)" if is_density[top] else "models")
    unit = _utility_unit(utility)
    density = f"density (1/{unit})" if unit else "density"
    finish_axes(right, "", density if is_density[right] else "models", "")
    top.tick_params(labelbottom=False, labelleft=is_density[top], left=is_density[top])
    right.tick_params(labelbottom=is_density[right], bottom=is_density[right], labelleft=False)
    handles, labels = main.get_legend_handles_labels()
    pairs = [pair for pair in zip(*top.get_legend_handles_labels(), strict=True) if pair[1] not in labels]
    handles = handles + [handle for handle, _ in pairs]
    labels = labels + [label for _, label in pairs]
    columns = _columns_for(labels)
    figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * max(0, -(-len(labels) // columns) - 5))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL_TEXT_SIZE)
    _number_points(main, points, "epsilon_star")
    return figure


def _guarantee_figure(points: pd.DataFrame, utility: str, title: str) -> Figure:
    """Return the plot of utility against claimed epsilon; a horizontal line shows the best point without privacy."""
    figure = new_figure(4.6)
    axes = figure.add_subplot()
    private = points["private"].to_numpy(dtype=bool)
    claimed = points[private]
    x, y = (claimed[name].to_numpy(dtype=np.float64) for name in ("epsilon", "utility"))
    spread = np.abs(claimed[["utility_low", "utility_high"]].to_numpy(dtype=np.float64).T - y)
    axes.errorbar(
        x, y, yerr=spread, fmt="o", color=_SHADES[1], elinewidth=0.8, markersize=6.5, label="private", zorder=3
    )
    frontier = claimed[claimed["on_frontier"]].sort_values("epsilon")
    axes.plot(frontier["epsilon"], frontier["utility"], "-", color=INK, linewidth=1.5, label="convex frontier")
    if not private.all():
        best = points.loc[~private, "utility"].max()
        axes.axhline(best, color=MUTED, linestyle="--", linewidth=1.6, label=f"{NO_GUARANTEE}, the best: {best:.3g}")
    axes.set_xscale("log")
    _label_claims(axes, x)
    _list_points(axes, claimed, "epsilon")
    finish_axes(axes, title.replace("$", r"\$"), "Claimed epsilon (nats, logarithmic)", utility_name(utility))
    labels = axes.get_legend_handles_labels()[1]
    columns = _columns_for(labels)
    figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * -(-len(labels) // columns))
    add_legend(axes, columns=columns)
    _number_points(axes, claimed, "epsilon")
    return figure


def _columns_for(labels: Sequence[str]) -> int:
    """Return the number of columns of a legend in which its longest label fits the width of the figure."""
    longest = max(map(len, labels))
    return 3 if longest <= _SHORT_LABEL else 2 if longest <= _MIDDLE_LABEL else 1


def _groups_of(points: pd.DataFrame) -> list[_Group]:
    """Return the points without privacy, and those of each claimed epsilon.

    If private points claim more than six different epsilons, they are one group.
    """
    private = points["private"].to_numpy(dtype=bool)
    groups = [_Group(NO_GUARANTEE, ~private, "#b35806", "X")] if (~private).any() else []
    rounded = np.array([float(f"{value:.3g}") for value in points["epsilon"].to_numpy(dtype=np.float64)])
    levels = np.unique(rounded[private])
    if len(levels) > _MOST_GROUPS:
        return [*groups, _Group("differentially private", private, _SHADES[1], _MARKERS[0])]
    for level, colour, marker in zip(levels, _SHADES, _MARKERS, strict=False):
        label = f"epsilon = {number_text(float(level))}"
        groups.append(_Group(label, private & (rounded == level), colour, marker))
    return groups


def _draw_group(axes: Axes, points: pd.DataFrame, group: _Group) -> None:
    # A point whose Epsilon* is unbounded has no place; the caption says so.
    points = points[np.isfinite(points["epsilon_star"])]
    x, y = (points[name].to_numpy(dtype=np.float64) for name in ("epsilon_star", "utility"))
    spread_x, spread_y = (
        np.abs(points[[f"{name}_low", f"{name}_high"]].to_numpy(dtype=np.float64).T - mean)
        for name, mean in (("epsilon_star", x), ("utility", y))
    )
    axes.errorbar(
        x,
        y,
        xerr=spread_x,
        yerr=spread_y,
        fmt=group.marker,
        color=group.colour,
        ecolor=group.colour,
        elinewidth=0.8,
        markersize=6.5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        linestyle="none",
        label=group.label,
        zorder=3,
    )


def _draw_densities(axes: Axes, models: pd.DataFrame, column: str, upright: bool) -> bool:
    """Draw the distributions of a column over private and over other models into a margin of the plot.

    They are kernel densities, or a line for each model if there are fewer than 20 models or 3 different values.
    `upright` is True for the margin on the right, where the values run upwards. The result says whether a density was
    drawn, which needs a scale.
    """
    has_density = False
    private = models["private"].to_numpy(dtype=bool)
    for rows, label, colour, line, hatch in (
        (~private, "density, no privacy", "#b35806", "--", "////"),
        (private, "density, private", "#12426e", "-", ""),
    ):
        values = models.loc[rows, column].to_numpy(dtype=np.float64)
        values = values[np.isfinite(values)]
        if not values.size:
            continue
        if values.size < _FEWEST_FOR_A_DENSITY or np.unique(values).size < 3:
            _draw_models(axes, values, colour, label.replace("density, ", "models, "), upright, private=not hatch)
            continue
        has_density = True
        # A kernel density: normal kernels, Scott's bandwidth.
        kernel = gaussian_kde(values)
        reach = 3 * float(np.sqrt(kernel.covariance[0, 0]))
        at = np.linspace(values.min() - reach, values.max() + reach, 400)
        height = np.asarray(kernel(at), dtype=np.float64)
        fill: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "hatch": hatch, "alpha": 0.35, "linewidth": 0}
        if upright:
            axes.plot(height, at, line, color=colour, label=label)
            axes.fill_betweenx(at, height, **fill)
        else:
            axes.plot(at, height, line, color=colour, label=label)
            axes.fill_between(at, height, **fill)
    axes.spines["left" if not upright else "bottom"].set_color(MUTED)
    (axes.set_xlim if upright else axes.set_ylim)(0, None if has_density else 1)
    return has_density


def _draw_models(axes: Axes, values: Floats, colour: str, label: str, upright: bool, private: bool) -> None:
    """Draw each model as a short line in a margin; private models have a row of their own."""
    row, length = (0.05, 0.4) if private else (0.55, 0.4)
    draw, frame = (axes.hlines, axes.get_yaxis_transform()) if upright else (axes.vlines, axes.get_xaxis_transform())
    draw(values, row, row + length, color=colour, linewidth=1.2, label=label, transform=frame)


def _number_points(axes: Axes, points: pd.DataFrame, column: str) -> None:
    """Write the number of each point beside it, where it covers no other point or number.

    Points at the same position share a label. The layout must be final, since places are chosen on the drawn page.
    """
    frame = points[np.isfinite(points[column])]
    if len(frame) > _MOST_LABELS:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes have a figure"
    figure.draw_without_rendering()
    pixels = figure.dpi / 72
    positions = axes.transData.transform(frame[[column, "utility"]].to_numpy(dtype=np.float64))
    taken_boxes = [Bbox.from_extents(*(position - 5 * pixels), *(position + 5 * pixels)) for position in positions]
    for location, rows in frame.groupby([column, "utility"]):
        text = ", ".join(str(int(str(index)) + 1) for index in rows.index)
        width, height = pixels * _DIGIT * len(text), pixels * _DIGIT * 1.6
        corner = axes.transData.transform(location)
        boxes = {
            (right, up): Bbox.from_bounds(
                corner[0] + pixels * right - (width if right < 0 else 0),
                corner[1] + pixels * up - height / 2,
                width,
                height,
            )
            for right, up in _PLACES
        }
        free = [
            offset for offset, box in boxes.items() if not any(box.overlaps(taken_box) for taken_box in taken_boxes)
        ]
        right, up = (free or _PLACES)[0]
        taken_boxes.append(boxes[right, up])
        annotation = axes.annotate(
            text,
            location,
            (right, up),
            textcoords="offset points",
            fontsize=SMALL_TEXT_SIZE,
            color=INK,
            ha="right" if right < 0 else "left",
            va="center",
        )
        annotation.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _list_points(axes: Axes, points: pd.DataFrame, column: str) -> None:
    """Add the number and the settings of each point to the legend, unless there are more than 12."""
    frame = points[np.isfinite(points[column])]
    for index, settings in frame["settings"].items() if len(frame) <= _MOST_LABELS else ():
        label = f"{int(str(index)) + 1}: {_without_sections(str(settings))}"
        axes.plot([], [], linestyle="none", label=literal(label))


def _without_sections(settings: str) -> str:
    """Return settings without the names of their sections, such as "epsilon = 1, clipping-norm = 2"."""
    return re.sub(r"(^|, )[a-z]+\.", r"\1", settings)


def _label_claims(axes: Axes, claimed: Floats) -> None:
    """Label the logarithmic axis of epsilon at claimed values, as many as stand side by side."""
    ticks = list[float]()
    for value in np.unique(claimed[np.isfinite(claimed)]).tolist():
        if not ticks or np.log(value / ticks[-1]) > _TICK_DISTANCE * max(1.0, np.log(claimed.max() / claimed.min())):
            ticks.append(value)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.margins(x=0.08)
