"""The insider: how often it was right, and how sure it became."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.arrays import Floats
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.evidence.belief.laws import belief_density, belief_grid
from fl_audit.evidence.findings.insider import InsiderNumbers, measure_insider
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.privacy.log_odds import LogOddsLaw
from fl_audit.report.finding import Picture, Row, RunContents, Section
from fl_audit.report.law_words import insider_text
from fl_audit.report.style import BIT_STYLES, INK, LIMIT, MUTED, finish_axes, span
from fl_audit.report.wording import number_text, percent, plural

FEWEST_FOR_HISTOGRAM = 20  # below this many worlds each is drawn as a mark of its own

_COUNTED = "counted; worlds are independent repetitions"


def _sentence(numbers: InsiderNumbers, contents: RunContents) -> str:
    worlds, wins, beyond = numbers.estimate.worlds, numbers.estimate.wins, numbers.belief_violations
    won, surer = advantage_row(numbers, contents), _surer_row(numbers, contents)
    who = f"We put the strongest insider we could think of to the test: {insider_text(contents.facts)}."
    surest = f"The surest it ever became of the right answer was {percent(numbers.max_belief)}"
    if worlds == 1:
        return (
            f"{who} It had a single trial and guessed {'right' if wins else 'wrong'}; one trial says almost nothing. "
            f"{surest}, {'beyond' if beyond else 'within'} the promised limit{surer.aside}."
        )
    return (
        f"{who} It was right in {wins:,} of {worlds:,} trials{won.aside}, where flipping a coin is right in about "
        f"{number_text(worlds / 2)} of them. {surest}, and it passed the promised limit in "
        f"{f'{beyond:,}' if beyond else 'none'} of {worlds:,} trials{surer.aside}."
    )


def advantage_row(numbers: InsiderNumbers, contents: RunContents) -> Row:
    """Return how much better than a coin the insider guessed, beside what is promised.

    Parameters
    ----------
    numbers
        What the insider achieved.
    contents
        What the report is drawn from.
    """
    found = numbers.estimate
    basis = "twice the share of right guesses - 1, 0 is coin-flipping; Clopper-Pearson interval; worlds are independent"
    return Row("Advantage of the insider", found.advantage, basis, found.low, found.high, found.confidence,
               contents.promise.advantage_bound_exact, on_page=True)  # fmt: skip


def _surer_row(numbers: InsiderNumbers, contents: RunContents) -> Row:
    """Return in which share of the worlds the insider passed the promised limit, beside how often it may."""
    estimate, beyond = numbers.estimate, numbers.belief_violations
    low, high = clopper_pearson(beyond, estimate.worlds, estimate.confidence)
    return Row("Share of trials surer than promised", beyond / estimate.worlds, f"{_COUNTED}; Clopper-Pearson interval",
               low, high, estimate.confidence, contents.promise.delta, is_share=True, on_page=True)  # fmt: skip


def _rows(numbers: InsiderNumbers, contents: RunContents) -> list[Row]:
    estimate = numbers.estimate
    return [
        Row("Worlds (trials)", estimate.worlds, _COUNTED),
        Row("Right guesses", estimate.wins, f"{_COUNTED}; the insider names the likelier data set"),
        advantage_row(numbers, contents),
        Row("Largest belief in the truth", numbers.max_belief, "largest over all worlds: it grows with their number",
            is_share=True),
        Row("Worlds beyond the belief bound", numbers.belief_violations, _COUNTED),
        _surer_row(numbers, contents),
    ]  # fmt: skip


def _exact_laws(run: FinishedRun) -> dict[int, LogOddsLaw]:
    """Return the laws of the final log-odds by bit where they are exact; any other would be no limit."""
    return run.largest_laws if run.has_exact_final_law else {}


def _caption(numbers: InsiderNumbers, contents: RunContents) -> str:
    beyond, worlds = numbers.belief_violations, numbers.estimate.worlds
    law = "The curve is the exact law." if _exact_laws(contents.run) else "No law is drawn, for none is exact here."
    return (
        f"Final belief in the data set really used. {law} Beyond the promised limit lie "
        f"{beyond:,} of {worlds:,} ({percent(beyond / worlds)}); promised is {percent(contents.promise.delta)} at most"
        f"{_surer_row(numbers, contents).aside}."
    )


def _beliefs_figure(figure: Figure, numbers: InsiderNumbers, contents: RunContents) -> None:
    axes = figure.add_subplot()
    facts, laws, worlds = contents.facts, _exact_laws(contents.run), contents.worlds
    highest = top = _draw_beliefs(axes, worlds["belief"].to_numpy(dtype=np.float64))
    if laws:
        share, points = float(contents.run.bits.mean()), belief_grid(laws, facts.prior)
        density = belief_density(points, laws, facts.prior, share)
        name = "exact law" if facts.is_sampled else f"exact law, μ = {facts.mu:.3g}"
        axes.plot(points, density, color=INK, linewidth=2, label=name)
        highest = max(top, min(float(density.max()), 2.5 * top) if top else float(density.max()))
    axes.set_xlim(0.0, 1.0)  # the same in every report
    axes.set_ylim(0, 1.1 * highest or 1.0)  # every belief at an end, and no density between
    _draw_bounds(axes, contents)
    title, x_name = "How sure the insider became of the truth", "Belief in the data set really used (probability)"
    if not highest:
        axes.set_yticks([])
    finish_axes(
        axes, title, x_name, "Density (share of worlds\nper unit of probability)" if highest else "each mark is a world"
    )


def _draw_beliefs(axes: Axes, beliefs: Floats) -> float:
    """Draw the measured beliefs and return the height of the tallest bar, 0 where worlds are single marks."""
    label, style = f"measured, {plural(len(beliefs), 'world')}", BIT_STYLES[1]
    if len(beliefs) < FEWEST_FOR_HISTOGRAM:
        frame = axes.get_xaxis_transform()  # in axis units, so that any density fits above
        axes.vlines(beliefs, 0, 0.12, color=style.colour, linewidth=1.4, transform=frame)
        axes.plot(beliefs, np.full(len(beliefs), 0.12), style.marker, color=style.colour, markersize=8,
                  transform=frame, label=label, clip_on=False)  # fmt: skip
        return 0.0
    low, high = span(beliefs)
    # About 2.5 n^(1/3) bins: fine enough to see a shape, no finer.
    bins = np.linspace(low, low + max(high - low, 1e-9), math.ceil(2.5 * len(beliefs) ** (1 / 3)) + 1)
    heights, *_ = axes.hist(
        beliefs, bins=list(bins), density=True, color=style.fill, edgecolor=style.colour, linewidth=0.6, label=label
    )
    return float(np.max(np.asarray(heights, dtype=np.float64)))


def _draw_bounds(axes: Axes, contents: RunContents) -> None:
    bounds = contents.facts.belief_bounds
    if math.isclose(bounds[0], bounds[1]):
        axes.axvline(bounds[1], label=f"promised limit {percent(bounds[1])}", **LIMIT)
    else:
        axes.axvline(bounds[1], label=f"promised limit for D {percent(bounds[1])}", **LIMIT)
        axes.axvline(bounds[0], label=f"promised limit for D' {percent(bounds[0])}", **LIMIT | {"linestyle": ":"})
    axes.axvspan(max(bounds.values()), 1.0, facecolor="none", edgecolor=MUTED, hatch="...", linewidth=0, alpha=0.35)


INSIDER = Section(
    name="beliefs", title="What the insider achieved", numbers=InsiderNumbers, measure=measure_insider,
    keys=("insider",), on_page=True, trusts=True, sentence=_sentence, rows=_rows,
    picture=Picture("Final beliefs", _beliefs_figure, _caption),
)  # fmt: skip
