"""What the beliefs say of the audited pair beyond counting: advantage, delta(epsilon) and epsilon with intervals.

The insider's log-odds are the exact likelihood ratio, so means of bounded numbers give what counting gives, far
narrower. That beliefs are calibrated, on which this rests, is shown beside it.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fl_audit.evidence.belief.advantage import AdvantageEstimate
from fl_audit.evidence.belief.bounded_mean import MeanInterval
from fl_audit.evidence.belief.calibration import Calibration, calibration
from fl_audit.evidence.belief.expected import (
    ASSUMPTION,
    PairInterval,
    advantage_from_beliefs,
    counted_delta,
    delta_from_beliefs,
    epsilon_from_beliefs,
)
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section, Table, finite
from fl_audit.report.sections.insider import POINT, InsiderNumbers
from fl_audit.report.sections.pair_figures import pair_figure, reliability_figure
from fl_audit.report.sections.verdict import VerdictNumbers
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

    @property
    def curve_columns(self) -> dict[str, Floats]:
        """The curve as columns (points,), by the names of `CurvePoint`."""
        return {
            field.name: np.array([getattr(point, field.name) for point in self.curve]) for field in fields(CurvePoint)
        }

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
    # Beliefs say this of the pair where they come from the exact likelihood ratio, and nowhere else.
    if promise is None or insider is None or not run.facts.game.law.weighs_exactly:
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
    told, counted = (
        estimate(run.log_odds, run.bits, epsilon, run.facts.confidence)
        for estimate in (delta_from_beliefs, counted_delta)
    )
    return CurvePoint(epsilon, told.value, told.low, told.high, counted.value, counted.low, counted.high)


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
        "Above: the insider's advantage, counted from its guesses and taken from its beliefs, which say of every world "
        f"how likely the guess is right; the interval from beliefs is {number_text(narrower, 2)} times as narrow. "
        "Below: delta as a function of epsilon for this pair of data sets, likewise. The dash-dotted lines are what "
        "the promise allows: a curve that lies above by more than its interval breaks the promise, and one that lies "
        "below means that this pair is less exposed than the worst. Beliefs say this only while they are calibrated, "
        "which the next figure shows, and while the noise is what was promised. Intervals at "
        f"{percent(found.confidence)} confidence, below for each point on its own.{_warning(contents)}"
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


def _at_the_coin(contents: RunContents) -> str:
    """Say at which prior beliefs are taken, where that is not the insider's own."""
    if contents.facts.prior == 0.5:
        return ""
    return f", taken at the coin's 50 % and not at its own prior of {percent(contents.facts.prior)}"


def _reliability_caption(numbers: PairNumbers, contents: RunContents) -> Caption:
    found = numbers.calibration
    text = (
        f"The worlds in {plural(len(found.bins), 'group')} of equal size by the insider's belief in D"
        f"{_at_the_coin(contents)}: how often D was really used, over the mean belief of the group. Points near the "
        "dashed line mean that of the worlds in which the insider is 70 % sure, it is right in 70 %. Over "
        f"all, {number_text(found.expected_wins, 3)} right guesses "
        f"were expected from the beliefs and {found.wins:,} were counted (p = {number_text(found.wins_p_value, 2)}); "
        f"departures of single groups have p = {number_text(found.p_value, 2)} together. Intervals at "
        f"{percent(found.confidence)} confidence."
    )
    alternative = f"Share of worlds with D over belief in D, {plural(len(found.bins), 'point')} beside the diagonal."
    return Caption("Reliability of the beliefs", text, alternative)


def _draw_pair(numbers: PairNumbers, contents: RunContents) -> Figure:
    return pair_figure(contents, numbers.advantage, numbers.counted, numbers.curve_columns)


def _draw_reliability(numbers: PairNumbers, _: RunContents) -> Figure:
    return reliability_figure(numbers.calibration, numbers.counted.worlds)


PAIR = Section(
    numbers=PairNumbers,
    keys=("pair",),
    measure=_measure,
    heading="What the beliefs say of the audited pair",
    entries=_entries,
    tables=_tables,
    pictures=(
        Picture("pair", _draw_pair, _pair_caption, lambda numbers, _: bool(numbers.curve)),
        Picture("reliability", _draw_reliability, _reliability_caption,
                lambda numbers, _: numbers.counted.worlds >= FEWEST_WORLDS),
    ),
    console=_console,
)  # fmt: skip
