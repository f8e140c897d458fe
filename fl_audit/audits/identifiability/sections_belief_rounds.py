"""Report section on the insider's belief over the rounds of training."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit, logit

from fl_audit.audits.identifiability.belief_distribution import belief_band
from fl_audit.audits.identifiability.sections_insider import FEWEST_FOR_HISTOGRAM, InsiderFinding
from fl_audit.report import figure_style as drawing
from fl_audit.report.figure_style import BIT_STYLES, INK, LIMIT, draw_band, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, Section
from fl_audit.words import limit_text


def _belief_rounds_caption(_: InsiderFinding, contents: ReportContents) -> str:
    has_many_trials = contents.run.trials >= FEWEST_FOR_HISTOGRAM
    subject = "Medians and the middle 90 % of trials" if has_many_trials else "Each trial"
    distribution = " Dotted: where the exact distribution has 90 %." if contents.run.has_even_rounds else ""
    return (
        f"{subject}, ● where D was used, ▼ where D' was.{distribution} Above the upper line a trial is surer of D than "
        "claimed, "
        "below the lower one surer of D'."
    )


def _belief_rounds_figure(figure: Figure, _: InsiderFinding, contents: ReportContents) -> None:
    """Draw the belief in D over the rounds: bands of quantiles, or one curve for each trial if there are few."""
    axes = figure.add_subplot()
    for bit in (1, 0):
        _draw_bit(axes, contents, bit)
    bounds = contents.plan.belief_bounds
    belief_text = "D'" if math.isclose(bounds[0], bounds[1]) else f"D' ({limit_text(bounds[0])})"
    axes.axhline(bounds[1], label=f"limit {limit_text(bounds[1])}, for D and for {belief_text}", **LIMIT)
    axes.axhline(1 - bounds[0], **LIMIT)
    axes.set_ylim(-0.02, 1.02)
    drawing.whole_number_axis(axes, 0, contents.plan.federation.rounds)
    title = "The insider's belief, round by round"
    finish_axes(axes, title, "Round (number; 0 = before training)", "Belief in D (probability)")


def _draw_bit(axes: Axes, contents: ReportContents, bit: int) -> None:
    """Draw the beliefs of all trials with one secret bit over the rounds, and the range in which 90 % are expected."""
    style = BIT_STYLES[bit]
    run = contents.run
    plan = contents.plan
    paths = run.by_trial("log_odds")[run.bits == bool(bit)]
    if not len(paths):
        return
    beliefs = expit(np.hstack([np.zeros((len(paths), 1)), paths]) + logit(plan.prior))
    rounds = np.arange(beliefs.shape[1])
    if run.trials < FEWEST_FOR_HISTOGRAM:
        axes.plot(rounds, beliefs.T, style.line, color=style.colour, linewidth=1.0, alpha=0.85)
        axes.plot(
            rounds[-1:].repeat(len(paths)),
            beliefs[:, -1],
            style.line,
            color=style.colour,
            linewidth=0,
            marker=style.marker,
            markersize=5,
            clip_on=False,
            label=style.name,
        )
    else:
        low, middle, high = np.nanquantile(beliefs, [0.05, 0.5, 0.95], axis=0)
        draw_band(
            axes,
            rounds,
            low,
            high,
            facecolor=style.fill if bit == 1 else "none",
            edgecolor=style.colour,
            hatch=style.hatch,
            alpha=0.5,
            linewidth=1,
            label=f"{style.short}: 90 % of {len(paths):,} trials",
        )
        axes.plot(
            rounds,
            middle,
            style.line,
            color=style.colour,
            linewidth=2.4,
            marker=style.marker,
            label=f"{style.short}: their median",
            **drawing.markers_for(len(rounds)),
        )
    if run.has_even_rounds:
        lower, _, upper = belief_band(plan.mu, plan.federation.rounds, bit, plan.prior, 0.9)
        for index, curve in enumerate((lower, upper)):
            axes.plot(
                rounds,
                curve,
                ":",
                color=INK,
                linewidth=1.4,
                label="distribution: 90 % of trials" if (bit, index) == (1, 0) else None,
            )


BELIEF_ROUNDS = Section(
    "belief-rounds",
    "Beliefs over rounds",
    InsiderFinding,
    lambda _, findings: findings.find(InsiderFinding),
    trusts=True,
    picture=FindingFigure("Beliefs over rounds", _belief_rounds_figure, _belief_rounds_caption, height=4.6),
)
