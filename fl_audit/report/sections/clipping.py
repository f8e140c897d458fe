"""Adaptive clipping: where the norm went, and what the two releases of a round cost."""

from matplotlib.figure import Figure

from fl_audit.evidence.findings.clipping import ClippingNumbers, measure_clipping
from fl_audit.evidence.run_tables import NORM_COLUMN
from fl_audit.mechanisms.clipping import AdaptiveClipping
from fl_audit.report.curves import draw_spread
from fl_audit.report.finding import Picture, Row, RunContents, Section
from fl_audit.report.style import INK, add_legend, finish_axes, report_figure, whole_number_axis
from fl_audit.report.wording import number_text, percent


def _sentence(numbers: ClippingNumbers, contents: RunContents) -> str:
    clipping = contents.facts.game.law.clipping
    assert isinstance(clipping, AdaptiveClipping), "measured only where it is adaptive"
    return (
        f"The clipping norm follows the length that {percent(clipping.quantile)} of the updates keep within. Every "
        "round also releases how many did, with noise of its own, and the next norm moves by that. Both releases are "
        f"accounted: together they have noise multiplier {number_text(numbers.together, 3)}, where the sum alone has "
        f"{number_text(numbers.sum_multiplier, 3)}."
    )


def _console(numbers: ClippingNumbers, _: RunContents) -> list[tuple[str, str]]:
    text = f"norm {number_text(numbers.first, 3)} in the first round, {number_text(numbers.last, 3)} in the last"
    return [("Clipping", text)]


def _rows(numbers: ClippingNumbers, _: RunContents) -> list[Row]:
    chosen = "chosen before the run"
    return [
        Row("Clipping norm of the first round", numbers.first, chosen),
        Row("Clipping norm of the last round, median", numbers.last,
            "over the worlds; it follows a count with noise, so it is as private as the releases"),
        Row("Noise multiplier of the sum of updates", numbers.sum_multiplier, chosen),
        Row("Noise multiplier of the count", numbers.count_multiplier,
            "of the updates that are within the norm, each counted as 1/2 or -1/2"),
        Row("Noise multiplier of both releases together", numbers.together,
            "root of 1 / (sum of their inverse squares); Andrew et al. 2021, theorem 1"),
    ]  # fmt: skip


def _caption(numbers: ClippingNumbers, _: RunContents) -> str:
    return (
        f"From {number_text(numbers.first, 3)} to {number_text(numbers.last, 3)}; the noise of a round is scaled to "
        "the norm at which the round clipped."
    )


def clipping_figure(_: ClippingNumbers, contents: RunContents) -> Figure:
    """Draw the clipping norm over the rounds with its spread over the worlds."""
    figure, rounds, first = report_figure(3.8), contents.rounds, contents.facts.clipping_norm
    axes = figure.add_subplot()
    draw_spread(axes, rounds, NORM_COLUMN)
    axes.axhline(first, color=INK, linestyle=":", linewidth=1.6, label=f"first round: {number_text(first, 3)}")
    axes.set_ylim(bottom=0)
    whole_number_axis(axes, int(rounds["round"].min()), int(rounds["round"].max()))
    finish_axes(axes, "Where the clipping norm went", "Round (number)",
                f"Clipping norm\n(L2, {contents.words.measure})")  # fmt: skip
    add_legend(axes, columns=2)
    return figure


CLIPPING = Section(
    name="clipping-norm",
    title="Adaptive clipping",
    numbers=ClippingNumbers,
    measure=measure_clipping,
    keys=("clipping",),
    sentence=_sentence,
    rows=_rows,
    picture=Picture("The clipping norm", clipping_figure, _caption),
    console=_console,
)
