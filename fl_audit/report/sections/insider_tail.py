"""How often the insider became how sure, beside the limit that the promise sets: a tail, and never a density."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import logit

from fl_audit.evidence.findings.insider import EvidenceTail, limit_of, measure_tail, passed_shares
from fl_audit.report.finding import Picture, RunContents, Section
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    PALE,
    SMALL_TEXT_SIZE,
    add_legend,
    draw_band,
    finish_axes,
    report_figure,
)
from fl_audit.report.wording import percent, plural

_REACH = 5.0
"""Where the axis of evidence ends, in nats, in every report whose bound lies well within."""
_FLOOR = 1e-3
"""Where the axis of shares begins, in every report whose delta is not smaller."""
_BELIEFS = (0.5, 0.7, 0.9, 0.97, 0.99, 0.999)


def tail_figure(numbers: EvidenceTail, contents: RunContents) -> Figure:
    """Draw the share of worlds in which the evidence for the truth passes a threshold, beside the promised limit."""
    figure = report_figure(4.4)
    axes = figure.add_subplot()
    run, promise, style = contents.run, numbers.promise, BIT_STYLES[1]
    bound, confidence = numbers.bound, contents.facts.confidence
    end = math.ceil(1.2 * bound) if 0.9 * _REACH <= bound < math.inf else _REACH
    floor = min(_FLOOR, 10.0 ** math.floor(math.log10(promise.delta)))
    grid = np.linspace(0.0, end, 240)
    share, low, high = passed_shares(run.towards_truth, grid, confidence)
    draw_band(axes, grid, np.maximum(low, floor), np.maximum(high, floor), facecolor=PALE, edgecolor=style.colour,
              linewidth=0.8, label=f"its {percent(confidence)} band, point by point")  # fmt: skip
    axes.plot(grid, np.where(share > 0, share, np.nan), "-", color=style.colour, linewidth=2.2,
              label=f"measured, {plural(run.worlds, 'world')}")  # fmt: skip
    axes.plot(grid, limit_of(promise, grid), "-.", color=INK, linewidth=1.8, label="limit while the promise is kept")
    if math.isfinite(bound):
        name = f"promise: {percent(promise.belief_bound)}, passed by {percent(promise.delta)} at most"
        axes.plot([bound], [promise.delta], "D", color=INK, markersize=7, clip_on=False, label=name)
    axes.set(yscale="log", ylim=(floor, 1.05), xlim=(0.0, end))
    finish_axes(axes, "How often the insider became how sure", "Evidence for the truth (log-odds in nats)",
                "Share of worlds that pass it")  # fmt: skip
    if promise.prior == 0.5:
        _add_beliefs(axes, end)
    add_legend(axes)
    return figure


def _add_beliefs(axes: Axes, end: float) -> None:
    """Name some beliefs at the upper edge, at their evidence; only at an even prior are those in D and D' alike."""
    above = axes.secondary_xaxis("top")
    shown = [belief for belief in _BELIEFS if logit(belief) <= end]
    above.set_xticks([float(logit(belief)) for belief in shown], [percent(belief) for belief in shown])
    above.tick_params(labelsize=SMALL_TEXT_SIZE, colors=INK, length=3)
    above.spines["top"].set_visible(False)


def _caption(numbers: EvidenceTail, _: RunContents) -> str:
    passed = "The promise limits no belief." if not math.isfinite(numbers.bound) else (
        f"{numbers.passed:,} of {plural(numbers.worlds, 'world')} passed the diamond, the promise itself."
    )  # fmt: skip
    return (
        f"Worlds in which the evidence for the truth passed a number. A kept promise keeps them under the line, but "
        f"for chance. {passed}"
    )


TAIL = Section(
    name="passing",
    title="How often the insider became how sure",
    numbers=EvidenceTail,
    measure=measure_tail,
    trusts=True,
    picture=Picture("How often the insider became how sure", tail_figure, _caption),
)
