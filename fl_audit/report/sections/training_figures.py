"""What happened in training: local sensitivity over rounds, accuracy and Epsilon* over releases."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.report.contents import RunContents
from fl_audit.report.page.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    SMALL_TEXT_SIZE,
    add_legend,
    draw_band,
    finish_axes,
    markers_for,
    new_figure,
    whole_number_axis,
)
from fl_audit.report.theory import Floats
from fl_audit.report.wording import number_text

SQUASH = 4.0
"""A promised epsilon more than this many times above the largest Epsilon* drawn would flatten the curve."""

SMALL_SENSITIVITY = 0.05
"""Where every median lies below this share of the clipping norm, the axis of the sensitivities is logarithmic."""


def local_sensitivity_figure(contents: RunContents) -> Figure:
    """Draw the local sensitivities over the rounds against the clipping norm and the global sensitivity."""
    figure = new_figure()
    axes = figure.add_subplot()
    rounds, quantiles = quantiles_by_round(contents.rounds, "local_sensitivity", (0, 0.25, 0.5, 0.75, 1))
    if len(contents.worlds) > 1:
        _draw_spread(axes, rounds, quantiles)
    _draw_median(axes, rounds, quantiles[2], _median_name(contents))
    _draw_sensitivity_limits(axes, contents)
    if quantiles[2].max() < SMALL_SENSITIVITY * contents.law.clipping_norm:
        axes.set_yscale("log", nonpositive="clip")
    else:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    whole_number_axis(axes, int(rounds[0]), int(rounds[-1]))
    finish_axes(
        axes,
        "What the differing record can change",
        "Round (number)",
        "Local sensitivity of the gradient sum\n(L2 norm, gradient units)",
    )
    add_legend(axes, columns=2)
    return figure


def releases_figure(contents: RunContents) -> Figure:
    """Draw test accuracy and, where it was computed, Epsilon* over the releases."""
    with_star = contents.has_epsilon_star
    figure = new_figure(5.6 if with_star else 3.8)
    panels = figure.subplots(2 if with_star else 1, 1, sharex=True, squeeze=False)[:, 0]
    first, last = int(contents.releases["round"].min()), int(contents.releases["round"].max())
    x_name = "Release (number; 0 = initial model)"
    _draw_release_curve(panels[0], contents, "test_accuracy", 100.0)
    finish_axes(panels[0], "Accuracy of each released model", "" if with_star else x_name, "Test accuracy (%)")
    if with_star:
        _draw_release_curve(panels[1], contents, "epsilon_star", 1.0)
        _draw_promised_epsilon(panels[1], contents)
        panels[1].set_ylim(0, 1.05 * max(panels[1].get_ylim()[1], 1e-3))
        finish_axes(panels[1], "Epsilon* of each released model", x_name, f"Epsilon* (nats){_at_delta(contents)}")
    whole_number_axis(panels[-1], first, last)
    _add_release_legend(figure, panels[-1])
    return figure


def quantiles_by_round(table: pd.DataFrame, column: str, levels: tuple[float, ...]) -> tuple[Floats, list[Floats]]:
    """Return the rounds of a table and, for each level, that quantile over the worlds at each round.

    Values that are not finite are left out; a round without any has NaN.
    """
    finite = table[np.isfinite(table[column].to_numpy(dtype=np.float64, na_value=np.nan))]
    by_round = finite.groupby("round")[column]
    rounds = np.sort(table["round"].unique())
    curves = [by_round.quantile(level).reindex(rounds).to_numpy(dtype=np.float64) for level in levels]
    return rounds.astype(np.float64), curves


def promise_fits(contents: RunContents) -> bool:
    """Whether a line at the promised epsilon leaves the curve of Epsilon* readable."""
    epsilon = contents.number("guarantee", "epsilon")
    if epsilon is None or not contents.has_epsilon_star:
        return False
    _, (high,) = quantiles_by_round(contents.releases, "epsilon_star", (0.95,))
    return epsilon <= SQUASH * float(np.nanmax(high))


def _median_name(contents: RunContents) -> str:
    count = len(contents.worlds)
    return "measured, the one world" if count == 1 else f"measured, median of {count:,} worlds"


def _draw_median(axes: Axes, x: Floats, y: Floats, label: str) -> None:
    style = BIT_STYLES[1]
    axes.plot(x, y, "-", color=style.colour, linewidth=2, marker=style.marker, **markers_for(len(x)), label=label)


def _draw_spread(axes: Axes, rounds: Floats, quantiles: list[Floats]) -> None:
    """Draw the whole range of the worlds and, darker, their middle half."""
    draw_band(
        axes, rounds, quantiles[0], quantiles[4], facecolor=PALE, edgecolor=MUTED, linewidth=0.6,
        label="smallest to largest world",
    )  # fmt: skip
    style = BIT_STYLES[1]
    draw_band(
        axes, rounds, quantiles[1], quantiles[3], facecolor=style.fill, edgecolor=style.colour, linewidth=0.6,
        hatch="////", alpha=0.7, label="middle half of the worlds",
    )  # fmt: skip


def _draw_sensitivity_limits(axes: Axes, contents: RunContents) -> None:
    law = contents.law
    clip = number_text(law.clipping_norm)
    if law.global_sensitivity == law.clipping_norm:
        label = f"clipping norm C = global sensitivity = {clip}"
        axes.axhline(law.clipping_norm, color=INK, linestyle="-.", linewidth=1.8, label=label)
        return
    axes.axhline(law.clipping_norm, color=INK, linestyle=":", linewidth=1.8, label=f"clipping norm C = {clip}")
    label = f"global sensitivity = {number_text(law.global_sensitivity)}"
    axes.axhline(law.global_sensitivity, color=INK, linestyle="-.", linewidth=1.8, label=label)


def _draw_release_curve(axes: Axes, contents: RunContents, column: str, scale: float) -> None:
    rounds, (low, middle, high) = quantiles_by_round(contents.releases, column, (0.05, 0.5, 0.95))
    style = BIT_STYLES[1]
    if len(contents.worlds) > 1:
        draw_band(
            axes, rounds, scale * low, scale * high, facecolor=style.fill, edgecolor=style.colour, linewidth=0.6,
            alpha=0.6, label="5 % to 95 % of the worlds",
        )  # fmt: skip
    _draw_median(axes, rounds, scale * middle, _median_name(contents))


def _draw_promised_epsilon(axes: Axes, contents: RunContents) -> None:
    epsilon = contents.number("guarantee", "epsilon")
    if epsilon is not None and promise_fits(contents):
        label = f"promised epsilon = {number_text(epsilon)} ({contents.value('guarantee', 'accountant')})"
        axes.axhline(epsilon, color=INK, linestyle="-.", linewidth=1.8, label=label)


def _add_release_legend(figure: Figure, lowest: Axes) -> None:
    """Add one legend for all panels: the lowest has every kind of line that the others have."""
    handles, labels = lowest.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, fontsize=SMALL_TEXT_SIZE, ncols=2)


def _at_delta(contents: RunContents) -> str:
    delta = contents.number("epsilon_star", "delta")
    return "" if delta is None else f"\nat δ = {number_text(delta)}"
