"""What the insider came to believe: final beliefs, beliefs over rounds, final log-odds."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit, logit

from fl_audit.privacy.log_odds import LogOddsLaw
from fl_audit.report.contents import RunContents
from fl_audit.report.finished_run import FinishedRun, RunFacts
from fl_audit.report.sections.promise import belief_bounds, delta_of
from fl_audit.report.style import (
    BIT_STYLES,
    INK,
    MUTED,
    add_legend,
    draw_band,
    finish_axes,
    markers_for,
    report_figure,
    span,
    whole_number_axis,
)
from fl_audit.report.theory import Floats, belief_band, belief_density, belief_grid, log_odds_density
from fl_audit.report.wording import percent

FEWEST_FOR_HISTOGRAM = 20
"""Below this many worlds each is drawn as a mark of its own."""

WORLDS_SHOWN = FEWEST_FOR_HISTOGRAM


def beliefs_figure(contents: RunContents, beyond: int) -> Figure:
    """Draw the final beliefs in the dataset that was really used, beside their law where it is exact."""
    figure = report_figure()
    axes = figure.add_subplot()
    facts, laws = contents.facts, exact_laws(contents.run)
    top = _draw_beliefs(axes, contents.worlds["belief"].to_numpy(dtype=np.float64))
    highest = top
    if laws:
        share, points = float((contents.worlds["bit"] == 1).mean()), belief_grid(laws, facts.prior)
        density = belief_density(points, laws, facts.prior, share)
        axes.plot(points, density, color=INK, linewidth=2, label=_law_name(facts))
        highest = max(top, min(float(density.max()), 2.5 * top) if top else float(density.max()))
    axes.set_xlim(0.0, 1.0)  # the same in every report
    axes.set_ylim(0, 1.1 * highest or 1.0)  # every belief at an end, and no density between
    _draw_bound_and_share(axes, contents, beyond)
    finish_axes(
        axes,
        "How sure the insider became of the truth",
        "Belief in the data set really used (probability)",
        _density_name(axes, "Density (share of worlds\nper unit of probability)", bool(highest)),
    )
    add_legend(axes)
    return figure


def exact_laws(run: FinishedRun) -> dict[int, LogOddsLaw]:
    """Return the laws of the final log-odds by bit where they are exact; any other would be no limit."""
    return run.largest_laws if run.has_exact_final_law else {}


def _density_name(axes: Axes, name: str, has_densities: bool) -> str:
    """Return what the vertical axis shows; where each world is a mark it shows nothing, and has no numbers."""
    if not has_densities:
        axes.set_yticks([])
    return name if has_densities else "each mark is a world"


def belief_rounds_figure(contents: RunContents) -> Figure:
    """Draw the belief in D over the rounds: bands over all worlds, or each of few; and the law where it is exact."""
    figure = report_figure(5.0)
    axes = figure.add_subplot()
    if len(contents.worlds) < FEWEST_FOR_HISTOGRAM:
        _draw_each_world(axes, contents)
    else:
        for bit in (1, 0):
            _draw_belief_bands(axes, contents, bit)
    _draw_belief_limits(axes, contents)
    axes.set_ylim(-0.02, 1.02)
    whole_number_axis(axes, 0, contents.facts.game.rounds)
    title = "The insider's belief, round by round"
    finish_axes(axes, title, "Round (number; 0 = before training)", "Belief in D (probability)")
    add_legend(axes, columns=2)
    return figure


def _draw_each_world(axes: Axes, contents: RunContents) -> None:
    if contents.run.has_even_rounds:
        for bit in (1, 0):
            _draw_belief_law(axes, contents.facts, bit)
    shown = worlds_shown(contents.worlds)
    for bit, style in BIT_STYLES.items():
        for index, world in enumerate(shown[shown["bit"] == bit]["world"]):
            _draw_path(axes, contents, int(world), bit, style.name if index == 0 else "")


def _draw_belief_bands(axes: Axes, contents: RunContents, bit: int) -> None:
    """Draw median and middle 90 % of the beliefs of all worlds of a bit, and of the law where it is exact."""
    style, run = BIT_STYLES[bit], contents.run
    paths = run.by_world("log_odds")[run.bits == bool(bit)]
    if not len(paths):
        return
    beliefs = expit(np.hstack([np.zeros((len(paths), 1)), paths]) + logit(contents.facts.prior))
    rounds = np.arange(beliefs.shape[1])
    low, middle, high = np.nanquantile(beliefs, [0.05, 0.5, 0.95], axis=0)
    draw_band(
        axes, rounds, low, high, facecolor=style.fill if bit == 1 else "none", edgecolor=style.colour,
        hatch=style.hatch, alpha=0.5, linewidth=1, label=f"{style.short}: 90 % of {len(paths):,} worlds",
    )  # fmt: skip
    axes.plot(rounds, middle, style.line, color=style.colour, linewidth=2.4, marker=style.marker,
              label=f"{style.short}: their median", **markers_for(len(rounds)))  # fmt: skip
    if run.has_even_rounds:
        law = belief_band(contents.facts.mu, contents.facts.game.rounds, bit, contents.facts.prior, 0.9)
        for index, curve in enumerate((law.low, law.high)):
            axes.plot(rounds, curve, ":", color=INK, linewidth=1.4,
                      label="law: 90 % of worlds" if (bit, index) == (1, 0) else None)  # fmt: skip


def log_odds_figure(contents: RunContents) -> Figure:
    """Draw the final log-odds of the worlds that used D and of those that used D', beside their laws if exact."""
    figure = report_figure()
    axes = figure.add_subplot()
    run = contents.run
    values, laws = run.log_odds, exact_laws(run)
    histogram = has_histogram(run)
    reach = _round_reach(*span(values, *(law.quantile([2e-4, 1 - 2e-4]) for law in laws.values())))
    grid = np.linspace(-reach, reach, 1000)
    for bit, style in BIT_STYLES.items():
        _draw_log_odds(axes, values[run.bits == bool(bit)], bit, histogram)
        if laws:
            density = log_odds_density(grid, laws[bit])
            axes.plot(grid, density, style.line, color=style.colour, linewidth=2, label=f"law, {style.short}")
    threshold = -float(logit(contents.facts.prior))
    axes.axvline(
        threshold, color=INK, linestyle=":", linewidth=1.6, label="the insider says D to the right of this line"
    )
    axes.set_ylim(bottom=0)
    axes.set_xlim(-reach, reach)
    has_densities = bool(laws) or histogram
    finish_axes(
        axes,
        "Evidence for D after the last round",
        "Log-odds of D against D' (nats)",
        _density_name(axes, "Density (share of worlds per nat)", has_densities),
    )
    add_legend(axes, columns=2)
    return figure


def has_histogram(run: FinishedRun) -> bool:
    """Whether the worlds of either bit that there are, are enough to be drawn as histograms."""
    counts = [count for count in (int(run.bits.sum()), int((~run.bits).sum())) if count]
    return min(counts) >= FEWEST_FOR_HISTOGRAM


def _round_reach(low: float, high: float) -> float:
    """Return where an axis around 0 ends: one of few numbers, so that it is the same in runs that are alike."""
    largest = max(abs(low), abs(high), 1e-9)
    unit = 10.0 ** math.floor(math.log10(largest))
    return max(1.0, next(unit * step for step in (1, 2, 5, 10) if unit * step >= largest))


def worlds_shown(worlds: pd.DataFrame, limit: int = WORLDS_SHOWN) -> pd.DataFrame:
    """Return the first worlds of either bit, `limit` in all: chosen by number, not by outcome."""
    ordered = worlds.sort_values("world")
    parts = [ordered[ordered["bit"] == bit] for bit in (1, 0)]
    first = max(limit // 2, limit - len(parts[1]))
    with_d = parts[0].head(first)
    return pd.concat([with_d, parts[1].head(limit - len(with_d))])


def _draw_beliefs(axes: Axes, beliefs: Floats) -> float:
    """Draw the measured beliefs and return the height of the tallest bar, 0 where worlds are single marks."""
    label = f"measured, {len(beliefs):,} {'world' if len(beliefs) == 1 else 'worlds'}"
    if len(beliefs) < FEWEST_FOR_HISTOGRAM:
        _draw_marks(axes, beliefs, 1, label)
        return 0.0
    style = BIT_STYLES[1]
    heights, *_ = axes.hist(
        beliefs, bins=_bins(beliefs), density=True, color=style.fill, edgecolor=style.colour, linewidth=0.6, label=label
    )
    return float(np.max(np.asarray(heights, dtype=np.float64)))


def _bins(values: Floats) -> list[float]:
    """Return the edges of about 2.5 n^(1/3) equal bins over the values: fine enough to see a shape, no finer."""
    low, high = span(values)
    reach = max(high - low, 1e-9)
    return list(np.linspace(low, low + reach, math.ceil(2.5 * len(values) ** (1 / 3)) + 1))


def _draw_marks(axes: Axes, values: Floats, bit: int, label: str) -> None:
    """Draw each world as a stem on the horizontal axis, in axis units so that any density fits above."""
    style = BIT_STYLES[bit]
    frame = axes.get_xaxis_transform()
    for value in values:
        axes.plot([value, value], [0, 0.12], color=style.colour, linestyle=style.line, linewidth=1.4, transform=frame)
    tips = np.full(len(values), 0.12)
    axes.plot(values, tips, style.marker, color=style.colour, markersize=8, transform=frame, label=label, clip_on=False)


def _draw_bound_and_share(axes: Axes, contents: RunContents, beyond: int) -> None:
    bounds, worlds = belief_bounds(contents.facts), contents.run.worlds
    delta = percent(delta_of(contents.facts))
    share = f"beyond it {beyond:,} of {worlds:,} ({percent(beyond / worlds)}), promised at most δ = {delta}"
    if math.isclose(bounds[0], bounds[1]):
        axes.axvline(bounds[1], color=INK, linestyle="-.", linewidth=1.8, label=f"bound {percent(bounds[1])}: {share}")
    else:
        axes.axvline(bounds[1], color=INK, linestyle="-.", linewidth=1.8, label=f"bound for D {percent(bounds[1])}")
        label = f"bound for D' {percent(bounds[0])}; {share.replace('it', 'its own bound', 1)}"
        axes.axvline(bounds[0], color=INK, linestyle=":", linewidth=1.8, label=label)
    axes.axvspan(max(bounds.values()), 1.0, facecolor="none", edgecolor=MUTED, hatch="...", linewidth=0, alpha=0.35)


def _law_name(facts: RunFacts) -> str:
    return "exact law" if facts.is_sampled else f"exact law, μ = {facts.mu:.3g}"


def _draw_belief_law(axes: Axes, facts: RunFacts, bit: int) -> None:
    style = BIT_STYLES[bit]
    band = belief_band(facts.mu, facts.game.rounds, bit, facts.prior)
    rounds = np.arange(facts.game.rounds + 1)
    draw_band(
        axes,
        rounds,
        band.low,
        band.high,
        facecolor=style.fill if bit == 1 else "none",
        edgecolor=style.colour,
        hatch=style.hatch,
        alpha=0.3,
        linewidth=1.2,
        linestyle=style.line,
        label=f"law, {style.short}: 95 % of worlds",
    )
    label = f"law, {style.short}: median"
    axes.plot(rounds, band.middle, style.line, color=style.colour, linewidth=3.2, label=label, zorder=4)


def _draw_path(axes: Axes, contents: RunContents, world: int, bit: int, label: str) -> None:
    """Draw the belief in D of one world from the prior to the last round, with a mark at its end."""
    style = BIT_STYLES[bit]
    path = contents.rounds[contents.rounds["world"] == world].sort_values("round")
    rounds = np.concatenate([[0], path["round"].to_numpy()])
    log_odds = np.concatenate([[0.0], path["log_odds"].to_numpy(dtype=np.float64)])
    belief = expit(log_odds + logit(contents.facts.prior))
    axes.plot(rounds, belief, style.line, color=style.colour, linewidth=1.0, alpha=0.85)
    axes.plot(rounds[-1:], belief[-1:], style.marker, color=style.colour, markersize=5, clip_on=False, zorder=5)
    if label:
        axes.plot(
            [], [], style.line, color=style.colour, linewidth=1.0, marker=style.marker, **markers_for(2), label=label
        )


def _draw_belief_limits(axes: Axes, contents: RunContents) -> None:
    bounds = belief_bounds(contents.facts)
    same = math.isclose(bounds[0], bounds[1])
    other = "D'" if same else f"D' ({percent(bounds[0])})"
    label = f"bound {percent(bounds[1])}, for D and for {other}"
    axes.axhline(bounds[1], color=INK, linestyle="-.", linewidth=1.8, label=label)
    axes.axhline(1 - bounds[0], color=INK, linestyle="-.", linewidth=1.8)


def _draw_log_odds(axes: Axes, values: Floats, bit: int, histogram: bool) -> None:
    style = BIT_STYLES[bit]
    if not len(values):
        return
    label = f"{style.name}, {len(values):,} {'world' if len(values) == 1 else 'worlds'}"
    if not histogram:
        _draw_marks(axes, values, bit, label)
        return
    axes.hist(
        values,
        bins=_bins(values),
        density=True,
        histtype="stepfilled",
        facecolor=style.fill if bit == 1 else "none",
        edgecolor=style.colour,
        hatch=style.hatch,
        linewidth=1.0,
        alpha=0.75,
        label=label,
    )
