"""The noise that is really added, as the insider measured it, over the noise that was promised."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.evidence.belief.verdict import Judgement, depends_on_secret
from fl_audit.evidence.findings.verdict import NoiseNumbers, measure_noise
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.report.finding import Picture, Row, RunContents, Section, Table
from fl_audit.report.style import BIT_STYLES, INK, LIMIT, MUTED, SMALL_TEXT_SIZE, finish_axes
from fl_audit.report.wording import percent, unit_words
from fl_audit.report.words_of_tests import MISSING_WORDS, ToldTest

MOST_TENSORS = 8  # the figure shows no more tensors than these, those with the smallest measured ratio

_EXACT = "exact chi-square interval; each sum is that of D or of D', as both sides of the promise say"


def _sentence(numbers: NoiseNumbers, contents: RunContents) -> str:
    main = numbers.main
    if main is None:
        return ""
    everywhere, aside = math.isfinite(numbers.estimate.ratio), _row("all", main, "").aside
    where = "" if everywhere else f", just where it has to hide the {contents.words.one},"
    return (
        f"The noise that this federation really adds{where} is {_ratio_text(*main)} times what was promised{aside}; "
        f"the range in brackets holds with {percent(numbers.estimate.confidence)} confidence. "
        f"{excess_text(numbers.judgement)}"
    ).strip()


def _row(name: str, noise: Sequence[float], basis: str, confidence: float | None = None) -> Row:
    ratio, low, high = noise
    return Row(name, ratio, basis, low, high, confidence, 1.0, is_least=True, digits=5, on_page=True)


def _rows(numbers: NoiseNumbers, contents: RunContents) -> list[Row]:
    found, one = numbers.estimate, contents.words.one
    beside = f"what a release has beside both sums, where it does not hide the {one}; {_EXACT}"
    along = f"what a release has beside its sum, where it hides the {one}; {_EXACT}"
    rows = [
        _row("Noise, measured over promised", (found.ratio, found.low, found.high), beside, found.confidence),
        _row(f"Noise where it hides the {one}", (found.along_record, found.along_low, found.along_high), along,
             found.confidence),
    ]  # fmt: skip
    return [row for row in rows if math.isfinite(row.value)]


def _tables(numbers: NoiseNumbers, _: RunContents) -> list[Table]:
    found = numbers.estimate
    if not found.tensors:
        return []
    columns = ("Parameter tensor", "Measured over promised noise", "Lower end", "Upper end", "Reading")
    rows = tuple((*part, str(_row(part[0], part[1:], "").reading)) for part in found.tensors)
    return [Table(f"Noise on each tensor (intervals at {percent(found.confidence)})", columns, rows)]


def excess_text(found: Judgement) -> str:
    """Return what noise above the promise costs, in a sentence; nothing where there is none beyond doubt.

    Where the noise depends on the secret such a surplus is not harmless, and the sentence says so.
    """
    if found.noise.excess is None:
        return ""
    if depends_on_secret(found):
        return "That is no harmless surplus, for its size depends on the secret."
    less = f"{percent(1 - 1 / found.noise.excess)} less noise would keep the promise too"
    return f"More than was promised breaks no promise; it gives accuracy away, for {less}."


def _said(numbers: NoiseNumbers, run: FinishedRun) -> Mapping[str, Any]:
    words, judgement = unit_words(run.facts.relation), numbers.judgement
    told = {
        "excess": excess_text(judgement),
        "tests": [ToldTest(test, words).to_json() for test in judgement.tests],
        "not_offered": [{"name": str(name), "reason": MISSING_WORDS[reason]} for name, reason in judgement.not_offered],
    }
    return {"noise": numbers.to_json()["noise"] | told}


def _ratio_text(ratio: float, low: float, high: float) -> str:
    """Return a ratio near 1 with its interval, in as many digits as tell its ends apart, and an end from 1."""
    width = max(high - low, 1e-9)
    decimals = min(6, max(2, math.floor(-math.log10(width / 2))))
    nearest = min((low, high), key=lambda end: abs(end - 1))
    while decimals < 6 and (
        round(low, decimals) == round(high, decimals) or (not low <= 1 <= high and round(nearest, decimals) == 1)
    ):
        decimals += 1
    return f"{ratio:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"


def _caption(numbers: NoiseNumbers, _: RunContents) -> str:
    found = numbers.estimate
    left_out = len(found.tensors) - MOST_TENSORS
    fewer = f" Of {len(found.tensors)} tensors the {MOST_TENSORS} with least noise." if left_out > 0 else ""
    return (
        f"Spread of the noise over the promised one, with exact {percent(found.confidence)} intervals. Left of the "
        f"line noise is missing, right of it is more than needed; some miss by chance.{fewer}"
    )


def _noise_figure(figure: Figure, numbers: NoiseNumbers, contents: RunContents) -> None:
    """Draw measured over promised noise with intervals, in total, where it hides the unit, and per tensor."""
    found = numbers.estimate
    shown = {part[0] for part in sorted(found.tensors, key=lambda part: part[1])[:MOST_TENSORS]}
    parts = [(*part, "s", MUTED) for part in reversed(found.tensors) if part[0] in shown]
    parts.append((f"Where it hides\nthe {contents.words.one}", found.along_record, found.along_low, found.along_high,
                  "v", INK))  # fmt: skip
    parts.append(("All parameters", found.ratio, found.low, found.high, "o", BIT_STYLES[1].colour))
    rows = [part for part in parts if math.isfinite(part[1])]
    figure.set_figheight(1.9 + 0.42 * len(rows))
    axes = figure.add_subplot()
    axes.axvline(1.0, label="promised noise", **LIMIT)
    for height, (_, *interval, marker, colour) in enumerate(rows):
        _draw_interval(axes, height, interval, marker, colour)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    # The same axis in every report, but for noise that is far from the promise.
    low, high = min(0.95, *(part[2] for part in rows)), max(1.05, *(part[3] for part in rows))
    axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    finish_axes(axes, "Noise that is really there", "Measured over promised noise (standard deviations)", "")


def _draw_interval(axes: Axes, height: int, interval: Sequence[float], marker: str, colour: str) -> None:
    """Draw a value with its ends in a row of its own, and its numbers at the right, where no line crosses them."""
    value, *ends = interval
    axes.plot(ends, [height, height], "-", color=colour, linewidth=2.4)
    axes.plot(ends, [height, height], "|", color=colour, markersize=13, markeredgewidth=1.8)
    axes.plot([value], [height], marker, color=colour, markersize=7)
    axes.annotate(_ratio_text(*interval), (1.01, height), xycoords=axes.get_yaxis_transform(), va="center",
                  fontsize=SMALL_TEXT_SIZE, color=INK, annotation_clip=False)  # fmt: skip


NOISE = Section(
    "noise", "The noise that is really added", NoiseNumbers, measure_noise, keys=("noise",), on_page=True,
    sentence=_sentence, rows=_rows, tables=_tables,
    picture=Picture("The noise, measured over promised", _noise_figure, _caption,
                    applies=lambda numbers, _: numbers.main is not None), said=_said,
)  # fmt: skip
