"""Adaptive clipping: where the norm went, and what the two releases of a round cost."""

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from fl_audit.mechanisms.clipping import AdaptiveClipping
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.curves import draw_median, median_name, quantiles_by_round
from fl_audit.report.finished_run import NORM_COLUMN, FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section
from fl_audit.report.sections.insider import POINT
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    PALE,
    add_legend,
    draw_band,
    finish_axes,
    report_figure,
    whole_number_axis,
)
from fl_audit.report.wording import DASH, number_text, percent


@dataclass(frozen=True)
class ClippingNumbers:
    """What adaptive clipping did.

    Parameters
    ----------
    first, last
        The clipping norm of the first round, and the median over worlds of that of the last one.
    sum_multiplier, count_multiplier, together
        Noise multipliers of the sum of updates, of the count of those within the norm, and of both releases together.
    """

    first: float
    last: float
    sum_multiplier: float
    count_multiplier: float
    together: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `clipping`."""
        return {
            "clipping": {
                "first_norm": self.first,
                "last_norm": self.last,
                "sum_noise_multiplier": self.sum_multiplier,
                "count_noise_multiplier": self.count_multiplier,
                "noise_multiplier": self.together,
            }
        }


def _measure(run: FinishedRun, _: Findings) -> ClippingNumbers | None:
    law, rounds = run.facts.game.law, run.tables.rounds
    if not isinstance(law.clipping, AdaptiveClipping) or NORM_COLUMN not in rounds:
        return None
    last = rounds.loc[rounds["round"] == rounds["round"].max(), NORM_COLUMN]
    z, standpoint = run.facts.faced_multiplier, run.facts.game.standpoint
    return ClippingNumbers(
        first=law.clipping_norm,
        last=float(last.median()),
        sum_multiplier=z,
        count_multiplier=z * law.clipping.bit_noise,
        together=law.promised_multiplier(standpoint),
    )


def _console(numbers: ClippingNumbers, _: RunContents) -> list[tuple[str, str]]:
    text = f"norm {number_text(numbers.first, 3)} in the first round, {number_text(numbers.last, 3)} in the last"
    return [("Clipping", text)]


def _entries(numbers: ClippingNumbers, _: RunContents) -> list[Entry]:
    source, chosen = "Andrew et al. 2021, theorem 1", "chosen before the run"
    return [
        Entry("Clipping norm of the first round", numbers.first, DASH, DASH, chosen),
        Entry("Clipping norm of the last round, median", numbers.last, DASH, POINT, "over the worlds",
              "it follows a count with noise, so it is as private as the releases"),
        Entry("Noise multiplier of the sum of updates", numbers.sum_multiplier, DASH, DASH, chosen),
        Entry("Noise multiplier of the count", numbers.count_multiplier, DASH, DASH,
              "of the updates that are within the norm, each counted as 1/2 or -1/2"),
        Entry("Noise multiplier of both releases together", numbers.together, DASH, DASH,
              f"root of 1 / (sum of their inverse squares); {source}", "both releases of every round are accounted"),
    ]  # fmt: skip


def _caption(numbers: ClippingNumbers, contents: RunContents) -> Caption:
    clipping = contents.facts.game.law.clipping
    assert isinstance(clipping, AdaptiveClipping), "measured only where it is adaptive"
    text = (
        f"The clipping norm follows the length that {percent(clipping.quantile)} of the updates keep within. Every "
        "round also releases how many did, with noise of its own, and the norm of the next round moves by that. The "
        "noise of a round is scaled to the norm at which the round clipped. Both releases are accounted: together they "
        f"have noise multiplier {number_text(numbers.together, 3)}, where the sum alone has "
        f"{number_text(numbers.sum_multiplier, 3)}. Median over worlds with the middle half and the whole range."
    )
    alternative = f"Clipping norm over rounds, from {number_text(numbers.first, 3)} to {number_text(numbers.last, 3)}."
    return Caption("The clipping norm", text, alternative)


def clipping_figure(_: ClippingNumbers, contents: RunContents) -> Figure:
    """Draw the clipping norm over the rounds with its spread over the worlds."""
    figure = report_figure()
    axes, style = figure.add_subplot(), BIT_STYLES[1]
    rounds, (low, lower, middle, upper, high) = quantiles_by_round(
        contents.rounds, NORM_COLUMN, (0, 0.25, 0.5, 0.75, 1)
    )
    if contents.run.worlds > 1:
        draw_band(axes, rounds, low, high, facecolor=PALE, edgecolor=MUTED, linewidth=0.6,
                  label="smallest to largest world")  # fmt: skip
        draw_band(axes, rounds, lower, upper, facecolor=style.fill, edgecolor=style.colour, linewidth=0.6,
                  hatch="////", alpha=0.7, label="middle half of the worlds")  # fmt: skip
    draw_median(axes, rounds, middle, median_name(contents.run.worlds))
    first = contents.facts.clipping_norm
    axes.axhline(first, color=INK, linestyle=":", linewidth=1.6, label=f"first round: {number_text(first, 3)}")
    axes.set_ylim(bottom=0)
    whole_number_axis(axes, int(rounds[0]), int(rounds[-1]))
    finish_axes(axes, "Where the clipping norm went", "Round (number)",
                f"Clipping norm\n(L2, {contents.facts.words.measure})")  # fmt: skip
    add_legend(axes, columns=2)
    return figure


CLIPPING = Section(
    numbers=ClippingNumbers,
    keys=("clipping",),
    measure=_measure,
    heading="Adaptive clipping",
    entries=_entries,
    pictures=(Picture("clipping-norm", clipping_figure, _caption),),
    console=_console,
)
