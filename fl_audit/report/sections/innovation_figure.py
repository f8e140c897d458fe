"""Whether the insider's log-odds obey their law: quantiles of the innovations against those of N(0, 1)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fl_audit.evidence.belief.innovations import increments_of, innovations
from fl_audit.report.contents import RunContents
from fl_audit.report.page.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    SMALL_TEXT_SIZE,
    TEXT_SIZE,
    draw_band,
    finish_axes,
    new_figure,
    span,
)
from fl_audit.report.theory import Band, Floats, normal_order_band, spread_ranks
from fl_audit.report.wording import plural


def innovations_by_bit(contents: RunContents) -> dict[int, Floats]:
    """Return the innovations of the worlds of either bit, sorted; a bit without any is left out.

    The innovation of a round is (L_i - L_{i-1} -+ mu_i^2/2) / mu_i, minus for bit 1 and plus for bit 0, with
    mu_i = local sensitivity / sigma; rounds in which the record changes nothing (mu_i = 0) have none.
    """
    # Runs of an older version kept cumulated log-odds only.
    stored = "increment" in contents.rounds
    increments = (
        by_world_and_round(contents, "increment") if stored else increments_of(by_world_and_round(contents, "log_odds"))
    )
    sensitivity, sigma = (by_world_and_round(contents, name) for name in ("local_sensitivity", "sigma"))
    signal = np.divide(sensitivity, sigma, out=np.zeros_like(sensitivity), where=sensitivity > 0)
    worlds = np.sort(contents.rounds["world"].unique())
    bits = contents.worlds.set_index("world")["bit"].loc[worlds].to_numpy(dtype=np.int64)
    values = innovations(increments, signal, bits)
    parts = {bit: values[bits == bit] for bit in BIT_STYLES}
    return {bit: np.sort(part[~np.isnan(part)]) for bit, part in parts.items() if not np.all(np.isnan(part))}


def by_world_and_round(contents: RunContents, column: str) -> Floats:
    """Return one column of the table of rounds as an array of shape (worlds, rounds), both in ascending order."""
    return contents.rounds.pivot(index="world", columns="round", values=column).to_numpy(dtype=np.float64)


def innovations_figure(contents: RunContents) -> Figure:
    """Draw the innovations of either bit against N(0, 1): quantiles above, departures from the line below."""
    parts = innovations_by_bit(contents)
    if not parts:
        return _empty_figure()
    figure = new_figure(5.8)
    title = "Do the steps of the insider's evidence follow their law?"
    figure.suptitle(title, x=0.01, ha="left", fontsize=TEXT_SIZE, fontweight="bold", color=INK)
    panels = figure.subplots(2, len(parts), sharex=True, sharey="row", squeeze=False, height_ratios=[3, 2])
    for column, (bit, values) in enumerate(parts.items()):
        ranks = spread_ranks(len(values))
        band = normal_order_band(len(values), ranks)
        chosen = values[ranks - 1]
        _draw_quantiles(panels[0, column], bit, chosen, band)
        _draw_departures(panels[1, column], bit, chosen, band)
        finish_axes(panels[0, column], "", "", "Measured quantile\n(standard deviations)" if column == 0 else "")
        title = f"{BIT_STYLES[bit].name}, {plural(len(values), 'innovation')}"
        panels[0, column].set_title(title, fontsize=TEXT_SIZE, loc="left", color=INK)
        y_name = "Measured - law\n(standard deviations)" if column == 0 else ""
        finish_axes(panels[1, column], "", "Quantile of N(0, 1) (standard deviations)", y_name)
    _add_common_legend(figure, list(parts))
    return figure


def _draw_quantiles(axes: Axes, bit: int, values: Floats, band: Band) -> None:
    style = BIT_STYLES[bit]
    draw_band(axes, band.middle, band.low, band.high, facecolor=PALE, edgecolor=MUTED, linewidth=0.8)
    low, high = span(band.low, band.high)
    axes.plot([low, high], [low, high], color=INK, linewidth=1.2, linestyle="--")
    axes.plot(band.middle, values, style.marker, color=style.colour, markersize=3, markerfacecolor="none")


def _draw_departures(axes: Axes, bit: int, values: Floats, band: Band) -> None:
    style = BIT_STYLES[bit]
    low, high = band.low - band.middle, band.high - band.middle
    draw_band(axes, band.middle, low, high, facecolor=PALE, edgecolor=MUTED, linewidth=0.8)
    axes.axhline(0, color=INK, linewidth=1.2, linestyle="--")
    axes.plot(band.middle, values - band.middle, style.marker, color=style.colour, markersize=3, markerfacecolor="none")


def _add_common_legend(figure: Figure, bits: list[int]) -> None:
    marks: list[Line2D | Patch] = [
        Line2D([], [], linestyle="", marker=BIT_STYLES[bit].marker, color=BIT_STYLES[bit].colour,
               markerfacecolor="none", markersize=5, label=f"measured, {BIT_STYLES[bit].short}")
        for bit in bits
    ]  # fmt: skip
    marks.append(Line2D([], [], color=INK, linewidth=1.2, linestyle="--", label="law N(0, 1)"))
    marks.append(Patch(facecolor=PALE, edgecolor=MUTED, label="95 % band, point by point"))
    figure.legend(handles=marks, loc="outside lower center", ncols=4, frameon=False, fontsize=SMALL_TEXT_SIZE)


def _empty_figure() -> Figure:
    figure = new_figure(1.6)
    text = "No innovations: the differing record changed nothing in any round."
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=TEXT_SIZE, color=INK)
    return figure
