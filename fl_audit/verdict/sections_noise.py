"""Define the report's section on the measured noise relative to the claimed noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.figure_style import BIT_STYLES, INK, LIMIT, MUTED, SMALL_TEXT_SIZE, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section, Table
from fl_audit.report.unit_words import unit_words
from fl_audit.statistics.claim_comparisons import Reading
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.noise_estimate import NoiseRatioEstimate, ratio_interval
from fl_audit.verdict.noise_scale import SquareSum
from fl_audit.verdict.verdict import VerdictDetails, depends_on_secret, has_open_shares
from fl_audit.verdict.verdict_messages import message_of, reason_text
from fl_audit.words import percent, rounded


@dataclass(frozen=True)
class NoiseFinding:
    """The measured noise of a run as a ratio to the claimed noise, with the tests of the guarantee."""

    estimate: NoiseRatioEstimate  # ratios of the measured to the claimed noise
    judgement: VerdictDetails  # results of the tests of the guarantee

    def to_json(self) -> dict[str, Any]:
        """Return the entry `noise` of `summary.json` as a dictionary; numbers that were not measured are None."""
        names = ("ratio", "low", "high", "confidence", "along_record", "along_low", "along_high")
        tensors = [dict(zip(("name", *names[:3]), tensor, strict=True)) for tensor in self.estimate.tensors]
        values = {name: getattr(self.estimate, name) for name in names}
        return {"noise": json_of(values | {"tensors": tensors, "level": self.judgement.level})}

    @property
    def main(self) -> tuple[float, float, float] | None:
        """Ratio of the measured to the claimed noise with its confidence interval, as (ratio, low, high).

        The noise is measured in directions orthogonal to f(D) - f(D') or, if this is not possible, along f(D) - f(D').
        None if neither was measured.
        """
        estimate = self.estimate
        if math.isfinite(estimate.ratio):
            return estimate.ratio, estimate.low, estimate.high
        if math.isfinite(estimate.along_record):
            return estimate.along_record, estimate.along_low, estimate.along_high
        return None


def measure_noise(_: FinishedRun, findings: Findings) -> NoiseFinding | None:
    """Return the measured noise that the finding of a run's verdict holds; None if the run has no verdict."""
    verdict = findings.find(VerdictFinding)
    if verdict is None or verdict.judgement is None:
        return None
    return NoiseFinding(verdict.judgement.noise, verdict.judgement)


MOST_TENSORS = 8  # the figure shows no more tensors than these, those with the smallest measured ratio

_EXACT = "exact chi-square interval; each sum is that of D or of D', as both sides of the guarantee say"


def _sentence(finding: NoiseFinding, contents: ReportContents) -> str:
    rows = NOISE.read_rows(finding, contents)
    if not rows:
        return ""
    row = rows[0]
    where = "" if math.isfinite(finding.estimate.ratio) else f", just where it has to hide the {contents.words.one},"
    return (
        f"The noise that this federation really adds{where} is {row.shown.value} ({row.shown.interval}) times what was "
        f"claimed; the measurement is good to {_interval_radius_text(row)} at "
        f"{percent(finding.estimate.confidence)} confidence, {_meaning(row)}. {excess_text(finding.judgement)}"
    ).strip()


def _interval_radius_text(number: ReportNumber) -> str:
    """Return the distance from a ratio to the farther end of its interval, in percentage points, such as "4 %"."""
    half = max(abs(end - number.value) for end in (number.low, number.high) if end is not None)
    return percent(float(f"{half:.2g}"))


def _meaning(number: ReportNumber) -> str:
    """Return the end of a sentence that says whether the measured noise agrees with the claim."""
    match number.reading:
        case Reading.NO_CONTRADICTION if (
            number.claim_comparison is not None and number.claim_comparison.wide is not None
        ):
            return f"and at the level of the verdict this fits the claim: {number.reading_text}"
        case Reading.NO_CONTRADICTION:
            return "so this fits the claim"
        case Reading.KEPT:
            return "so there is at least as much as was claimed"
        case Reading.ALONE:
            return "so what broke the claim is another number"
        case Reading.BROKEN:
            return "so noise is missing"
        case Reading.TOO_FEW:
            return f"so half of the claim, or twice, could not be told from it: {number.reading_text}"
        case Reading.NO_LIMIT | None:
            return "and nothing is claimed"
        case _:
            assert_never(number.reading)


def _row(
    name: str, noise: Sequence[float], basis: str, estimate: NoiseRatioEstimate, of: tuple[SquareSum, float]
) -> ReportNumber:
    """Return the table row of a ratio of measured to claimed noise, given as (ratio, low, high).

    `of` has the sum of squares behind the ratio, and the significance level of its test.
    """
    ratio, low, high = noise
    squares, level = of
    return ReportNumber(
        name,
        ratio,
        basis,
        low,
        high,
        estimate.confidence,
        1.0,
        is_least=True,
        on_page=True,
        wide=partial(ratio_interval, squares),
        level=level,
    )


def _rows(finding: NoiseFinding, contents: ReportContents) -> list[ReportNumber]:
    estimate = finding.estimate
    unit_name = contents.words.one
    beside = f"what a release has beside both sums, where it does not hide the {unit_name}; {_EXACT}"
    if not contents.plan.federation.mechanism.noise.has_gaussian_llr:
        beside = f"what a release has beside its sum, in all coordinates; {_EXACT}"
    along = f"what a release has beside its sum, where it hides the {unit_name}; {_EXACT}"
    rows = []
    if estimate.total is not None:
        noise = estimate.ratio, estimate.low, estimate.high
        of = estimate.total, TestName.NOISE_TOTAL.level
        rows.append(_row("Noise, measured over claimed", noise, beside, estimate, of))
    if estimate.along is not None:
        noise = estimate.along_record, estimate.along_low, estimate.along_high
        of = estimate.along, TestName.NOISE_ALONG_RECORD.level
        rows.append(_row(f"Noise where it hides the {unit_name}", noise, along, estimate, of))
    return rows


def _tables(finding: NoiseFinding, contents: ReportContents) -> list[Table]:
    estimate = finding.estimate
    if not estimate.tensors:
        return []
    columns = ("Parameter tensor", "Measured over claimed noise", "Lower end", "Upper end", "Reading")
    level = TestName.NOISE_TENSOR.level
    numbers = [
        _row(name, noise, "", estimate, (estimate.on_tensors[name], level / len(estimate.tensors)))
        for name, *noise in estimate.tensors
    ]
    read_numbers = [replace(row, is_violated=contents.is_violated) for row in numbers]
    rows = tuple((row.name, *row.cells, row.reading_text) for row in read_numbers)
    return [Table(f"Noise on each tensor (intervals at {percent(estimate.confidence)})", columns, rows)]


def excess_text(details: VerdictDetails) -> str:
    """Return a sentence on the cost of noise above the claim; empty if the noise is not significantly above it.

    The sentence says that more noise may be harmful if it depends on the secret, or if clients' shares may be copies.
    """
    if details.noise.excess is None:
        return ""
    if depends_on_secret(details):
        return "That is no harmless surplus, for its size depends on the secret."
    if not has_open_shares(details):
        return "That is no harmless surplus unless the clients' shares of the noise are independent of each other."
    less = f"{percent(1 - 1 / details.noise.excess)} less noise would keep the guarantee too"
    return f"More than was claimed breaks no guarantee; it gives accuracy away, for {less}."


def _said(finding: NoiseFinding, run: FinishedRun) -> Mapping[str, Any]:
    words = unit_words(run.plan.adjacency)
    noise = run.plan.federation.mechanism.noise
    judgement = finding.judgement
    values = {
        "excess": excess_text(judgement),
        "tests": [message_of(test, words, noise).to_json() for test in judgement.tests],
        "not_offered": [{"name": str(name), "reason": reason_text(reason)} for name, reason in judgement.not_offered],
    }
    return {"noise": finding.to_json()["noise"] | values}


def _caption(finding: NoiseFinding, _: ReportContents) -> str:
    estimate = finding.estimate
    left_out = len(estimate.tensors) - MOST_TENSORS
    fewer = f" Of {len(estimate.tensors)} tensors the {MOST_TENSORS} with least noise." if left_out > 0 else ""
    return (
        f"Spread of the noise over the claimed one, with exact {percent(estimate.confidence)} intervals. Left of the "
        f"line noise is missing, right of it is more than needed; some intervals miss by chance.{fewer}"
    )


def _noise_figure(figure: Figure, finding: NoiseFinding, contents: ReportContents) -> None:
    """Draw the ratios of measured to claimed noise with intervals: in total, along the unit's direction, by tensor."""
    estimate = finding.estimate
    tensors_shown = {row[0] for row in sorted(estimate.tensors, key=lambda tensor: tensor[1])[:MOST_TENSORS]}
    rows_of_tensors = [(*tensor, "s", MUTED) for tensor in reversed(estimate.tensors) if tensor[0] in tensors_shown]
    hides = f"Where it hides\nthe {contents.words.one}"
    rows_of_tensors.append((hides, estimate.along_record, estimate.along_low, estimate.along_high, "v", INK))
    rows_of_tensors.append(("All parameters", estimate.ratio, estimate.low, estimate.high, "o", BIT_STYLES[1].colour))
    rows = [row for row in rows_of_tensors if math.isfinite(row[1])]
    figure.set_figheight(1.9 + 0.42 * len(rows))
    axes = figure.add_subplot()
    axes.axvline(1.0, label="claimed noise", **LIMIT)
    for height, (_, *interval, marker, colour) in enumerate(rows):
        _draw_interval(axes, height, interval, marker, colour)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    # All reports have the same axis, unless the noise is far from the claim.
    low, high = min(0.95, *(row[2] for row in rows)), max(1.05, *(row[3] for row in rows))
    axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    scale = contents.plan.federation.mechanism.noise.scale_words
    finish_axes(axes, "Noise that is really there", f"Measured over claimed noise ({scale}s)", "")


def _draw_interval(axes: Axes, height: int, interval: Sequence[float], marker: str, colour: str) -> None:
    """Draw (value, lower end, upper end) in one row of the axes, and write the numbers to the right."""
    value, low, high = interval
    ends = [low, high]
    axes.plot(ends, [height, height], "-", color=colour, linewidth=2.4)
    axes.plot(ends, [height, height], "|", color=colour, markersize=13, markeredgewidth=1.8)
    axes.plot([value], [height], marker, color=colour, markersize=7)
    rounded_number = rounded(value, low, high, claim=1.0)
    axes.annotate(
        f"{rounded_number.value} ({rounded_number.interval})",
        (1.01, height),
        xycoords=axes.get_yaxis_transform(),
        va="center",
        fontsize=SMALL_TEXT_SIZE,
        color=INK,
        annotation_clip=False,
    )


NOISE = Section(
    "noise",
    "The noise that is really added",
    NoiseFinding,
    measure_noise,
    keys=("noise",),
    on_page=True,
    sentence=_sentence,
    rows=_rows,
    tables=_tables,
    picture=FindingFigure(
        "The noise, measured over claimed", _noise_figure, _caption, applies=lambda numbers, _: numbers.main is not None
    ),
    said=_said,
)
