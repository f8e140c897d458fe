"""The innovations: whether every step of the insider's log-odds obeys its exact law, N(0, 1) and independent."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fl_audit.evidence.belief.innovations import SMALLEST_SIGNAL
from fl_audit.evidence.belief.laws import Band, Floats, normal_order_band, spread_ranks
from fl_audit.evidence.findings.innovations import InnovationNumbers, innovations_by_bit, measure_innovations
from fl_audit.report.finding import Picture, RunContents, Section, Table
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
from fl_audit.report.wording import plural


def _sentence(numbers: InnovationNumbers, contents: RunContents) -> str:
    check = numbers.check
    what = (
        "One innovation is one round's step of the log-odds, less what the law expects, in units of its spread."
        if contents.run.scores is None
        else "A round's step of the log-odds is no normal number here, so the noise itself stands in for it."
    )
    left = ""
    if check.left_out:
        left = (
            f" Of {plural(check.rounds, 'round')} of all worlds, {check.left_out:,} "
            f"{'was' if check.left_out == 1 else 'were'} left out: there D and D' differed by less than "
            f"{SMALLEST_SIGNAL:g} of the noise."
        )
    return f"{what} They must be independent N(0, 1): the law {'holds' if check.holds else 'does NOT hold'}.{left}"


def _tables(numbers: InnovationNumbers, _: RunContents) -> list[Table]:
    columns = ("Worlds", "Count", "Mean (law: 0)", "Variance (law: 1)", "Serial correlation (law: 0)",
               "p-value, Kolmogorov-Smirnov")  # fmt: skip
    rows = tuple(
        (f"b = {bit}", group.count, group.mean, group.variance, group.serial_correlation, group.ks_p_value)
        for bit, group in numbers.groups
    )
    return [Table("Innovations against independent N(0, 1)", columns, rows)]


def _caption(_: InnovationNumbers, __: RunContents) -> str:
    return (
        "Points near the dashed line, mostly inside the 95 % band, mean that noise, sensitivities and beliefs fit "
        "together."
    )


def innovations_figure(_: InnovationNumbers, contents: RunContents) -> Figure:
    """Draw the innovations of either bit against N(0, 1): departures of their quantiles from the law."""
    parts = innovations_by_bit(contents.run)
    figure = report_figure(3.4)
    panels = figure.subplots(1, len(parts), sharey=True, squeeze=False)[0]
    for axes, (bit, values) in zip(panels, parts.items(), strict=True):
        ranks = spread_ranks(len(values))
        _draw_departures(axes, bit, values[ranks - 1], normal_order_band(len(values), ranks))
        first = axes is panels[0]
        finish_axes(axes, "", "Quantile of N(0, 1)", "Measured - law\n(standard deviations)" if first else "")
        axes.set_title(f"{BIT_STYLES[bit].name},\n{plural(len(values), 'innovation')}", fontsize=TEXT_SIZE, loc="left",
                       color=INK)  # fmt: skip
    marks: list[Line2D | Patch] = [
        Line2D([], [], color=INK, linewidth=1.2, linestyle="--", label="law N(0, 1)"),
        Patch(facecolor=PALE, edgecolor=MUTED, label="95 % band, point by point"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False, fontsize=SMALL_TEXT_SIZE)
    return figure


def _draw_departures(axes: Axes, bit: int, values: Floats, band: Band) -> None:
    style = BIT_STYLES[bit]
    low, high = band.low - band.middle, band.high - band.middle
    draw_band(axes, band.middle, low, high, facecolor=PALE, edgecolor=MUTED, linewidth=0.8)
    axes.axhline(0, color=INK, linewidth=1.2, linestyle="--")
    axes.plot(band.middle, values - band.middle, style.marker, color=style.colour, markersize=3, markerfacecolor="none")
    left, right = span(band.middle)
    axes.set_xlim(left - 0.1, right + 0.1)


INNOVATIONS = Section(
    name="innovations",
    title="Whether every step of the evidence follows its law",
    numbers=InnovationNumbers,
    measure=measure_innovations,
    keys=("innovations",),
    sentence=_sentence,
    tables=_tables,
    picture=Picture(
        "Innovations", innovations_figure, _caption, lambda _, contents: bool(innovations_by_bit(contents.run))
    ),
)
