"""The figure of a finding: what the scores of fresh games were, and the trade-off that they show beside the claim."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.trial import Attempt
from fl_audit.report.style import BIT_STYLES, INK, MUTED, add_legend, finish_axes, new_figure

_BINS = 40


def draw_attempt(claim: StatedClaim, attempt: Attempt) -> Figure:
    """Return the figure: left the scores under D and D', right their trade-off with what the claim allows.

    Parameters
    ----------
    claim
        What is said of the code.
    attempt
        The scores of one game.
    """
    figure = new_figure(4.0)
    left, right = figure.subplots(1, 2)
    _scores(left, attempt)
    _tradeoff(right, claim, attempt)
    add_legend(right, columns=2)
    return figure


def _scores(axes: Axes, attempt: Attempt) -> None:
    # A score has no unit: it is shown in spreads of all scores, from where the guess changes.
    shown = (attempt.scores - attempt.lead.threshold) / max(float(attempt.scores.std()), 1e-300)
    low, high = np.quantile(shown, [0.001, 0.999])
    pad = max(float(high - low), 1e-9) * 0.05
    edges = np.linspace(low - pad, high + pad, _BINS + 1)
    for bit in (1, 0):
        style = BIT_STYLES[bit]
        values = np.clip(shown[attempt.present == bool(bit)], edges[0], edges[-1])
        heights, _ = np.histogram(values, edges)
        axes.stairs(heights, edges, fill=True, color=style.fill, alpha=0.6, hatch=style.hatch)
        axes.stairs(heights, edges, color=style.colour, linestyle=style.line, linewidth=1.6, label="D" if bit else "D'")
    axes.axvline(0, color=INK, linewidth=1, linestyle=":")
    axes.legend(frameon=False, fontsize=9)
    finish_axes(axes, "Scores of fresh games", "score, in spreads (right of the line: guess D)", "games")


def _tradeoff(axes: Axes, claim: StatedClaim, attempt: Attempt) -> None:
    one = np.sort(attempt.scores[attempt.present])
    zero = np.sort(attempt.scores[~attempt.present])
    thresholds = np.unique(attempt.scores)[::-1]
    found = 1 - np.searchsorted(one, thresholds, side="left") / one.size
    alarms = 1 - np.searchsorted(zero, thresholds, side="left") / zero.size
    floor = 0.5 / zero.size
    axes.step(np.maximum(alarms, floor), found, where="post", color=INK, linewidth=1.8, label="measured")
    rates = np.geomspace(floor, 1, 200)
    allowed = np.min([np.exp(limit.epsilon) * rates + limit.delta for limit in claim.limits], axis=0)
    axes.plot(rates, np.minimum(allowed, 1), color=MUTED, linestyle="--", linewidth=1.6, label="most that is claimed")
    axes.plot(rates, rates, color=MUTED, linestyle=":", linewidth=1, label="guessing")
    axes.set_xscale("log")
    axes.set_xlim(floor, 1)
    axes.set_ylim(0, 1.02)
    finish_axes(axes, "Trade-off", "false alarms: share of D' taken for D", "share of D found")
