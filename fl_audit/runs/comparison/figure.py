"""The figure of a comparison of runs: epsilon as claimed and as found, and how good the models are."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from fl_audit.learning.metric_names import Metric, metric_title
from fl_audit.released_model.star_methods import cuts_text
from fl_audit.report.figure_style import INK, MUTED, add_legend, finish_axes, literal, new_figure
from fl_audit.runs.comparison.rows import ACCURACY, SHOWN, STAR, RunRow
from fl_audit.runs.verbosity import printable

_STAR_MEAN = "Epsilon*, mean of the models"
_KINDS: tuple[tuple[str, Callable[[RunRow], float | None], dict[str, object]], ...] = (
    ("claimed", lambda row: row.epsilon, {"marker": "|", "markersize": 16, "color": INK, "markeredgewidth": 2}),
    ("shown, at least", lambda row: row.value(SHOWN), {"marker": "o", "color": INK, "markersize": 7}),
    (
        "shown by an attack",
        lambda row: row.attack,
        {"marker": "s", "color": MUTED, "markersize": 6, "markerfacecolor": "white"},
    ),
    (_STAR_MEAN, lambda row: row.value(STAR), {"marker": "x", "color": MUTED, "markersize": 7}),
)


def comparison_figure(rows: Sequence[RunRow]) -> Figure:
    """Return a figure with one line per run: values of epsilon on the left, and how good models are on the right."""
    figure = new_figure(1.9 + 0.42 * len(rows))
    left_axes, right_axes = figure.subplots(1, 2, sharey=True, width_ratios=[2, 1])
    heights = list(range(len(rows)))[::-1]
    for kind, value, look in _KINDS:
        name = f"{kind}, {cuts_text(row.epsilon_star_cut for row in rows)}" if kind == _STAR_MEAN else kind
        known_points = [
            (point_value, height)
            for row, height in zip(rows, heights, strict=True)
            if (point_value := value(row)) is not None
        ]
        if known_points:
            left_axes.plot(*np.transpose(known_points), linestyle="", label=name, **look)
    metric, values = _shared_metric(rows)
    known_points = [(value, height) for value, height in zip(values, heights, strict=True) if value is not None]
    right_axes.plot(*np.reshape(known_points, (-1, 2)).T, linestyle="", marker="D", color=INK)
    right_axes.set_visible(bool(known_points))
    left_axes.set_yticks(heights, [f"{literal(printable(row.run))}\n{row.outcome}" for row in rows])
    left_axes.set_ylim(-0.6, len(rows) - 0.4)
    left_axes.set_xlim(left=0)
    if all(0 <= value <= 1 for value, _ in known_points):
        right_axes.set_xlim(0, 1)
    deltas = {row.delta for row in rows if row.delta is not None}
    at = (
        "epsilon, each at the delta of its run: these differ"
        if len(deltas) > 1
        else "epsilon, at the delta of the runs"
    )
    finish_axes(left_axes, "What is claimed, and what was shown", at, "")
    finish_axes(right_axes, "What models are worth", f"{metric_title(metric)} on test records", "")
    add_legend(left_axes, columns=2)
    return figure


def _shared_metric(rows: Sequence[RunRow]) -> tuple[str, list[float | None]]:
    """Return the metric by which runs are compared, with its values: the headline of all, or the accuracy."""
    headlines = [row.headline for row in rows if row.headline is not None]
    if len(headlines) == len(rows) and len({metric for metric, _ in headlines}) == 1:
        return headlines[0][0], [value for _, value in headlines]
    return Metric.ACCURACY, [row.value(ACCURACY) for row in rows]
