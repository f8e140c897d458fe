"""The insider's trade-off: how many worlds with D it finds at how many false alarms, beside what the promise allows."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fl_audit.errors import InputError
from fl_audit.evidence.bounds.tradeoff_band import TradeoffBand, tradeoff_band
from fl_audit.evidence.membership.limits import largest_tpr
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section
from fl_audit.report.style import BIT_STYLES, INK, MUTED, PALE, add_legend, draw_band, finish_axes, report_figure
from fl_audit.report.theory import Floats
from fl_audit.report.wording import DASH, percent

FEWEST = 20
"""A curve of fewer worlds of either kind has steps too large to say anything."""
_SMALLEST_RATE = 1e-3
_AT = 0.1
"""Share of false alarms at which numbers are told."""
_BAND = "Clopper-Pearson bounds above two ranks of the worlds with D'"


@dataclass(frozen=True)
class TradeoffNumbers:
    """The trade-off at one share of false alarms.

    Parameters
    ----------
    false_alarms
        Share of the worlds with D' that is taken for D.
    found, low, high
        Share of the worlds with D that is found at it, with its interval.
    allowed
        The largest share that the promise allows.
    """

    false_alarms: float
    found: float
    low: float
    high: float
    allowed: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `tradeoff`."""
        return {"tradeoff": asdict(self)}


def _measure(run: FinishedRun, _: Findings) -> TradeoffNumbers | None:
    promise = run.facts.guarantee
    if promise is None or not run.has_insider or min(run.bits.sum(), (~run.bits).sum()) < FEWEST:
        return None
    try:
        allowed = float(largest_tpr(promise.claim.profile, _AT))
    except InputError:  # so little noise that no grid holds the losses
        return None
    curve = _curve(run, np.array([_AT]))
    return TradeoffNumbers(_AT, float(curve.found[0]), float(curve.low[0]), float(curve.high[0]), allowed)


def _curve(run: FinishedRun, alarms: Floats) -> TradeoffBand:
    return tradeoff_band(run.log_odds[run.bits], run.log_odds[~run.bits], alarms, run.facts.confidence)


def tradeoff_figure(_: TradeoffNumbers, contents: RunContents) -> Figure:
    """Draw the measured trade-off with its band, and what the promise leaves to nobody, on logarithmic axes."""
    figure = report_figure(4.4)
    axes = figure.add_subplot()
    promise, style, run = contents.facts.guarantee, BIT_STYLES[1], contents.run
    assert promise is not None, "only what was promised is drawn"
    smallest = max(_SMALLEST_RATE, 1 / int((~run.bits).sum()))
    curve = _curve(run, np.geomspace(smallest, 1, 60))
    draw_band(
        axes, curve.alarms, np.maximum(curve.low, _SMALLEST_RATE), curve.high, facecolor=PALE, linewidth=0.8,
        edgecolor=style.colour, label=f"its {percent(run.facts.confidence)} band, point by point",
    )  # fmt: skip
    axes.plot(curve.alarms, np.maximum(curve.found, _SMALLEST_RATE), "-", color=style.colour, linewidth=2.2,
              label="the insider, measured")  # fmt: skip
    rates = np.geomspace(_SMALLEST_RATE, 1, 60)
    allowed = largest_tpr(promise.claim.profile, rates)
    axes.plot(rates, allowed, linestyle="-.", color=INK, linewidth=1.8, label="most that is promised")
    axes.fill_between(rates, allowed, 1.0, facecolor="none", edgecolor=MUTED, hatch="//", linewidth=0)
    axes.plot(rates, rates, ":", color=MUTED, linewidth=1.4, label="coin-flipping")
    axes.set(xscale="log", yscale="log", xlim=(_SMALLEST_RATE, 1), ylim=(_SMALLEST_RATE, 1.05))
    finish_axes(axes, "What the insider finds, at how many false alarms", "False alarms: share of D' taken for D",
                "Share of D found")  # fmt: skip
    add_legend(axes)
    return figure


def _caption(numbers: TradeoffNumbers, contents: RunContents) -> Caption:
    confidence = percent(contents.facts.confidence)
    at = (
        f"At {percent(numbers.false_alarms)} false alarms the insider finds {percent(round(numbers.found, 3))} "
        f"({percent(round(numbers.low, 3))} to {percent(round(numbers.high, 3))} at {confidence} confidence); the "
        f"promise allows {percent(round(numbers.allowed, 3))}"
    )
    text = (
        "Worlds with D that the insider finds, over worlds with D' that it takes for one, as its demand for evidence "
        f"falls. Both axes are logarithmic: what is found for sure stands at the left. {at}. While the promise is kept "
        "nobody comes into the hatched region, but by chance: the band holds at each point by itself, so that in a few "
        "places it may."
    )
    return Caption("The insider's trade-off", text, f"Share of D found over false alarms. {at}.")


def _entries(numbers: TradeoffNumbers, contents: RunContents) -> list[Entry]:
    at = f"{percent(contents.facts.confidence)} confidence"
    where = f"at {percent(numbers.false_alarms)} false alarms"
    method = f"worlds with D above the threshold {where}, counted"
    return [
        Entry("False alarms of the trade-off", numbers.false_alarms, DASH, DASH, "chosen before the run", DASH, True),
        Entry(f"Found {where}", numbers.found, DASH, "none: a point estimate", method, DASH, True),
        Entry(f"Found {where}, lower end", numbers.low, DASH, at, _BAND, DASH, True),
        Entry(f"Found {where}, upper end", numbers.high, DASH, at, _BAND, DASH, True),
        Entry(f"Found {where}, as promised at most", numbers.allowed, "exact profile", "holds always",
              "largest true-positive rate under the claim", DASH, True),
    ]  # fmt: skip


TRADEOFF = Section(
    numbers=TradeoffNumbers,
    keys=("tradeoff",),
    measure=_measure,
    heading="The insider's trade-off",
    entries=_entries,
    pictures=(Picture("tradeoff", tradeoff_figure, _caption),),
)
