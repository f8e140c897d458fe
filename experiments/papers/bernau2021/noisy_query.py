"""Figures 1 to 3 of Bernau et al. 2021: one Gaussian query, its closed forms, and simulated trials of it.

The query answers f(D) = (0, ..., 0) and f(D') = (1, ..., 1), with Gaussian noise by Eq. (1) of the paper.
"""

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import expit, ndtr

from fl_audit.array_types import Flags, Floats
from fl_audit.experiments.papers.item_results import CONFIDENCE, ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.papers import StoredPaperRuns
from fl_audit.experiments.papers.plot_style import legend_below
from fl_audit.experiments.papers.statistics import bootstrap, mean_belief, reproducible_generator
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity, gaussian_belief_bound, rho_alpha, rho_beta
from fl_audit.report.figure_style import BIT_STYLES, INK, finish_axes, new_figure
from fl_audit.statistics.advantage import clopper_pearson, empirical_advantage
from fl_audit.statistics.interval_estimates import IntervalEstimate

TRIALS = 20_000


OTHER_SEEDS = 200
"""Number of further simulations, which show whether the mean belief of Figure 1 is off by chance."""


EXAMPLE_EPSILONS = (6.0, 3.0)


EXAMPLE_DELTA = 1e-6
"""Epsilons and delta of Figure 2. Figure 1 has no printed numbers; it is drawn with the first of the epsilons."""


DELTAS = (1e-2, 1e-3, 1e-6)


EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)


DIMENSIONS = 30


_LINES = ("-", "--", "-.")


_GREYS = ("#12426e", "#b35806", "#5c5c5c")


@dataclass(frozen=True)
class NoisyQuery:
    """The Gaussian query of Figures 1 to 3: f(D) = (0, ..., 0) or f(D') = (1, ..., 1), plus noise N(0, sigma^2 I)."""

    epsilon: float  # epsilon in Eq. (1), which with the sensitivity sqrt(dimensions) yields sigma
    delta: float  # delta in Eq. (1)
    dimensions: int = 1  # length of the answer

    @property
    def mu(self) -> float:
        """The sensitivity of the query divided by sigma; it is the same for every number of dimensions."""
        return self.epsilon / math.sqrt(2 * math.log(1.25 / self.delta))

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise: sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon (Eq. 1 of the paper)."""
        return math.sqrt(self.dimensions) / self.mu

    @property
    def exceeded(self) -> float:
        """Probability that the log-odds in favour of the data set that was used exceed epsilon."""
        return float(ndtr(self.mu / 2 - self.epsilon / self.mu))

    @property
    def label(self) -> str:
        """Name of the query in tables."""
        dimensions = "" if self.dimensions == 1 else f", {self.dimensions} dimensions"
        return f"one query, epsilon {self.epsilon:g}, delta {self.delta:g}{dimensions}"

    def log_odds(self, answer: ArrayLike) -> Floats:
        """Return the log-odds of D against D', shape (...,), given answers of shape (..., dimensions)."""
        return np.asarray(np.sum(1 - 2 * np.asarray(answer, dtype=np.float64), axis=-1) / (2 * self.sigma**2))


@dataclass(frozen=True)
class QueryTrials:
    """Simulated trials of a noisy query.

    `used` says whether D was used (trials,), `answers` holds the noisy answers (trials, dimensions), and
    `towards_truth` the log-odds of the data set that was used (trials,).
    """

    used: Flags
    answers: Floats
    towards_truth: Floats

    @property
    def won(self) -> Flags:
        """Whether the adversary guessed right in each trial, shape (trials,)."""
        return self.towards_truth > 0


def _simulate(query: NoisyQuery, random: np.random.Generator, trials: int = TRIALS) -> QueryTrials:
    """Simulate trials: each draws D or D' with probability 1/2 and answers the query with Gaussian noise."""
    used = random.random(trials) < 0.5
    noise = query.sigma * random.standard_normal((trials, query.dimensions))
    answers = np.where(used, 0.0, 1.0)[:, None] + noise
    log_odds = query.log_odds(answers)
    return QueryTrials(used, answers, np.where(used, log_odds, -log_odds))


def figure_1(_: StoredPaperRuns | None = None) -> ItemResult:
    """Return Figure 1: the adversary's decision boundary and beliefs after one answer to the one-dimensional query."""
    query = NoisyQuery(EXAMPLE_EPSILONS[0], EXAMPLE_DELTA)
    trials = _simulate(query, reproducible_generator("figure 1"))
    other_gaps = [_belief_off(query, _simulate(query, np.random.default_rng(seed))) for seed in range(OTHER_SEEDS)]
    figure = new_figure(3.9)
    left_axes, right_axes = figure.subplots(1, 2)
    grid = np.linspace(-2.5, 3.5, 400)
    _draw_densities(left_axes, query, grid)
    finish_axes(left_axes, "(a) Decision boundary", "Answer r (units of f)", "Density (1 / unit of f)")
    belief = expit(query.log_odds(grid[:, None]))
    for bit, curve in ((1, belief), (0, 1 - belief)):
        style = BIT_STYLES[bit]
        name = "D" if bit else "D'"
        right_axes.plot(grid, curve, style.line, color=style.colour, linewidth=2, label=f"belief in {name}")
    _draw_measured_belief(right_axes, trials)
    finish_axes(right_axes, "(b) Posterior belief", "Answer r (units of f)", "Belief (probability)")
    for axes in (left_axes, right_axes):
        axes.axvline(0.5, color=INK, linestyle=":", linewidth=1.5, label="decision boundary")
        axes.axvspan(grid[0], 0.5, color="#e4ecf4", zorder=0, label="the adversary says D")
    legend_below(figure, (left_axes, right_axes), columns=3)
    return ItemResult(
        table(_rows_of_the_boundary(query, trials)),
        figure,
        f"f(D) = 0 and f(D') = 1 with noise by Eq. (1) at epsilon {query.epsilon:g}, delta {query.delta:g} "
        f"(sigma = {query.sigma:.3f}). Dots: share of {TRIALS:,} simulated trials in which D was used, by answer.",
        (
            "No number is printed, nor the noise, which is that of Figure 2a here.",
            f"The mean belief lies {abs(_belief_off(query, trials)):.1f} standard errors from theory by chance: with "
            f"{OTHER_SEEDS} other seeds it is {abs(np.mean(other_gaps)):.1f} on average, signs counted, and "
            f"{np.max(np.abs(other_gaps)):.1f} at most.",
        ),
    )


def _belief_off(query: NoisyQuery, trials: QueryTrials) -> float:
    """Return the mean belief in the truth minus its theoretical value, in standard errors."""
    beliefs = expit(trials.towards_truth)
    error = float(beliefs.std(ddof=1)) / math.sqrt(beliefs.size)
    return (float(beliefs.mean()) - mean_belief(query.mu)) / error


def _rows_of_the_boundary(query: NoisyQuery, trials: QueryTrials) -> list[ItemRow]:
    answers = trials.answers[:, 0]
    is_correct = trials.won == trials.used
    last = float(answers[is_correct].max())
    first = float(answers[~is_correct].min())
    beliefs = expit(trials.towards_truth)
    wins = int(trials.won.sum())
    won = IntervalEstimate(wins / TRIALS, *clopper_pearson(wins, TRIALS, CONFIDENCE))
    mean = bootstrap(beliefs, np.mean, reproducible_generator("figure 1, belief"))
    return [
        measured_row(
            query.label,
            "decision boundary (units of f)",
            IntervalEstimate((last + first) / 2, last, first),
            TRIALS,
            "between the last answer taken for D and the first taken for D'",
            theory=0.5,
        ),
        measured_row(
            query.label, "share of trials won", won, TRIALS, "theory: Phi(mu / 2)", theory=float(ndtr(query.mu / 2))
        ),
        measured_row(
            query.label,
            "mean belief in the truth",
            mean,
            TRIALS,
            "theory: E sigmoid(L), L ~ N(mu^2/2, mu^2)",
            theory=mean_belief(query.mu),
        ),
    ]


def _draw_densities(axes: Axes, query: NoisyQuery, grid: Floats) -> None:
    for bit, centre, name in ((1, 0.0, "density under D"), (0, 1.0, "density under D'")):
        style = BIT_STYLES[bit]
        density = stats.norm.pdf(grid, centre, query.sigma)
        axes.plot(grid, density, style.line, color=style.colour, linewidth=2, label=name)


def _draw_measured_belief(axes: Axes, trials: QueryTrials) -> None:
    """Plot the share of trials with D among trials with similar answers of the query.

    If beliefs are calibrated, this share equals the belief in D.
    """
    edges = np.linspace(-1.75, 2.75, 19)
    bin_index = np.digitize(trials.answers[:, 0], edges) - 1
    centres = (edges[:-1] + edges[1:]) / 2
    shares = [
        float(trials.used[bin_index == index].mean()) if np.any(bin_index == index) else math.nan for index in range(18)
    ]
    axes.plot(centres, shares, "o", color=INK, markersize=4, label="measured share of D")


def figure_2(_: StoredPaperRuns | None = None) -> ItemResult:
    """Return Figure 2: the answers at which the adversary guesses wrong, at two values of epsilon."""
    figure = new_figure(3.9)
    panels = figure.subplots(1, 2, sharey=True)
    rows = []
    for letter, axes, epsilon in zip("ab", panels, EXAMPLE_EPSILONS, strict=True):
        query = NoisyQuery(epsilon, EXAMPLE_DELTA)
        grid = np.linspace(0.5 - 4.6, 0.5 + 4.6, 201)
        _draw_densities(axes, query, grid)
        _shade_errors(axes, query, grid)
        axes.axvline(0.5, color=INK, linestyle=":", linewidth=1.5, label="decision boundary")
        y_name = "Density (1 / unit of f)" if letter == "a" else ""
        finish_axes(axes, f"({letter}) epsilon {epsilon:g}, delta $10^{{-6}}$", "Answer r (units of f)", y_name)
        rows += _rows_of_errors(query, _simulate(query, reproducible_generator(f"figure 2{letter}")))
    legend_below(figure, list(panels), columns=3)
    return ItemResult(
        table(rows),
        figure,
        "Shaded: where the adversary errs.",
        ("No number is printed; the advantage is that of Theorem 3.",),
    )


def _shade_errors(axes: Axes, query: NoisyQuery, grid: Floats) -> None:
    for bit, centre, region in ((1, 0.0, grid >= 0.5), (0, 1.0, grid <= 0.5)):
        style = BIT_STYLES[bit]
        name = "D taken for D'" if bit else "D' taken for D"
        axes.fill_between(
            grid[region],
            stats.norm.pdf(grid[region], centre, query.sigma),
            facecolor=style.fill,
            edgecolor=style.colour,
            hatch=style.hatch or "\\\\\\\\",
            linewidth=0.5,
            label=name,
        )


def _rows_of_errors(query: NoisyQuery, trials: QueryTrials) -> list[ItemRow]:
    rows = []
    for used, name in ((True, "share of D taken for D'"), (False, "share of D' taken for D")):
        group = trials.used == used
        errors = int(np.sum(~trials.won[group]))
        count = int(group.sum())
        share = IntervalEstimate(errors / count, *clopper_pearson(errors, count, CONFIDENCE))
        theory = float(ndtr(-query.mu / 2))
        rows.append(measured_row(query.label, name, share, count, "theory: Phi(-mu / 2)", theory=theory))
    return [*rows, _advantage_row(query, trials)]


def _advantage_row(query: NoisyQuery, trials: QueryTrials) -> ItemRow:
    measured = empirical_advantage(trials.won, CONFIDENCE)
    interval = IntervalEstimate(measured.advantage, measured.low, measured.high)
    bound = rho_alpha(query.epsilon, query.delta)
    return measured_row(
        query.label, "advantage", interval, measured.trials, "theory: rho_alpha, Theorem 3", theory=bound
    )


def figure_3(_: StoredPaperRuns | None = None) -> ItemResult:
    """Return Figure 3: rho_beta and rho_alpha, the bounds on belief and advantage, over epsilon for several delta."""
    figure = new_figure(4.7)
    left_axes, right_axes = figure.subplots(1, 2)
    grid = np.linspace(0.01, EPSILONS[-1], 200)
    left_axes.plot(
        grid, [rho_beta(x) for x in grid], color=INK, linewidth=3.5, alpha=0.45, label="rho_beta, every delta"
    )
    rows: list[ItemRow] = []
    for delta, line, colour in zip(DELTAS, _LINES, _GREYS, strict=True):
        queries = [NoisyQuery(x, delta, DIMENSIONS) for x in EPSILONS]
        results = [(query, _simulate(query, reproducible_generator(query.label))) for query in queries]
        rows += [
            row for query, trials in results for row in (_advantage_row(query, trials), _belief_row(query, trials))
        ]
        reached = [gaussian_belief_bound(NoisyQuery(x, delta).mu, delta, SignalToNoiseAdaptivity.FIXED) for x in grid]
        left_axes.plot(grid, reached, line, color=colour, linewidth=1.6, label=f"passed with probability {delta:g}")
        bound = [rho_alpha(x, delta) for x in grid]
        right_axes.plot(grid, bound, line, color=colour, linewidth=2, label=f"rho_alpha, delta {delta:g}")
        measured = [float(2 * trials.won.mean() - 1) for _, trials in results]
        right_axes.plot(EPSILONS, measured, "o", color=colour, markersize=5, label="measured advantage")
    finish_axes(left_axes, "(a) Belief", "epsilon (nats)", "Belief (probability)")
    finish_axes(right_axes, "(b) Advantage", "epsilon (nats)", "Advantage")
    legend_below(figure, (left_axes, right_axes), columns=2)
    return ItemResult(
        table(rows),
        figure,
        f"Noise by Eq. (1) at sensitivity sqrt(k), f(D) = 0 and f(D') = 1 in k = {DIMENSIONS} dimensions. Thin lines "
        "of panel a: the belief that is exceeded with probability delta, by the exact distribution of the log-odds.",
        (
            "No number is printed. The message holds: rho_beta does not depend on delta, and rho_alpha depends on it "
            "strongly.",
            "Eq. (1), which is proved for epsilon below 1 only, does not keep the probability of a belief above "
            "rho_beta below delta everywhere: at delta .01 and epsilon 6 it is .016.",
        ),
    )


def _belief_row(query: NoisyQuery, trials: QueryTrials) -> ItemRow:
    passed = int(np.sum(trials.towards_truth > query.epsilon))
    share = IntervalEstimate(passed / TRIALS, *clopper_pearson(passed, TRIALS, CONFIDENCE))
    note = f"theory: P(L > epsilon); claimed is at most {query.delta:g}"
    name = f"share of beliefs above rho_beta = {rho_beta(query.epsilon):.4f}"
    return measured_row(query.label, name, share, TRIALS, note, theory=query.exceeded)
