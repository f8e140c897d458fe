"""Plot of utility against privacy for a sweep: points with error bars, and their convex frontier.

If the claimed epsilon varies, it is on the horizontal axis, and the best model without privacy is a horizontal line.
Otherwise Epsilon* (the privacy risk of the released models) is on the horizontal axis, as in figures 1 and 2 of
Negoescu et al. 2023. The margins at the top and on the right then show the distributions of Epsilon* and utility over
the models, with and without privacy.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from scipy.stats import gaussian_kde

from fl_audit.array_types import Flags, Floats
from fl_audit.learning.metric_names import Metric, is_share, metric_column, metric_title
from fl_audit.released_model.star_methods import cuts_text
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
_SHORT_LABEL = 26  # letters of a label in the legend with which three or four stand side by side


def utility_name(utility: str) -> str:
    """Return the name of a metric on test records for axes, such as "test accuracy (share)"."""
    unit = " (share)" if is_share(utility) else " (probability)" if utility == Metric.AUROC else ""
    return f"test {metric_title(utility)}{unit}"


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
    main, top, right = panels["main"], panels["top"], panels["right"]
    top.sharex(main)
    right.sharey(main)
    for group in _groups_of(points):
        _draw_group(main, points[group.rows], group)
    frontier = points[points["on_frontier"]].sort_values("epsilon_star")
    main.plot(frontier["epsilon_star"], frontier["utility"], "-", color=INK, linewidth=1.5, label="convex frontier")
    _number_points(main, points, "epsilon_star")
    for name, limit in (("epsilon_star", main.set_xlim), ("utility", main.set_ylim)):
        # The models with a margin: the tails of a kernel density reach where no model can be.
        low, high = span(points[[f"{name}_low", f"{name}_high"]].to_numpy(dtype=np.float64))
        margin = 0.05 * (high - low) or 0.05
        limit(low - margin, high + margin)
    is_density = {
        top: _draw_densities(top, models, "epsilon_star", upright=False),
        right: _draw_densities(right, models, metric_column(utility), upright=True),
    }
    risk = f"Epsilon* (nats; {cuts_text(models['epsilon_star_cut'])}), mean and range over repetitions"
    finish_axes(main, "", risk, utility_name(utility))
    finish_axes(top, literal(title), "", "density (1/nat)" if is_density[top] else "models")
    finish_axes(right, "", "density" if is_density[right] else "models", "")
    top.tick_params(labelbottom=False, labelleft=is_density[top], left=is_density[top])
    right.tick_params(labelbottom=is_density[right], bottom=is_density[right], labelleft=False)
    handles, labels = main.get_legend_handles_labels()
    more = [pair for pair in zip(*top.get_legend_handles_labels(), strict=True) if pair[1] not in labels]
    handles, labels = handles + [handle for handle, _ in more], labels + [label for _, label in more]
    columns = 4 if max(map(len, labels)) <= _SHORT_LABEL else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL_TEXT_SIZE)
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
    for set_formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _number_points(axes, claimed, "epsilon")
    finish_axes(axes, title.replace("$", r"\$"), "Claimed epsilon (nats, logarithmic)", utility_name(utility))
    labels = axes.get_legend_handles_labels()[1]
    add_legend(axes, columns=3 if max(map(len, labels)) <= _SHORT_LABEL else 2)
    return figure


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
        x, y, xerr=spread_x, yerr=spread_y, fmt=group.marker, color=group.colour, ecolor=group.colour, elinewidth=0.8,
        markersize=6.5, markeredgecolor="white", markeredgewidth=0.6, linestyle="none", label=group.label, zorder=3,
    )  # fmt: skip


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
    """Write the number of each point next to the point, unless there are more than 12; the legend says its settings.

    Points at the same position share a label.
    """
    shown = points[np.isfinite(points[column])]
    if len(shown) > _MOST_LABELS:
        return
    for place, rows in shown.groupby([column, "utility"]):
        text = ", ".join(str(int(str(index)) + 1) for index in rows.index)
        beside = (7, 3) if rows.index[0] % 2 else (-13, -10)  # neighbours of a row lie on either side
        axes.annotate(text, place, beside, textcoords="offset points", fontsize=SMALL_TEXT_SIZE - 1, color=MUTED)
    for index, settings in shown["settings"].items():
        number = f"${int(str(index)) + 1}$"
        axes.plot([], [], linestyle="none", marker=number, markersize=6, color=MUTED, label=literal(settings))
