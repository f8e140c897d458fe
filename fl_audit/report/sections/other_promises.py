"""What other promises would cost: the noise that it takes to let nobody become surer than this or that."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from fl_audit.evidence.findings.promise import OtherPromises, measure_other_promises
from fl_audit.report.finding import Picture, RunContents, Section, Table
from fl_audit.report.style import BIT_STYLES, INK, SMALL_TEXT_SIZE, finish_axes
from fl_audit.report.wording import number_text, percent


def _tables(numbers: OtherPromises, _: RunContents) -> list[Table]:
    here = numbers.claim.noise_multiplier
    assert here is not None, "only Gaussian noise is looked at"
    columns = ("Nobody becomes surer than", "Epsilon (nats)", "Noise multiplier", "Noise over that of this run")
    rows = tuple(
        (percent(one.belief), one.epsilon, one.noise_multiplier, one.noise_multiplier / here) for one in numbers.each
    )
    title = f"What other promises would cost, at delta = {numbers.claim.delta:g}, by {numbers.accountant}"
    return [Table(title, columns, rows)] if rows else []


def _other_promises_figure(figure: Figure, numbers: OtherPromises, contents: RunContents) -> None:
    """Draw the noise that each promise takes over the belief that it allows, with this run's own promise."""
    axes = figure.add_subplot()
    style, promise = BIT_STYLES[1], contents.promise
    beliefs = np.array([100 * one.belief for one in numbers.each])
    noise = np.array([one.noise_multiplier for one in numbers.each])
    axes.plot(beliefs, noise, "-", color=style.colour, linewidth=2, marker=style.marker, label="other promises")
    for belief, height, one in zip(beliefs, noise, numbers.each, strict=True):
        axes.annotate(number_text(one.epsilon, 2), (belief, height), (4, 5), textcoords="offset points",
                      fontsize=SMALL_TEXT_SIZE, color=INK)  # fmt: skip
    here = numbers.claim.noise_multiplier or 0.0
    axes.plot([100 * promise.belief_bound], [here], "D", color=INK, markersize=8, label="this run")
    axes.set_yscale("log")
    axes.set_xlim(69, 101)
    axes.set_ylim(0.7 * min(noise.min(), here), 1.5 * max(noise.max(), here))  # this run may lie beyond them all
    axes.yaxis.set_major_locator(FixedLocator([float(number) for number in np.round(noise, 2)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    finish_axes(axes, "What other promises would cost", "Nobody becomes surer than (%); beside each, its epsilon",
                "Noise multiplier (logarithmic)")  # fmt: skip


def _caption(numbers: OtherPromises, _: RunContents) -> str:
    first, last = numbers.each[0], numbers.each[-1]
    return (
        f"The noise that other limits take: {percent(first.belief)} a multiplier of "
        f"{number_text(first.noise_multiplier, 3)}, {percent(last.belief)} {number_text(last.noise_multiplier, 3)}; "
        f"this run has {number_text(numbers.claim.noise_multiplier, 3)}. More noise costs accuracy."
    )


OTHER_PROMISES = Section(
    name="other-promises", title="What other promises would cost", numbers=OtherPromises,
    measure=measure_other_promises, on_page=True, tables=_tables,
    picture=Picture("What other promises would cost", _other_promises_figure, _caption, lambda numbers,
            _: len(numbers.each) > 1),
)  # fmt: skip
