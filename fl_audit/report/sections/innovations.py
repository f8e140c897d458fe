"""The innovations: whether every step of the insider's log-odds obeys its exact law, N(0, 1) and independent."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fl_audit.evidence.belief.innovations import (
    SMALLEST_SIGNAL,
    InnovationCheck,
    InnovationGroup,
    check_scores,
)
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Picture, Section, Table
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    SMALL_TEXT_SIZE,
    TEXT_SIZE,
    draw_band,
    finish_axes,
    report_figure,
    span,
)
from fl_audit.report.theory import Band, Floats, normal_order_band, spread_ranks
from fl_audit.report.wording import plural


@dataclass(frozen=True)
class InnovationNumbers:
    """How well the innovations follow their law."""

    check: InnovationCheck

    def to_json(self) -> dict[str, Any]:
        """Return the entry `innovations`."""
        groups = [_group_json(bit, group) for bit, group in self.groups]
        return {"innovations": {"holds": self.check.holds, "rounds_left_out": self.check.left_out, "groups": groups}}

    @property
    def groups(self) -> tuple[tuple[int, InnovationGroup], ...]:
        """The worlds of either bit."""
        return (1, self.check.members), (0, self.check.nonmembers)


def _group_json(bit: int, group: InnovationGroup) -> dict[str, Any]:
    return {
        "bit": bit,
        "count": group.count,
        "mean": group.mean,
        "variance": group.variance,
        "serial_correlation": group.serial_correlation,
        "ks_p": group.ks_p_value,
    }


def _measure(run: FinishedRun, _: Findings) -> InnovationNumbers | None:
    if not run.facts.has_promise or not run.has_insider or not run.facts.game.law.weighs_exactly:
        return None
    return InnovationNumbers(check_scores(run.measured.innovations, run.bits))


def _table(numbers: InnovationNumbers, _: RunContents) -> list[Table]:
    columns = ("Worlds", "Count", "Mean (law: 0)", "Variance (law: 1)", "Serial correlation (law: 0)",
               "p-value, Kolmogorov-Smirnov")  # fmt: skip
    rows = tuple(
        (f"b = {bit}", group.count, group.mean, group.variance, group.serial_correlation, group.ks_p_value)
        for bit, group in numbers.groups
    )
    holds = "yes" if numbers.check.holds else "NO"
    return [Table(f"Innovations against independent N(0, 1): the law holds: {holds}", columns, rows)]


def _caption(numbers: InnovationNumbers, contents: RunContents) -> Caption:
    finding = f" Finding of this run: the law {'holds' if numbers.check.holds else 'does NOT hold'}."
    text = (
        f"{_what_it_is(contents)} They must be independent N(0, 1) whatever the data, the model and the scaling; "
        "rounds in which D and D' do not differ have none. Points near the dashed line and mostly inside the 95 % band "
        "mean that noise, sensitivities and beliefs fit together; the lower row magnifies the differences."
        f"{_left_out(numbers.check)}{finding}"
    )
    alternative = f"Quantile plots of the innovations against the standard normal law with 95 % bands.{finding}"
    return Caption("Innovations", text, alternative)


def _what_it_is(contents: RunContents) -> str:
    if contents.run.scores is None:
        return "One innovation is one round's step of the log-odds, less what the law expects, in units of its spread."
    return (
        "Here a round's step of the log-odds is no normal number, so the noise itself stands in for it: one innovation "
        "is a round's noise in the direction in which D and D' differ, turned into a normal score by its law under "
        "what was really used."
    )


def _left_out(check: InnovationCheck) -> str:
    """Say how many rounds the check leaves out, where it leaves out any."""
    if not check.left_out:
        return ""
    were = "was" if check.left_out == 1 else "were"
    return (
        f" Of {plural(check.rounds, 'round')} of all worlds, {check.left_out:,} {were} left out: there D and D' "
        f"differed by less than {SMALLEST_SIGNAL:g} of the noise, so that rounding and not noise would decide."
    )


def innovations_by_bit(run: FinishedRun) -> dict[int, Floats]:
    """Return the innovations of the worlds of either bit, sorted; a bit without any is left out.

    The innovation of a round is (L_i - L_{i-1} -+ mu_i^2/2) / mu_i, minus for bit 1 and plus for bit 0, with
    mu_i = local sensitivity / sigma; rounds in which D and D' differ by next to nothing (mu_i under 1e-9) have none.
    Where increments are not Gaussian it is the normal score of the noise in the direction in which they do.
    """
    values = run.measured.innovations
    parts = {bit: values[run.bits == bool(bit)] for bit in BIT_STYLES}
    return {bit: np.sort(part[~np.isnan(part)]) for bit, part in parts.items() if not np.all(np.isnan(part))}


def innovations_figure(_: InnovationNumbers, contents: RunContents) -> Figure:
    """Draw the innovations of either bit against N(0, 1): quantiles above, departures from the line below."""
    parts = innovations_by_bit(contents.run)
    if not parts:
        return _empty_figure()
    figure = report_figure(5.8)
    title = "Do the steps of the insider's evidence follow their law?"
    figure.suptitle(title, x=0.01, ha="left", fontsize=TEXT_SIZE, fontweight="bold", color=INK)
    panels = figure.subplots(2, len(parts), sharex=True, sharey="row", squeeze=False, height_ratios=[3, 2])
    for column, (bit, values) in enumerate(parts.items()):
        ranks = spread_ranks(len(values))
        band = normal_order_band(len(values), ranks)
        chosen = values[ranks - 1]
        _draw_quantiles(panels[0, column], bit, chosen, band)
        _draw_departures(panels[1, column], bit, chosen, band)
        finish_axes(panels[0, column], "", "", "Measured quantile\n(standard deviations)" if column == 0 else "")
        title = f"{BIT_STYLES[bit].name},\n{plural(len(values), 'innovation')}"
        panels[0, column].set_title(title, fontsize=TEXT_SIZE, loc="left", color=INK)
        y_name = "Measured - law\n(standard deviations)" if column == 0 else ""
        finish_axes(panels[1, column], "", "Quantile of N(0, 1)\n(standard deviations)", y_name)
    _add_common_legend(figure, list(parts))
    return figure


def _draw_quantiles(axes: Axes, bit: int, values: Floats, band: Band) -> None:
    style = BIT_STYLES[bit]
    draw_band(axes, band.middle, band.low, band.high, facecolor=PALE, edgecolor=MUTED, linewidth=0.8)
    low, high = span(band.low, band.high)
    axes.plot([low, high], [low, high], color=INK, linewidth=1.2, linestyle="--")
    axes.plot(band.middle, values, style.marker, color=style.colour, markersize=3, markerfacecolor="none")


def _draw_departures(axes: Axes, bit: int, values: Floats, band: Band) -> None:
    style = BIT_STYLES[bit]
    low, high = band.low - band.middle, band.high - band.middle
    draw_band(axes, band.middle, low, high, facecolor=PALE, edgecolor=MUTED, linewidth=0.8)
    axes.axhline(0, color=INK, linewidth=1.2, linestyle="--")
    axes.plot(band.middle, values - band.middle, style.marker, color=style.colour, markersize=3, markerfacecolor="none")


def _add_common_legend(figure: Figure, bits: list[int]) -> None:
    marks: list[Line2D | Patch] = [
        Line2D([], [], linestyle="", marker=BIT_STYLES[bit].marker, color=BIT_STYLES[bit].colour,
               markerfacecolor="none", markersize=5, label=f"measured, {BIT_STYLES[bit].short}")
        for bit in bits
    ]  # fmt: skip
    marks.append(Line2D([], [], color=INK, linewidth=1.2, linestyle="--", label="law N(0, 1)"))
    marks.append(Patch(facecolor=PALE, edgecolor=MUTED, label="95 % band, point by point"))
    figure.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False, fontsize=SMALL_TEXT_SIZE)


def _empty_figure() -> Figure:
    figure = report_figure(1.6)
    text = "No innovations: D and D' differed in no round."
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=TEXT_SIZE, color=INK)
    return figure


INNOVATIONS = Section(
    numbers=InnovationNumbers,
    keys=("innovations",),
    measure=_measure,
    tables=_table,
    pictures=(Picture("innovations", innovations_figure, _caption),),
)
