"""What the beliefs say of the audited pair beyond counting: advantage, delta(epsilon) and epsilon with intervals.

The insider's log-odds are the exact likelihood ratio, so means of bounded numbers give what counting gives, far
narrower. That beliefs are calibrated, on which this rests, is shown beside it.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.evidence.belief.advantage import AdvantageEstimate, clopper_pearson
from fl_audit.evidence.belief.bounded_mean import MeanInterval
from fl_audit.evidence.belief.calibration import Calibration, calibration
from fl_audit.evidence.belief.expected import (
    ASSUMPTION,
    PairInterval,
    advantage_from_beliefs,
    delta_from_beliefs,
    epsilon_from_beliefs,
)
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section, Table, finite
from fl_audit.report.sections.insider import POINT, InsiderNumbers
from fl_audit.report.sections.verdict import VerdictNumbers
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    SMALL_TEXT_SIZE,
    add_legend,
    draw_band,
    finish_axes,
    new_figure,
)
from fl_audit.report.theory import Floats
from fl_audit.report.wording import DASH, number_text, percent, plural

_LIKEWISE = "log-odds are the exact likelihood ratio, as above"

CURVE_POINTS = 9
FEWEST_WORLDS = 20
"""With fewer worlds no curve and no reliability diagram is drawn: there would be nothing to see."""


@dataclass(frozen=True)
class CurvePoint:
    """delta(epsilon) of the pair at one epsilon, from beliefs and by counting, each with its interval."""

    epsilon: float
    delta: float
    low: float
    high: float
    counted: float
    counted_low: float
    counted_high: float


@dataclass(frozen=True)
class PairNumbers:
    """What the beliefs say of the pair.

    Parameters
    ----------
    advantage
        The insider's expected advantage.
    counted
        The advantage that was counted, beside it.
    epsilon
        Epsilon of the pair at the promised delta; None where one kind of world is missing.
    curve
        delta(epsilon) of the pair; empty likewise, or with few worlds.
    calibration
        Whether the beliefs agree with what was true.
    """

    advantage: MeanInterval
    counted: AdvantageEstimate
    epsilon: PairInterval | None
    curve: tuple[CurvePoint, ...]
    calibration: Calibration

    def to_json(self) -> dict[str, Any]:
        """Return the entry `pair`."""
        return {
            "pair": {
                "advantage": _interval_json(self.advantage.mean, self.advantage),
                "advantage_standard_error": finite(self.advantage.standard_error),
                "epsilon": None if self.epsilon is None else _interval_json(self.epsilon.value, self.epsilon),
                "delta_of_epsilon": [asdict(point) for point in self.curve],
                "calibration": {
                    "wins": self.calibration.wins,
                    "expected_wins": self.calibration.expected_wins,
                    "wins_p_value": self.calibration.wins_p_value,
                    "p_value": self.calibration.p_value,
                    "bins": [asdict(part) for part in self.calibration.bins],
                },
            }
        }


def _interval_json(value: float, found: MeanInterval | PairInterval) -> dict[str, Any]:
    return {
        "value": finite(value),
        "low": finite(found.low),
        "high": finite(found.high),
        "confidence": found.confidence,
    }


def _measure(run: FinishedRun, findings: Findings) -> PairNumbers | None:
    promise, insider = run.facts.guarantee, findings.find(InsiderNumbers)
    if promise is None or insider is None:
        return None
    prior, confidence = run.facts.prior, run.facts.confidence
    has_both = bool(run.bits.any() and not run.bits.all())
    return PairNumbers(
        advantage=advantage_from_beliefs(run.log_odds, confidence, prior),
        counted=insider.estimate,
        epsilon=epsilon_from_beliefs(run.log_odds, run.bits, promise.delta, confidence) if has_both else None,
        curve=_curve(run, promise.epsilon) if has_both and run.worlds >= FEWEST_WORLDS else (),
        calibration=calibration(run.log_odds, run.bits, confidence, prior),
    )


def _curve(run: FinishedRun, promised: float) -> tuple[CurvePoint, ...]:
    """Return delta(epsilon) at even steps from 0 to a little beyond what was promised or seen."""
    seen = float(np.quantile(np.abs(run.log_odds), 0.9))
    return tuple(_point(run, float(epsilon)) for epsilon in np.linspace(0.0, min(promised, seen) or 1.0, CURVE_POINTS))


def _point(run: FinishedRun, epsilon: float) -> CurvePoint:
    confidence = run.facts.confidence
    found = delta_from_beliefs(run.log_odds, run.bits, epsilon, confidence)
    return CurvePoint(
        epsilon, found.value, found.low, found.high, *counted_delta(run.log_odds, run.bits, epsilon, confidence)
    )


def counted_delta(
    log_odds: Floats, members: np.ndarray[Any, np.dtype[np.bool_]], epsilon: float, confidence: float
) -> tuple[float, float, float]:
    """Return delta(epsilon) of the pair by counting, with its interval.

    The best event for delta(epsilon) is {L > epsilon} (Neyman-Pearson), so delta(epsilon) is P(L > epsilon | D) -
    e^epsilon P(L > epsilon | D'), and the same with D and D' exchanged; the larger counts. Each of the four shares has
    a Clopper-Pearson interval at a quarter of the level.

    Parameters
    ----------
    log_odds
        Log-odds of D against D', without a prior, shape (worlds,).
    members
        Whether D was used, shape (worlds,); at least one world of each kind.
    epsilon
        At least 0.
    confidence
        Above 0 and below 1.
    """
    # Beyond e^700 a price is a price that nobody pays: only a count of exactly 0 keeps the difference positive.
    each, price = 1 - (1 - confidence) / 4, math.exp(min(epsilon, 700.0))
    found = []
    for own, other in ((log_odds[members], log_odds[~members]), (-log_odds[~members], -log_odds[members])):
        hits, false = int((own > epsilon).sum()), int((other > epsilon).sum())
        (low, high), (false_low, false_high) = (
            clopper_pearson(count, part.size, each) for count, part in ((hits, own), (false, other))
        )
        value = hits / own.size - price * false / other.size
        found.append([max(0.0, value), max(0.0, low - price * false_high), max(0.0, high - price * false_low)])
    largest = np.max(np.array(found), axis=0)
    return float(largest[0]), float(largest[1]), float(largest[2])


def _console(numbers: PairNumbers, _: RunContents) -> list[tuple[str, str]]:
    found, counted = numbers.advantage, numbers.counted
    text = (
        f"{number_text(found.mean, 3)} ({number_text(found.low, 3)} to {number_text(found.high, 3)}) from beliefs; "
        f"counted {number_text(counted.advantage, 3)} ({number_text(counted.low, 3)} to {number_text(counted.high, 3)})"
    )
    return [("Advantage", text)]


def _entries(numbers: PairNumbers, contents: RunContents) -> list[Entry]:
    promise, found, shown = contents.facts.guarantee, numbers.advantage, numbers.calibration
    assert promise is not None, "what was not promised is not measured"
    at, betting = f"{percent(found.confidence)} confidence", "betting interval (Waudby-Smith & Ramdas 2024)"
    entries = [
        Entry("Advantage from beliefs", found.mean, DASH, POINT,
              "mean over worlds of what the insider's own belief says of its chance to be right", ASSUMPTION),
        Entry("Its lower end", found.low, DASH, at, betting, _LIKEWISE),
        Entry("Its upper end", found.high, DASH, at, betting, _LIKEWISE),
        Entry("Its standard error", finite(found.standard_error), DASH, DASH,
              "standard deviation over worlds, over the root of their number", _LIKEWISE),
    ]  # fmt: skip
    if (epsilon := numbers.epsilon) is not None:
        method = f"epsilon at which delta(epsilon) of the pair is {promise.delta:g}; the larger of both directions"
        entries += [
            Entry("Epsilon of the pair from beliefs (nats)", finite(epsilon.value), DASH, POINT, method, _LIKEWISE),
            Entry("Its lower end", finite(epsilon.low), DASH, at, betting, _LIKEWISE),
            Entry("Its upper end", finite(epsilon.high), DASH, at,
                  f"{betting}; not determined where so many worlds leave epsilon open above", _LIKEWISE),
        ]  # fmt: skip
    independent = "worlds are independent repetitions"
    return [
        *entries,
        Entry("Right guesses that the beliefs expect", shown.expected_wins, DASH, POINT,
              f"sum of the insider's chances; {shown.wins:,} were counted", _LIKEWISE),
        Entry("Counted against expected (p-value)", shown.wins_p_value, DASH, "exact, two-sided",
              "Poisson-binomial law of the count", independent),
        Entry("Calibration of the beliefs (p-value)", shown.p_value, DASH, "exact, never too small",
              "smallest p-value of the bins of the reliability diagram, times their number", independent),
    ]  # fmt: skip


def _tables(numbers: PairNumbers, _: RunContents) -> list[Table]:
    bins = tuple(
        (f"{percent(part.lowest)} to {percent(part.highest)}", part.worlds, part.members, part.mean_belief, part.share,
         part.low, part.high, part.p_value)
        for part in numbers.calibration.bins
    )  # fmt: skip
    at = f"intervals at {percent(numbers.calibration.confidence)} confidence"
    columns = ("Beliefs in D", "Worlds", "D was used in", "Mean belief", "Share", "Lower end", "Upper end", "p-value")
    tables = [Table(f"Reliability of the beliefs ({at})", columns, bins)]
    if numbers.curve:
        points = tuple(tuple(asdict(point).values()) for point in numbers.curve)
        names = ("Epsilon (nats)", "Delta from beliefs", "Lower end", "Upper end", "Counted", "Lower end", "Upper end")
        tables.append(Table(f"delta(epsilon) of the audited pair ({at})", names, points))
    return tables


def _pair_caption(numbers: PairNumbers, contents: RunContents) -> Caption:
    promise, found = contents.facts.guarantee, numbers.advantage
    assert promise is not None, "what was not promised is not measured"
    narrower = (numbers.counted.high - numbers.counted.low) / max(found.high - found.low, 1e-12)
    text = (
        "Left: the insider's advantage, counted from its guesses and taken from its beliefs, which say of every world "
        f"how likely the guess is right; the interval from beliefs is {number_text(narrower, 2)} times as narrow. "
        "Right: delta as a function of epsilon for this pair of data sets, likewise. The dash-dotted lines are what "
        "the promise allows: a curve that lies above by more than its interval breaks the promise, and one that lies "
        "below means that this pair is less exposed than the worst. Beliefs say this only while they are calibrated, "
        "which the next figure shows, and while the noise is what was promised. Intervals at "
        f"{percent(found.confidence)} confidence, on the right for each point on its own.{_warning(contents)}"
    )
    ends = f"{number_text(found.low, 3)} to {number_text(found.high, 3)}"
    alternative = (
        f"Advantage from beliefs {number_text(found.mean, 3)} ({ends}), promised at most "
        f"{number_text(promise.advantage_bound_exact, 3)}; delta over epsilon, from beliefs and counted, and promised."
    )
    return Caption("Advantage and delta of the audited pair", text, alternative)


def _warning(contents: RunContents) -> str:
    verdict = contents.find(VerdictNumbers)
    if verdict is None or verdict.verdict is not Verdict.VIOLATED:
        return ""
    return (
        " In this run the promise was broken, so beliefs are what the insider believes on the word of the promise, and "
        "not what is so: only what was counted holds."
    )


def _reliability_caption(numbers: PairNumbers, _: RunContents) -> Caption:
    found = numbers.calibration
    text = (
        f"The worlds in {plural(len(found.bins), 'group')} of equal size by the insider's belief in D: how often D was "
        "really used, over the mean belief of the group. Points near the dashed line mean that of the worlds in which "
        f"the insider is 70 % sure, it is right in 70 %. Over all, {number_text(found.expected_wins, 4)} right guesses "
        f"were expected from the beliefs and {found.wins:,} were counted (p = {number_text(found.wins_p_value, 2)}); "
        f"departures of single groups have p = {number_text(found.p_value, 2)} together. Intervals at "
        f"{percent(found.confidence)} confidence."
    )
    alternative = f"Share of worlds with D over belief in D, {plural(len(found.bins), 'point')} beside the diagonal."
    return Caption("Reliability of the beliefs", text, alternative)


def pair_figure(numbers: PairNumbers, contents: RunContents) -> Figure:
    """Draw the advantage and delta(epsilon) of the pair, from beliefs and counted, beside the promise."""
    figure = new_figure()
    left, right = figure.subplots(1, 2, width_ratios=[1, 2])
    _draw_advantages(left, numbers, contents)
    _draw_curve(right, numbers, contents)
    add_legend(right, columns=2)
    return figure


def _draw_advantages(axes: Axes, numbers: PairNumbers, contents: RunContents) -> None:
    promise, found, counted = contents.facts.guarantee, numbers.advantage, numbers.counted
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
    finish_axes(axes, "Advantage", "", "Twice the share of right guesses - 1")


def _draw_curve(axes: Axes, numbers: PairNumbers, contents: RunContents) -> None:
    promise, shown = contents.facts.guarantee, BIT_STYLES[1]
    assert promise is not None, "what was not promised is not drawn"
    epsilon, delta, low, high, counted, counted_low, counted_high = (
        np.array(column) for column in zip(*(asdict(point).values() for point in numbers.curve), strict=True)
    )
    draw_band(axes, epsilon, low, high, facecolor=PALE, edgecolor=shown.colour, linewidth=0.8, hatch="....",
              label="interval from beliefs")  # fmt: skip
    axes.plot(epsilon, delta, "-", color=shown.colour, marker="o", markersize=4, linewidth=2, label="from beliefs")
    other = BIT_STYLES[0].colour
    axes.vlines(epsilon, counted_low, counted_high, color=other, linewidth=1.6, label="counted, with interval")
    axes.plot(epsilon, counted, "v", color=other, markersize=6)
    if math.isfinite(promise.mu) and not contents.facts.is_sampled:
        grid = np.linspace(0.0, float(epsilon[-1]), 200)
        limit = [gdp_delta(float(at), promise.mu) for at in grid]
        axes.plot(grid, limit, "-.", color=INK, linewidth=1.8, label=f"promised, μ = {promise.mu:.3g}")
    axes.set_ylim(bottom=0)
    finish_axes(axes, "delta(epsilon) of this pair", "Epsilon (nats)", "Delta (probability)")


def reliability_figure(numbers: PairNumbers, _: RunContents) -> Figure:
    """Draw how often D was used over the belief in it, with the diagonal of perfect calibration."""
    figure = new_figure()
    axes = figure.add_subplot()
    bins, style = numbers.calibration.bins, BIT_STYLES[1]
    belief, share = (np.array([getattr(part, name) for part in bins]) for name in ("mean_belief", "share"))
    low, high = (np.array([getattr(part, name) for part in bins]) for name in ("low", "high"))
    axes.plot([0, 1], [0, 1], "--", color=INK, linewidth=1.4, label="calibrated")
    axes.vlines(belief, low, high, color=style.colour, linewidth=2)
    axes.plot(belief, share, "o", color=style.colour, markersize=6,
              label=f"measured, {plural(numbers.counted.worlds, 'world')}, with intervals")  # fmt: skip
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    title = "Are the insider's beliefs right as often as they say?"
    finish_axes(axes, title, "Belief in D (probability)", "Share of worlds in which D was used")
    add_legend(axes, columns=2)
    return figure


PAIR = Section(
    numbers=PairNumbers,
    keys=("pair",),
    measure=_measure,
    heading="What the beliefs say of the audited pair",
    entries=_entries,
    tables=_tables,
    pictures=(
        Picture("pair", pair_figure, _pair_caption, lambda numbers, _: bool(numbers.curve)),
        Picture("reliability", reliability_figure, _reliability_caption,
                lambda numbers, _: numbers.counted.worlds >= FEWEST_WORLDS),
    ),
    console=_console,
)  # fmt: skip
