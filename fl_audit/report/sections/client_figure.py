"""Epsilon* of each client's own shard at the last release, beside that of all members together."""

import math

import numpy as np
from matplotlib.figure import Figure

from fl_audit.report.contents import RunContents
from fl_audit.report.page.style import BIT_STYLES, INK, MUTED, add_legend, finish_axes, new_figure, whole_number_axis
from fl_audit.report.wording import number_text


def client_figure(contents: RunContents) -> Figure:
    """Draw median and middle 90 % over worlds of every client's Epsilon*, and that of all members as a line."""
    figure = new_figure()
    axes = figure.add_subplot()
    told = [client for client in contents.value("client_epsilon_star") if client["worlds"]]
    clients = np.array([client["client"] for client in told], dtype=np.int64)
    low, median, high = (np.array([_bounded(client[key]) for client in told]) for key in ("low", "median", "high"))
    shown = np.isfinite(median)
    colour = BIT_STYLES[1].colour
    # An unbounded value has no place on the axis: its bar ends above the largest finite one, in an arrow.
    ends = [values[np.isfinite(values)] for values in (low, median, high)]
    top = max((float(values.max()) for values in ends if values.size), default=1.0)
    reach = np.where(np.isinf(high), 1.05 * top, high)
    axes.vlines(clients[shown], low[shown], reach[shown], color=colour, linewidth=2.4, label="middle 90 % of worlds")
    axes.plot(clients[shown], median[shown], "o", color=colour, markersize=7, label="median over worlds")
    if (unbounded := np.isinf(high)).any():
        axes.plot(
            clients[unbounded], np.full(unbounded.sum(), 1.05 * top), "^", color=INK, markersize=8, label="unbounded"
        )
    together = contents.worlds["epsilon_star"].to_numpy(dtype=np.float64)
    whole = float(np.quantile(together, 0.5, method="inverted_cdf"))
    if np.isfinite(whole):
        axes.axhline(whole, color=MUTED, linestyle="--", linewidth=1.8,
                     label=f"all members together, median: {number_text(whole, 3)}")  # fmt: skip
    whole_number_axis(axes, 0, len(contents.value("client_epsilon_star")) - 1)
    axes.set_ylim(bottom=0)
    finish_axes(axes, "Each data owner against the population, last release", "Client", "Epsilon* of its shard (nats)")
    add_legend(axes, columns=2)
    return figure


def _bounded(value: float | None) -> float:
    """Return a number of the summary, which writes None for what is unbounded."""
    return math.inf if value is None else value
