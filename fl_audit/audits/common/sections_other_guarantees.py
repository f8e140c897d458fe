"""Report section on the noise that other privacy targets and numbers of rounds would need."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from fl_audit.audits.common import findings_guarantee as evidence
from fl_audit.report import mechanism_messages
from fl_audit.report.figure_style import BIT_STYLES, INK, SMALL_TEXT_SIZE, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, Section, Table
from fl_audit.words import number_text, percent


def _other_guarantees_tables(alternatives: evidence.AlternativeGuarantees, _: ReportContents) -> list[Table]:
    here = alternatives.claim.noise_over_sensitivity
    assert here is not None, "only claims with noise on sums are looked at"
    columns = ("Nobody becomes surer than", "Epsilon (nats)", "Noise multiplier z", "Noise over that of this run")
    rows_of_claims = [
        (percent(guarantee.belief), guarantee.epsilon, guarantee.noise_multiplier)
        for guarantee in alternatives.guarantees
    ]
    rows = tuple((*row, row[2] / here) for row in rows_of_claims)
    title = f"What other guarantees would cost, at delta = {alternatives.claim.delta:g}, by {alternatives.accountant}"
    return [Table(title, columns, rows)] if rows else []


_CLOSE_TICKS = 0.1  # difference of two logarithms of noise multipliers whose ticks would touch


def _other_guarantees_figure(
    figure: Figure, alternatives: evidence.AlternativeGuarantees, contents: ReportContents
) -> None:
    axes = figure.add_subplot()
    style = BIT_STYLES[1]
    guarantee = contents.guarantee
    beliefs = np.array([100 * guarantee.belief for guarantee in alternatives.guarantees])
    noise = np.array([guarantee.noise_multiplier for guarantee in alternatives.guarantees])
    axes.plot(beliefs, noise, "-", color=style.colour, linewidth=2, marker=style.marker, label="other guarantees")
    for belief, multiplier, other_guarantee in zip(beliefs, noise, alternatives.guarantees, strict=True):
        axes.annotate(
            number_text(other_guarantee.epsilon, 2),
            (belief, multiplier),
            (4, 5),
            textcoords="offset points",
            fontsize=SMALL_TEXT_SIZE,
            color=INK,
        )
    here = alternatives.claim.noise_over_sensitivity or 0.0
    axes.plot([100 * guarantee.belief_bound], [here], "D", color=INK, markersize=8, label="this run")
    point = (100 * guarantee.belief_bound, here)
    axes.annotate(
        number_text(guarantee.epsilon, 2),
        point,
        (-6, -6),
        ha="right",
        va="top",
        textcoords="offset points",
        fontsize=SMALL_TEXT_SIZE,
        color=INK,
    )
    axes.set_yscale("log")
    axes.set_xlim(69, 101)
    axes.set_ylim(0.7 * min(noise.min(), here), 1.5 * max(noise.max(), here))  # this run may lie beyond them all
    apart = noise[np.abs(np.log(noise / here)) > _CLOSE_TICKS] if here else noise
    axes.yaxis.set_major_locator(FixedLocator([float(number) for number in np.round([*apart, here], 2) if number > 0]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    finish_axes(
        axes,
        "What other guarantees would cost",
        "Nobody becomes surer than (%); beside each, its epsilon",
        "Noise multiplier (logarithmic)",
    )


def _other_guarantees_caption(alternatives: evidence.AlternativeGuarantees, contents: ReportContents) -> str:
    first = alternatives.guarantees[0]
    last = alternatives.guarantees[-1]
    return (
        f"A guarantee of {percent(first.belief)} takes a noise multiplier of {number_text(first.noise_multiplier, 3)}, "
        f"one of {percent(last.belief)} takes {number_text(last.noise_multiplier, 3)}; this run has "
        f"{number_text(alternatives.claim.noise_over_sensitivity, 3)}, over "
        f"{mechanism_messages.multiplied_text(contents.plan.federation.mechanism)}. "
        "More noise costs accuracy."
    )


OTHER_GUARANTEES = Section(
    "other-guarantees",
    "What other guarantees would cost",
    evidence.AlternativeGuarantees,
    evidence.claim_for_alternative_guarantees,
    on_page=True,
    trusts=True,
    tables=_other_guarantees_tables,
    picture=FindingFigure(
        "What other guarantees would cost",
        _other_guarantees_figure,
        _other_guarantees_caption,
        applies=lambda numbers, _: len(numbers.guarantees) > 1,
    ),
)
