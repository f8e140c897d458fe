"""The insider's belief, round by round."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit, logit

from fl_audit.evidence.belief.laws import belief_band
from fl_audit.evidence.findings.insider import InsiderNumbers
from fl_audit.report.finding import Picture, RunContents, Section
from fl_audit.report.sections.insider import FEWEST_FOR_HISTOGRAM
from fl_audit.report.style import BIT_STYLES, INK, LIMIT, draw_band, finish_axes, markers_for, whole_number_axis
from fl_audit.report.wording import percent


def _caption(_: InsiderNumbers, contents: RunContents) -> str:
    many = contents.run.worlds >= FEWEST_FOR_HISTOGRAM
    shown = "Medians and the middle 90 % of worlds" if many else "Each world"
    law = " Dotted: where the exact law has 90 %." if contents.run.has_even_rounds else ""
    return (
        f"{shown}, ● where D was used, ▼ where D' was.{law} Above the upper line a world is surer of D than promised, "
        "below the lower one surer of D'."
    )


def _belief_rounds_figure(figure: Figure, _: InsiderNumbers, contents: RunContents) -> None:
    """Draw the belief in D over the rounds: bands over all worlds, or each of few; and the law where it is exact."""
    axes = figure.add_subplot()
    for bit in (1, 0):
        _draw_bit(axes, contents, bit)
    bounds = contents.facts.belief_bounds
    other = "D'" if math.isclose(bounds[0], bounds[1]) else f"D' ({percent(bounds[0])})"
    axes.axhline(bounds[1], label=f"limit {percent(bounds[1])}, for D and for {other}", **LIMIT)
    axes.axhline(1 - bounds[0], **LIMIT)
    axes.set_ylim(-0.02, 1.02)
    whole_number_axis(axes, 0, contents.facts.game.rounds)
    title = "The insider's belief, round by round"
    finish_axes(axes, title, "Round (number; 0 = before training)", "Belief in D (probability)")


def _draw_bit(axes: Axes, contents: RunContents, bit: int) -> None:
    """Draw the beliefs of all worlds of a bit, and where the law has nine tenths of them where it is exact."""
    style, run, facts = BIT_STYLES[bit], contents.run, contents.facts
    paths = run.by_world("log_odds")[run.bits == bool(bit)]
    if not len(paths):
        return
    beliefs = expit(np.hstack([np.zeros((len(paths), 1)), paths]) + logit(facts.prior))
    rounds = np.arange(beliefs.shape[1])
    if run.worlds < FEWEST_FOR_HISTOGRAM:
        axes.plot(rounds, beliefs.T, style.line, color=style.colour, linewidth=1.0, alpha=0.85)
        axes.plot(rounds[-1:].repeat(len(paths)), beliefs[:, -1], style.line, color=style.colour, linewidth=0,
                  marker=style.marker, markersize=5, clip_on=False, label=style.name)  # fmt: skip
    else:
        low, middle, high = np.nanquantile(beliefs, [0.05, 0.5, 0.95], axis=0)
        draw_band(
            axes, rounds, low, high, facecolor=style.fill if bit == 1 else "none", edgecolor=style.colour,
            hatch=style.hatch, alpha=0.5, linewidth=1, label=f"{style.short}: 90 % of {len(paths):,} worlds",
        )  # fmt: skip
        axes.plot(rounds, middle, style.line, color=style.colour, linewidth=2.4, marker=style.marker,
                  label=f"{style.short}: their median", **markers_for(len(rounds)))  # fmt: skip
    if run.has_even_rounds:
        least, _, most = belief_band(facts.mu, facts.game.rounds, bit, facts.prior, 0.9)
        for index, curve in enumerate((least, most)):
            axes.plot(rounds, curve, ":", color=INK, linewidth=1.4,
                      label="law: 90 % of worlds" if (bit, index) == (1, 0) else None)  # fmt: skip


BELIEF_ROUNDS = Section(
    name="belief-rounds", title="Beliefs over rounds", numbers=InsiderNumbers,
    measure=lambda _, findings: findings.find(InsiderNumbers), trusts=True,
    picture=Picture("Beliefs over rounds", _belief_rounds_figure, _caption, height=4.6),
)  # fmt: skip
