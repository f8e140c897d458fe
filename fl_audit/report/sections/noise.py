"""The noise that is really added, as the insider measured it, over the noise that was promised: a report opens so."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.evidence.belief.family import TestName, TestResult
from fl_audit.evidence.belief.noise_estimate import NoiseEstimate
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Place, Section, Table, finite
from fl_audit.report.sections.verdict import VerdictNumbers
from fl_audit.report.style import BIT_STYLES, INK, MUTED, SMALL_TEXT_SIZE, add_legend, finish_axes, report_figure
from fl_audit.report.test_words import excess_text, limit_text, measured_text, promised_text, title_of, why_missing
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import DASH, one_in, percent, plural, ratio_text

MOST_TENSORS = 12
"""The figure shows no more tensors than these, those with the smallest measured ratio."""

_ASSUMPTION = "each sum is that of D or of D', as both sides of the promise say"


@dataclass(frozen=True)
class NoiseNumbers:
    """What the insider measured of the noise.

    Parameters
    ----------
    estimate
        Measured over promised noise.
    judgement
        The tests of the promise.
    excess
        What noise above the promise costs, in words.
    words
        How the report speaks of what D and D' differ in.
    """

    estimate: NoiseEstimate
    judgement: Judgement
    excess: str
    words: UnitWords

    def to_json(self) -> dict[str, Any]:
        """Return the entry `noise`; what was not measured is None."""
        found, judgement = self.estimate, self.judgement
        return {
            "noise": {
                "ratio": finite(found.ratio),
                "low": finite(found.low),
                "high": finite(found.high),
                "confidence": found.confidence,
                "along_record": finite(found.along_record),
                "along_low": finite(found.along_low),
                "along_high": finite(found.along_high),
                "tensors": [dict(zip(("name", "ratio", "low", "high"), part, strict=True)) for part in found.tensors],
                "excess": self.excess,
                "level": judgement.level,
                "tests": [_test_json(test, self.words) for test in judgement.tests],
                "not_offered": [
                    {"name": str(name), "reason": why_missing(reason)} for name, reason in judgement.not_offered
                ],
            }
        }

    @property
    def main(self) -> tuple[float, float, float] | None:
        """Ratio and interval over all directions, or along the unit's where nothing else was measured."""
        found = self.estimate
        if math.isfinite(found.ratio):
            return found.ratio, found.low, found.high
        if math.isfinite(found.along_record):
            return found.along_record, found.along_low, found.along_high
        return None


def _test_json(test: TestResult, words: UnitWords) -> dict[str, Any]:
    return {
        "name": str(test.name),
        "statistic": finite(test.statistic),
        "p_value": finite(test.p_value),
        "level": test.level,
        "measured": measured_text(test, words),
        "promised": promised_text(test, words),
        "limit": limit_text(test, words),
        "where": test.place,
        "violated": test.violated,
    }


def _measure(run: FinishedRun, findings: Findings) -> NoiseNumbers | None:
    verdict = findings.find(VerdictNumbers)
    if verdict is None or verdict.judgement is None:
        return None
    promise, noise = run.facts.guarantee, verdict.judgement.noise
    excess = "" if promise is None else excess_text(noise.excess, promise)
    return NoiseNumbers(noise, verdict.judgement, excess, verdict.words)


def _sentence(numbers: NoiseNumbers, contents: RunContents) -> str:
    """Return how much noise there really is: the sentence with which a report opens."""
    main = numbers.main
    if main is None:
        return ""
    ratio, confidence = ratio_text(*main), percent(numbers.estimate.confidence)
    everywhere = math.isfinite(numbers.estimate.ratio)
    where = "" if everywhere else f", in the direction in which it has to hide the {contents.facts.words.one},"
    text = (
        f"The noise that this federation really adds{where} is {ratio} times what was promised; the range in brackets "
        f"holds with {confidence} confidence."
    )
    if not numbers.excess:
        return text
    spare = percent(1 - 1 / main[0])
    return (
        f"{text} That is more than was promised: it breaks no promise, and it gives accuracy away, for {spare} less "
        "noise would keep the promise too."
    )


def _console(numbers: NoiseNumbers, contents: RunContents) -> list[tuple[str, str]]:
    main, found, direction = numbers.main, numbers.estimate, contents.facts.words.direction
    if main is None:
        return []
    at = f"at {percent(found.confidence)} confidence"
    if not math.isfinite(found.ratio):
        return [("Noise", f"{ratio_text(*main)} times the promise along {direction}, {at}")]
    if not math.isfinite(found.along_record):
        return [("Noise", f"{ratio_text(*main)} times the promise, {at}")]
    along = ratio_text(found.along_record, found.along_low, found.along_high)
    return [("Noise", f"{ratio_text(*main)} times the promise; along {direction} {along}; {at}")]


def _entries(numbers: NoiseNumbers, contents: RunContents) -> list[Entry]:
    found = numbers.estimate
    at, exact = f"{percent(found.confidence)} confidence", "exact chi-square interval"
    rest = "length of what the release has beside both sums, in all directions but that in which D and D' differ"
    along = "innovations: what the release has beside its sum, in the direction in which D and D' differ"
    parts = (
        ("Measured over promised noise", (found.ratio, found.low, found.high), rest),
        (f"Along {contents.facts.words.direction}", (found.along_record, found.along_low, found.along_high), along),
    )
    entries = []
    for name, (ratio, low, high), method in parts:
        if math.isfinite(ratio):
            entries += [
                Entry(name, ratio, DASH, "none: a point estimate", method, _ASSUMPTION),
                Entry(f"{name}, lower end", low, DASH, at, exact, _ASSUMPTION),
                Entry(f"{name}, upper end", high, DASH, at, exact, _ASSUMPTION),
            ]
    return entries


def _tables(numbers: NoiseNumbers, contents: RunContents) -> list[Table]:
    words = contents.facts.words
    tables = [_test_table(numbers.judgement, words)]
    if numbers.judgement.not_offered:
        missing = tuple((title_of(name, words), why_missing(reason)) for name, reason in numbers.judgement.not_offered)
        tables.append(Table("Tests that this run could not make", ("Test", "Why not"), missing, Place.TESTS))
    if numbers.estimate.tensors:
        columns = ("Parameter tensor", "Measured over promised noise", "Lower end", "Upper end")
        title = f"Noise on each parameter tensor (intervals at {percent(numbers.estimate.confidence)} confidence)"
        tables.append(Table(title, columns, numbers.estimate.tensors))
    return tables


def _test_table(judgement: Judgement, words: UnitWords) -> Table:
    columns = ("Test of", "Finding", "Measured", "Promised", "Limit of detection", "p-value", "Its level", "Statistic")
    rows = tuple(
        (
            title_of(test.name, words),
            "BROKEN" if test.violated else "kept",
            measured_text(test, words),
            promised_text(test, words),
            _limit_of(test, words),
            test.p_value,
            test.level,
            finite(test.statistic),
        )
        for test in judgement.tests
    )
    any_of = "any of them" if len(rows) > 1 else "it"
    title = (
        f"The {plural(len(rows), 'test')} of the promise, declared before the run: a promise that is kept fails "
        f"{any_of} in at most {one_in(judgement.level)} audits"
    )
    return Table(title, columns, rows, place=Place.TESTS, look="tests")


def _limit_of(test: TestResult, words: UnitWords) -> str:
    """Return what a test would have found, and how often, where that is a matter of chance."""
    limit = limit_text(test, words)
    by_chance = limit and test.name not in (TestName.SENSITIVITY, TestName.SCORES)
    return f"{limit}, in 9 of 10 runs" if by_chance else limit or DASH


def _caption(numbers: NoiseNumbers, _: RunContents) -> Caption:
    found, main = numbers.estimate, numbers.main
    left_out = len(found.tensors) - MOST_TENSORS
    fewer = (
        f" Of {len(found.tensors)} tensors the {MOST_TENSORS} with the least noise are shown." if left_out > 0 else ""
    )
    assert main is not None, "drawn only where it was measured"
    text = (
        "The insider knows both candidate sums, so what else is in a release is the noise itself. The figure shows its "
        "standard deviation over the promised one: over all parameters, in the one direction in which D and D' differ, "
        f"and on each parameter tensor, with exact intervals at {percent(found.confidence)} confidence. The line is "
        "the promise: an interval that ends left of it suggests that noise is missing, one that begins right of it "
        "that there is more noise than the promise needs. Of many intervals some miss by chance; the table of tests "
        f"allows for that.{fewer} {numbers.excess}"
    )
    alternative = f"Measured over promised noise: {ratio_text(*main)}, beside the promise at 1."
    return Caption("The noise, measured over promised", text.strip(), alternative)


@dataclass(frozen=True)
class _Row:
    """A measured ratio with its interval, and how it is drawn."""

    name: str
    ratio: float
    low: float
    high: float
    marker: str
    colour: str


def _rows(found: NoiseEstimate, words: UnitWords) -> list[_Row]:
    """Return what is drawn, from the bottom of the figure to its top."""
    inked, coloured = BIT_STYLES[1].colour, BIT_STYLES[0].colour
    shown = sorted(found.tensors, key=lambda part: part[1])[:MOST_TENSORS]
    names = {part[0] for part in shown}
    rows = [_Row(*part, "s", MUTED) for part in reversed(found.tensors) if part[0] in names]
    rows.append(
        _Row(
            f"Along the {words.one}'s\ndirection", found.along_record, found.along_low, found.along_high, "v", coloured
        )
    )
    rows.append(_Row("All parameters", found.ratio, found.low, found.high, "o", inked))
    return [row for row in rows if math.isfinite(row.ratio)]


def noise_figure(numbers: NoiseNumbers, contents: RunContents) -> Figure:
    """Draw measured over promised noise with intervals, in total, along the unit's direction and per tensor."""
    rows = _rows(numbers.estimate, contents.facts.words)
    figure = report_figure(1.9 + 0.42 * len(rows))
    axes = figure.add_subplot()
    axes.axvline(1.0, color=INK, linestyle="-.", linewidth=1.8, label="promised noise")
    for height, row in enumerate(rows):
        _draw_row(axes, row, height)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    ends = np.array([[row.low, row.high] for row in rows])
    # The same axis in every report, but for noise that is far from the promise.
    low, high = min(0.95, ends.min()), max(1.05, ends.max())
    axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    name = "Measured over promised noise (standard deviations)"
    finish_axes(axes, "Noise that is really there", name, "Measured where")
    add_legend(axes)
    return figure


def _draw_row(axes: Axes, row: _Row, height: int) -> None:
    axes.plot([row.low, row.high], [height, height], "-", color=row.colour, linewidth=2.4)
    axes.plot([row.low, row.high], [height, height], "|", color=row.colour, markersize=13, markeredgewidth=1.8)
    axes.plot([row.ratio], [height], row.marker, color=row.colour, markersize=7)
    axes.annotate(
        ratio_text(row.ratio, row.low, row.high), (1.01, height), xycoords=axes.get_yaxis_transform(), va="center",
        fontsize=SMALL_TEXT_SIZE, color=INK, annotation_clip=False,
    )  # fmt: skip


NOISE = Section(
    numbers=NoiseNumbers,
    keys=("noise",),
    measure=_measure,
    heading="The noise that is really added",
    entries=_entries,
    tables=_tables,
    pictures=(Picture("noise", noise_figure, _caption, lambda numbers, _: numbers.main is not None),),
    sentence=_sentence,
    console=_console,
)
