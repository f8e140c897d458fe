"""What the beliefs say of the audited pair, drawn: advantage and delta(epsilon), and whether beliefs are calibrated."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.evidence.belief.advantage import AdvantageEstimate
from fl_audit.evidence.belief.bounded_mean import MeanInterval
from fl_audit.evidence.belief.calibration import Calibration
from fl_audit.report.contents import RunContents
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    SMALL_TEXT_SIZE,
    add_legend,
    draw_band,
    finish_axes,
    report_figure,
)
from fl_audit.report.theory import Floats
from fl_audit.report.wording import number_text, plural


def pair_figure(
    contents: RunContents, advantage: MeanInterval, counted: AdvantageEstimate, curve: dict[str, Floats]
) -> Figure:
    """Draw the advantage and delta(epsilon) of the pair, from beliefs and counted, beside the promise.

    Parameters
    ----------
    contents
        The run.
    advantage, counted
        The advantage from beliefs, and the one that was counted.
    curve
        The columns of `PairNumbers.curve` by their names, each of shape (points,), at least one point.
    """
    figure = report_figure(6.4)
    left, right = figure.subplots(2, 1, height_ratios=[2, 3])
    _draw_advantages(left, contents, advantage, counted)
    _draw_curve(right, contents, curve)
    add_legend(right, columns=2)
    return figure


def _draw_advantages(axes: Axes, contents: RunContents, found: MeanInterval, counted: AdvantageEstimate) -> None:
    promise = contents.facts.guarantee
    assert promise is not None, "what was not promised is not drawn"
    rows = ((counted.advantage, counted.low, counted.high, "v", BIT_STYLES[0].colour),
            (found.mean, found.low, found.high, "o", BIT_STYLES[1].colour))  # fmt: skip
    for place, (value, low, high, marker, colour) in enumerate(rows):
        axes.plot([place, place], [low, high], "-", color=colour, linewidth=2.4)
        axes.plot([place, place], [low, high], "_", color=colour, markersize=14, markeredgewidth=1.8)
        axes.plot([place], [value], marker, color=colour, markersize=7)
        axes.annotate(number_text(value, 3), (place, value), (9, 0), textcoords="offset points", va="center",
                      fontsize=SMALL_TEXT_SIZE, color=INK)  # fmt: skip
    axes.axhline(promise.advantage_bound_exact, color=INK, linestyle="-.", linewidth=1.8)
    axes.axhline(0, color=MUTED, linewidth=1.2)
    axes.set_xticks([0, 1], ["counted", "from\nbeliefs"])
    axes.set_xlim(-0.5, 1.7)
    finish_axes(axes, "Advantage", "", "Twice the share of\nright guesses - 1")


def _draw_curve(axes: Axes, contents: RunContents, curve: dict[str, Floats]) -> None:
    promise, shown = contents.facts.guarantee, BIT_STYLES[1]
    assert promise is not None, "what was not promised is not drawn"
    epsilon = curve["epsilon"]
    draw_band(axes, epsilon, curve["low"], curve["high"], facecolor=PALE, edgecolor=shown.colour, linewidth=0.8,
              hatch="....", label="interval from beliefs")  # fmt: skip
    axes.plot(
        epsilon, curve["delta"], "-", color=shown.colour, marker="o", markersize=4, linewidth=2, label="from beliefs"
    )
    other = BIT_STYLES[0].colour
    low, high = curve["counted_low"], curve["counted_high"]
    axes.vlines(epsilon, low, high, color=other, linewidth=1.6, label="counted, with interval")
    axes.plot(epsilon, curve["counted"], "v", color=other, markersize=6)
    if contents.facts.game.law.weighs_exactly:
        grid, profile = np.linspace(0.0, float(epsilon[-1]), 200), promise.claim.profile
        limit = [profile.delta(float(at)) for at in grid]
        name = "promised" if profile.gaussian_mu is None else f"promised, μ = {promise.mu:.3g}"
        axes.plot(grid, limit, "-.", color=INK, linewidth=1.8, label=name)
    axes.set_ylim(bottom=0)
    finish_axes(axes, "delta(epsilon) of this pair", "Epsilon (nats)", "Delta (probability)")


def reliability_figure(calibration: Calibration, worlds: int) -> Figure:
    """Draw how often D was used over the belief in it, with the diagonal of perfect calibration.

    Parameters
    ----------
    calibration
        Whether the beliefs agree with what was true.
    worlds
        Number of worlds that it rests on.
    """
    figure = report_figure()
    axes = figure.add_subplot()
    bins, style = calibration.bins, BIT_STYLES[1]
    belief, share = (np.array([getattr(part, name) for part in bins]) for name in ("mean_belief", "share"))
    low, high = (np.array([getattr(part, name) for part in bins]) for name in ("low", "high"))
    axes.plot([0, 1], [0, 1], "--", color=INK, linewidth=1.4, label="calibrated")
    axes.vlines(belief, low, high, color=style.colour, linewidth=2)
    axes.plot(belief, share, "o", color=style.colour, markersize=6,
              label=f"measured, {plural(worlds, 'world')}, with intervals")  # fmt: skip
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    title = "Are the insider's beliefs right as often as they say?"
    finish_axes(axes, title, "Belief in D (probability)", "Share of worlds in which D was used")
    add_legend(axes, columns=2)
    return figure
