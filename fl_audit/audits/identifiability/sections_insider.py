"""Finding and report section on the insider: its advantage, and its beliefs in each trial."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import logit

from fl_audit.array_types import Floats
from fl_audit.audits.identifiability.belief_distribution import belief_density, belief_grid
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.privacy.log_odds_distribution import LogOddsDistribution
from fl_audit.report import figure_style as drawing
from fl_audit.report.figure_style import BIT_STYLES, INK, LIMIT, MUTED, finish_axes
from fl_audit.report.mechanism_messages import insider_text
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.statistics.advantage import AdvantageFromWins, advantage_ends, clopper_pearson, empirical_advantage
from fl_audit.words import limit_text, number_text, percent, plural


@dataclass(frozen=True)
class InsiderFinding:
    """The insider's advantage over guessing, its largest belief, and how often its belief exceeded the bound."""

    estimate: AdvantageFromWins  # number of right guesses, and the advantage that follows from it
    max_belief: float  # largest posterior belief over trials in the data set that was used
    belief_violations: int  # number of trials in which this belief exceeded the belief bound of the guarantee

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `insider`, for `summary.json`."""
        estimate = self.estimate
        advantage = {"advantage": estimate.advantage, "advantage_low": estimate.low, "advantage_high": estimate.high}
        beliefs = {"max_belief": self.max_belief, "belief_violations": self.belief_violations}
        return {"insider": {"trials": estimate.trials, "wins": estimate.wins} | advantage | beliefs}


def measure_insider(run: FinishedRun, _: Findings) -> InsiderFinding | None:
    """Return the insider's advantage and largest belief over all trials; None without a guarantee or an insider."""
    if (guarantee := run.plan.guarantee) is None or not run.has_insider:
        return None
    # The guarantee bounds the log-odds; at a prior of 1/2 this counts the beliefs beyond the bound.
    limit = logit(guarantee.belief_bound) - logit(guarantee.prior)
    estimate = empirical_advantage(run.tables.trials["won"].to_numpy(), run.plan.confidence)
    largest = float(run.tables.trials["belief"].max())
    violations = int((run.llr_of_used_set > limit).sum())
    return InsiderFinding(estimate, largest, violations)


FEWEST_FOR_HISTOGRAM = 20  # smallest number of trials for a histogram; with fewer, each trial is drawn as a mark
_COUNTED = "counted; trials are independent repetitions"


def _sentence(finding: InsiderFinding, contents: ReportContents) -> str:
    trials = finding.estimate.trials
    wins = finding.estimate.wins
    beyond = finding.belief_violations
    won = advantage_row(finding.estimate, contents)
    surer = _exceedance_row(finding, contents)
    opening = f"We put an insider to the test: {insider_text(contents.plan)}."
    surest = f"The surest it ever became of the right answer was {percent(finding.max_belief)}"
    if trials == 1:
        return (
            f"{opening} It had a single trial and guessed {'right' if wins else 'wrong'}; one trial says almost "
            "nothing. "
            f"{surest}, {'beyond' if beyond else 'within'} the claimed limit{surer.comparison_in_brackets}."
        )
    return (
        f"{opening} It was right in {wins:,} of {trials:,} trials{won.comparison_in_brackets}, where flipping a "
        "coin is "
        f"right in about {number_text(trials / 2)} of them. {surest}, and it passed the claimed limit in "
        f"{f'{beyond:,}' if beyond else 'none'} of {trials:,} trials{surer.comparison_in_brackets}."
    )


def advantage_row(wins: AdvantageFromWins, contents: ReportContents) -> ReportNumber:
    """Return the table row of the insider's advantage, with its interval and the largest claimed advantage."""
    basis = "twice the share of right guesses - 1, 0 is coin-flipping; Clopper-Pearson interval; trials are independent"
    return ReportNumber(
        "Advantage of the insider",
        wins.advantage,
        basis,
        wins.low,
        wins.high,
        wins.confidence,
        contents.guarantee.advantage_bound_exact,
        largest=1.0,
        on_page=True,
        is_violated=contents.is_violated,
        wide=partial(advantage_ends, wins.wins, wins.trials),
    )


def _exceedance_row(finding: InsiderFinding, contents: ReportContents) -> ReportNumber:
    """Return the table row with the share of trials in which the insider's belief exceeded the claimed bound."""
    estimate = finding.estimate
    beyond = finding.belief_violations
    low, high = clopper_pearson(beyond, estimate.trials, estimate.confidence)
    return ReportNumber(
        "Share of trials surer than claimed",
        beyond / estimate.trials,
        f"{_COUNTED}; Clopper-Pearson interval",
        low,
        high,
        estimate.confidence,
        contents.guarantee.delta,
        is_share=True,
        largest=1.0,
        on_page=True,
        is_violated=contents.is_violated,
        wide=partial(clopper_pearson, beyond, estimate.trials),
    )


def _rows(finding: InsiderFinding, contents: ReportContents) -> list[ReportNumber]:
    estimate = finding.estimate
    return [
        ReportNumber("Trials", estimate.trials, _COUNTED),
        ReportNumber("Right guesses", estimate.wins, f"{_COUNTED}; the insider names the likelier data set"),
        advantage_row(finding.estimate, contents),
        ReportNumber(
            "Largest belief in the truth",
            finding.max_belief,
            "largest over all trials: it grows with their number",
            is_share=True,
        ),
        ReportNumber("Trials beyond the belief bound", finding.belief_violations, _COUNTED),
        _exceedance_row(finding, contents),
    ]


def _exact_distributions(run: FinishedRun) -> dict[int, LogOddsDistribution]:
    """Return the exact distributions of the final log-odds, keyed by secret bit; empty if they are unknown."""
    return run.largest_distributions if run.has_exact_final_distribution else {}


def _caption(finding: InsiderFinding, contents: ReportContents) -> str:
    beyond = finding.belief_violations
    trials = finding.estimate.trials
    distribution = (
        "The curve is the exact distribution."
        if _exact_distributions(contents.run)
        else "No distribution is drawn, for none is exact here."
    )
    return (
        f"Final belief in the data set really used. {distribution} Beyond the claimed limit lie "
        f"{beyond:,} of {trials:,} ({percent(beyond / trials)}); claimed is {percent(contents.guarantee.delta)} at most"
        f"{_exceedance_row(finding, contents).comparison_in_brackets}."
    )


def _beliefs_figure(figure: Figure, finding: InsiderFinding, contents: ReportContents) -> None:
    axes = figure.add_subplot()
    plan = contents.plan
    distributions = _exact_distributions(contents.run)
    trials = contents.trials
    highest = top = _draw_beliefs(axes, trials["belief"].to_numpy(dtype=np.float64))
    if distributions:
        share = float(contents.run.bits.mean())
        points = belief_grid(distributions, plan.prior)
        density = belief_density(points, distributions, plan.prior, share)
        name = "exact distribution" if plan.is_sampled else f"exact distribution, μ = {plan.mu:.3g}"
        axes.plot(points, density, color=INK, linewidth=2, label=name)
        highest = max(top, min(float(density.max()), 2.5 * top) if top else float(density.max()))
    axes.set_xlim(0.0, 1.0)  # the same in every report
    axes.set_ylim(0, 1.1 * highest or 1.0)  # 0 if every belief is 0 or 1 and no density is drawn
    bounds = plan.belief_bounds
    of_d = "" if math.isclose(bounds[0], bounds[1]) else " for D"
    axes.axvline(bounds[1], label=f"claimed limit{of_d} {limit_text(bounds[1])}", **LIMIT)
    if of_d:
        axes.axvline(bounds[0], label=f"claimed limit for D' {limit_text(bounds[0])}", **LIMIT | {"linestyle": ":"})
    axes.axvspan(max(bounds.values()), 1.0, facecolor="none", edgecolor=MUTED, hatch="...", linewidth=0, alpha=0.35)
    title = "How sure the insider became of the truth"
    x_name = "Belief in the data set really used (probability)"
    y_name = "Density (share of trials\nper unit of probability)"
    if not highest:
        y_name = "each mark is a trial"
        axes.set_yticks([])
    finish_axes(axes, title, x_name, y_name)


def _draw_beliefs(axes: Axes, beliefs: Floats) -> float:
    """Draw the final beliefs of all trials, and return the height of the tallest bar of their histogram.

    With fewer than 20 trials, draw one mark for each trial and return 0.
    """
    label = f"measured, {plural(len(beliefs), 'trial')}"
    style = BIT_STYLES[1]
    if len(beliefs) < FEWEST_FOR_HISTOGRAM:
        frame = axes.get_xaxis_transform()  # in axis units, so that any density fits above
        axes.vlines(beliefs, 0, 0.12, color=style.colour, linewidth=1.4, transform=frame)
        axes.plot(
            beliefs,
            np.full(len(beliefs), 0.12),
            style.marker,
            color=style.colour,
            markersize=8,
            transform=frame,
            label=label,
            clip_on=False,
        )
        return 0.0
    low, high = drawing.span(beliefs)
    # About 2.5 n^(1/3) bins: fine enough to see a shape, no finer.
    bins = np.linspace(low, low + max(high - low, 1e-9), math.ceil(2.5 * len(beliefs) ** (1 / 3)) + 1)
    heights, *_ = axes.hist(
        beliefs, bins=list(bins), density=True, color=style.fill, edgecolor=style.colour, linewidth=0.6, label=label
    )
    return float(np.max(np.asarray(heights, dtype=np.float64)))


INSIDER = Section(
    "beliefs",
    "What the insider achieved",
    InsiderFinding,
    measure_insider,
    keys=("insider",),
    on_page=True,
    trusts=True,
    sentence=_sentence,
    rows=_rows,
    picture=FindingFigure("Final beliefs", _beliefs_figure, _caption),
)
