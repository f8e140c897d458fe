"""The insider's trade-off: how many worlds with D it finds at how many false alarms, beside what the promise allows."""

import numpy as np
from matplotlib.figure import Figure

from fl_audit.evidence.findings.empirical_epsilon import TradeoffNumbers, curve_of, measure_tradeoff
from fl_audit.evidence.membership.limits import largest_tpr
from fl_audit.report.finding import Picture, Row, RunContents, Section
from fl_audit.report.style import BIT_STYLES, LIMIT, MUTED, PALE, draw_band, finish_axes
from fl_audit.report.wording import percent

_SMALLEST_RATE = 1e-3
_BAND = "Clopper-Pearson bounds above two ranks of the worlds with D'"


def _tradeoff_figure(figure: Figure, _: TradeoffNumbers, contents: RunContents) -> None:
    """Draw the measured trade-off with its band, and what the promise leaves to nobody, on logarithmic axes."""
    axes = figure.add_subplot()
    promise, style, run = contents.promise, BIT_STYLES[1], contents.run
    smallest = max(_SMALLEST_RATE, 1 / int((~run.bits).sum()))
    curve = curve_of(run, np.geomspace(smallest, 1, 60))
    draw_band(
        axes, curve.alarms, np.maximum(curve.low, _SMALLEST_RATE), curve.high, facecolor=PALE, linewidth=0.8,
        edgecolor=style.colour, label=f"its {percent(run.facts.confidence)} band, point by point",
    )  # fmt: skip
    axes.plot(curve.alarms, np.maximum(curve.found, _SMALLEST_RATE), "-", color=style.colour, linewidth=2.2,
              label="the insider, measured")  # fmt: skip
    rates = np.geomspace(_SMALLEST_RATE, 1, 60)
    allowed = largest_tpr(promise.claim.profile, rates)
    axes.plot(rates, allowed, label="most that is promised", **LIMIT)
    axes.fill_between(rates, allowed, 1.0, facecolor="none", edgecolor=MUTED, hatch="//", linewidth=0)
    axes.plot(rates, rates, ":", color=MUTED, linewidth=1.4, label="coin-flipping")
    axes.set(xscale="log", yscale="log", xlim=(_SMALLEST_RATE, 1), ylim=(_SMALLEST_RATE, 1.05))
    finish_axes(axes, "What the insider finds, at how many false alarms", "False alarms: share of D' taken for D",
                "Share of D found")  # fmt: skip


def _caption(numbers: TradeoffNumbers, contents: RunContents) -> str:
    row = _found_row(numbers, contents)
    found, low, high, allowed = (
        percent(round(share, 3)) for share in (numbers.found, numbers.low, numbers.high, numbers.allowed)
    )
    return (
        f"At {percent(numbers.false_alarms)} false alarms the insider finds {found} ({low} to {high} at "
        f"{percent(contents.facts.confidence)}); {allowed} is allowed{row.aside}. A kept promise lets nobody into the "
        "hatched region, but by chance."
    )


def _rows(numbers: TradeoffNumbers, contents: RunContents) -> list[Row]:
    alarms = Row("False alarms of the trade-off", numbers.false_alarms, "chosen before the run", is_share=True)
    return [alarms, _found_row(numbers, contents)]


def _found_row(numbers: TradeoffNumbers, contents: RunContents) -> Row:
    where = f"at {percent(numbers.false_alarms)} false alarms"
    method = f"worlds with D above the threshold {where}, counted; {_BAND}"
    return Row(
        f"Share of D found {where}", numbers.found, method, numbers.low, numbers.high, contents.facts.confidence,
        numbers.allowed, is_share=True, on_page=True,
    )  # fmt: skip


TRADEOFF = Section(
    name="tradeoff", title="The insider's trade-off", numbers=TradeoffNumbers, measure=measure_tradeoff,
    keys=("tradeoff",), trusts=True, rows=_rows,
    picture=Picture("The insider's trade-off", _tradeoff_figure, _caption, height=4.4),
)  # fmt: skip
