"""Table 2 and Figure 6 of Bernau et al. 2021: the insider's advantage and beliefs, and the test accuracy.

The insider is the adversary that distinguishes the data set D from its neighbour D'. All results are at rho_beta = 0.9,
the claimed upper bound on the insider's belief in the true data set.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from scipy.special import logit, ndtr

from fl_audit.array_types import Floats
from fl_audit.experiments.papers import plot_style, statistics
from fl_audit.experiments.papers.bernau2021.discrepancies import explained
from fl_audit.experiments.papers.bernau2021.insider_runs import (
    CANDIDATES,
    MAIN_BELIEF,
    MAIN_REPETITIONS,
    PRINTED,
    SENSITIVITIES,
    claimed_mu,
    expected_advantage,
    floored_share,
    is_local,
    letters,
    main_runs,
    mu_of_trials,
    run_row,
)
from fl_audit.experiments.papers.bernau2021.sensitivities import short_title
from fl_audit.experiments.papers.item_results import CONFIDENCE, ItemResult, ItemRow, table
from fl_audit.experiments.papers.papers import PaperRun, StoredPaperRun, StoredPaperRuns
from fl_audit.report.figure_style import INK, finish_axes, new_figure
from fl_audit.statistics.advantage import clopper_pearson, empirical_advantage
from fl_audit.statistics.interval_estimates import IntervalEstimate

ADVANTAGE = "advantage"
EXCEEDED = "delta' (share of beliefs above rho_beta)"
_APPROXIMATE = "approximate, from the sensitivities of each trial"
_SHADES = ("#ffffff", "#bdbdbd", "#7f7f7f")


def table_2(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Table 2: the insider's advantage, and its share of beliefs above the bound rho_beta = 0.9."""
    data = paper_runs.data
    rows = list[ItemRow]()
    figure = new_figure(2.2 + 2.1 * 2)
    panels = figure.subplots(2, len(data), squeeze=False, sharey="row")
    for column, dataset in enumerate(data):
        runs = main_runs(dataset)
        pairs = [identified(paper_runs[run]) for run in runs]
        rows += [row for pair in pairs for row in pair]
        upper = panels[0][column]
        lower = panels[1][column]
        for index, (panel, name) in enumerate(((upper, "Advantage"), (lower, "delta' (share of beliefs)"))):
            _draw(panel, runs, [pair[index] for pair in pairs])
            finish_axes(panel, "" if index else short_title(dataset), "", name if column == 0 else "")
        lower.set_ylim(bottom=-0.06 * lower.get_ylim()[1])
        lower.axhline(dataset["privacy.delta"], color=INK, linestyle=":", linewidth=1.4, label="delta, as claimed")
    plot_style.legend_below(figure, [panel for row in panels for panel in row], columns=2)
    return ItemResult(
        table(rows),
        figure,
        "Advantage of the insider (top) and share of its beliefs above rho_beta = 0.9 (bottom), with 95 % intervals. "
        "LS, GS: noise by local or global sensitivity; B, U: a record is replaced or removed.",
        explained(
            (
                "local-distribution",
                "global-distribution",
                "repetitions",
                "second-draw",
                "bit",
                "optimizer",
                "calibration",
                "eq-9",
                "ssim",
                "network",
                "subset",
            ),
            paper_runs.stands_in,
        ),
    )


def identified(paper_run: StoredPaperRun) -> tuple[ItemRow, ItemRow]:
    """Return two table rows of a run: the insider's advantage, and the share of its beliefs above rho_beta.

    Each row has the measured, the published and the predicted value.
    """
    run = paper_run.run
    trials = paper_run.repetitions
    expected = expected_advantage(paper_run)
    measured = empirical_advantage(paper_run.trials["won"].to_numpy(), CONFIDENCE)
    z = _z_against(measured.advantage, expected, trials)
    unrounded = PRINTED.of(run, "advantage before rounding")
    z_published = _z_between(measured.advantage, trials, unrounded, MAIN_REPETITIONS)
    note = (
        f"theory {'exact' if is_local(run) else _APPROXIMATE}; z against theory {z:+.2f}, against the published "
        f"{z_published:+.2f} ({unrounded:g} before rounding, not in print)"
    )
    if is_local(run) and (floored := floored_share(paper_run)):
        predicted_advantage = statistics.predicted_advantage(mu_of_trials(paper_run))
        note += f"; {100 * floored:.2g} % of rounds without evidence, which leaves {predicted_advantage:.4f}"
    passed = int(np.sum(paper_run.trials["belief"] > run["privacy.belief"]))
    share = IntervalEstimate(passed / trials, *clopper_pearson(passed, trials, CONFIDENCE))
    summary = f"{passed} of {trials}; claimed is at most {run['privacy.delta']:g}"
    predicted = _predicted_exceedance(mu_of_trials(paper_run), run["privacy.belief"])
    return (
        run_row(
            paper_run, ADVANTAGE, IntervalEstimate(measured.advantage, measured.low, measured.high), note, expected
        ),
        run_row(paper_run, EXCEEDED, share, summary, predicted),
    )


def _predicted_exceedance(mu: Floats, belief: float) -> float:
    """Return the probability that the belief in the truth exceeds `belief`, averaged over trials.

    The log-odds of trial w are taken to be N(mu_w^2/2, mu_w^2), with prior 1/2.
    """
    positive = mu[mu > 0]
    return float(np.sum(ndtr(positive / 2 - logit(belief) / positive)) / len(mu))


def _z_against(advantage: float, expected: float, trials: int) -> float:
    """Return the z-score of a measured advantage against the expected advantage, both in [-1, 1]."""
    return (advantage - expected) / math.sqrt((1 - expected**2) / trials)


def _z_between(advantage: float, trials: int, other_advantage: float, other_trials: int) -> float:
    """Return the z-score of `advantage` minus `other_advantage`, from independent trials.

    It is infinite if the variance is 0.
    """
    variance = (1 - advantage**2) / trials + (1 - other_advantage**2) / other_trials
    return (advantage - other_advantage) / math.sqrt(variance) if variance > 0 else math.inf


def _draw(axes: Axes, runs: Sequence[PaperRun], rows: Sequence[ItemRow]) -> None:
    for sensitivity, look in plot_style.SENSITIVITY_LOOKS.items():
        indexes = [index for index, run in enumerate(runs) if run["privacy.sensitivity"] is sensitivity]
        plot_style.draw_measured(
            axes, indexes, [rows[index].interval for index in indexes], look, look.name, joined=False
        )
    positions = np.arange(len(rows))
    for row_index, row in enumerate(rows):
        axes.plot(
            [row_index - 0.33, row_index + 0.33], [row.theory] * 2, color=INK, linewidth=2.2, label=plot_style.THEORY
        )
        look = plot_style.SENSITIVITY_LOOKS[runs[row_index]["privacy.sensitivity"]]
        plot_style.draw_published(axes, [row_index + 0.22], [row.published], look.colour)
    axes.set_xticks(positions, [letters(run) for run in runs])
    axes.set_xlim(-0.6, len(rows) - 0.4)


def figure_6(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Figure 6: the distributions of the final belief in the true data set, and of the test accuracy."""
    data = paper_runs.data
    figure = new_figure(7.2)
    panels = figure.subplots(2, 2).ravel()
    by_study = {dataset.study: dataset for dataset in data}
    for letter, axes, study in zip("abc", panels[:3], CANDIDATES, strict=True):
        if study in by_study:
            _draw_beliefs(axes, [paper_runs[run] for run in main_runs(by_study[study])])
            finish_axes(axes, f"({letter}) {by_study[study].title}", "", "Belief in the truth (probability)")
        else:
            plot_style.empty_panel(axes, f"({letter}) {study}", "not played: its data are not there")
    _draw_accuracies(panels[3], paper_runs)
    finish_axes(panels[3], "(d) Test accuracy", "", "Accuracy after the last round (%)")
    keys = [plot_style.box_key(plot_style.SENSITIVITY_LOOKS[sensitivity]) for sensitivity in SENSITIVITIES]
    plot_style.legend_below(figure, list(panels), keys)
    return ItemResult(
        table(row for dataset in data for run in main_runs(dataset) for row in _belief_rows(paper_runs[run])),
        figure,
        "Final beliefs in the data set that was really used (a to c), and test accuracy (d, shades by data set). LS, "
        "GS: noise by local or global sensitivity; B, U: a record is replaced or removed.",
        (
            "The paper's panel d does not name its data set and was not read off; ours shows all. Its point is that "
            "the larger noise of GS B costs accuracy.",
            *explained(
                ("local-distribution", "second-draw", "bit", "optimizer", "precision", "network", "subset"),
                paper_runs.stands_in,
            ),
        ),
    )


def _draw_beliefs(axes: Axes, runs: Sequence[StoredPaperRun]) -> None:
    for sensitivity, look in plot_style.SENSITIVITY_LOOKS.items():
        positions = [index for index, run in enumerate(runs) if run.run["privacy.sensitivity"] is sensitivity]
        plot_style.draw_boxes(
            axes, [runs[position].trials["belief"].to_numpy() for position in positions], positions, look, 0.6
        )
    for row_index, paper_run in enumerate(runs):
        if is_local(paper_run.run):
            mean = statistics.mean_belief(claimed_mu(paper_run))
            axes.plot(
                [row_index - 0.42, row_index + 0.42], [mean] * 2, color=INK, linestyle="--", label="theory, mean (LS)"
            )
        axes.plot(
            [row_index], [float(paper_run.trials["belief"].mean())], "x", color=INK, markersize=7, label="measured mean"
        )
    axes.axhline(MAIN_BELIEF, color=INK, linestyle=":", linewidth=1.6, label="rho_beta = 0.9")
    axes.set_xticks(range(len(runs)), [letters(run.run) for run in runs])
    axes.set_ylim(-0.02, 1.02)


def _draw_accuracies(axes: Axes, paper_runs: StoredPaperRuns) -> None:
    for index, dataset in enumerate(paper_runs.data):
        runs = main_runs(dataset)
        values = [100 * paper_runs[run].trials["test_accuracy"].to_numpy() for run in runs]
        positions = np.arange(len(runs)) + 0.27 * (index - (len(paper_runs.data) - 1) / 2)
        shade = _SHADES[index]
        plot_style.draw_boxes(
            axes, values, list(positions), plot_style.CurveLook(dataset.title, INK, shade, "", "", ""), 0.23
        )
        axes.bar([np.nan], [np.nan], color=shade, edgecolor=INK, label=f"d: {dataset.title}")
    axes.set_xticks(range(4), [letters(run) for run in main_runs(paper_runs.data[0])])
    axes.set_xlim(-0.6, 3.6)


def _belief_rows(paper_run: StoredPaperRun) -> list[ItemRow]:
    run = paper_run.run
    trials = paper_run.repetitions
    random = statistics.reproducible_generator(paper_run.run.name)
    beliefs = paper_run.trials["belief"].to_numpy(dtype=np.float64)
    accuracy = paper_run.trials["test_accuracy"].to_numpy(dtype=np.float64)
    mean, median = (statistics.bootstrap(beliefs, of, random) for of in (np.mean, np.median))
    quartiles = np.percentile(beliefs, [25, 75])
    distribution = "exact distribution" if is_local(run) else _APPROXIMATE
    theory = float(np.mean([statistics.mean_belief(float(mu)) for mu in mu_of_trials(paper_run)]))
    summary = f"theory: {distribution}; in print 'on average only slightly above 0.5'"
    correct = statistics.bootstrap(accuracy, np.mean, random)
    return [
        run_row(paper_run, "mean belief in the truth", mean, summary, theory),
        run_row(
            paper_run, "median belief in the truth", median, f"quartiles {quartiles[0]:.3f} and {quartiles[1]:.3f}"
        ),
        ItemRow(
            run.label,
            "largest belief in the truth",
            measured=float(beliefs.max()),
            repetitions=trials,
            note="an extreme value: grows with the repetitions",
        ),
        replace(
            identified(paper_run)[1],
            quantity="share of beliefs above rho_beta",
            note=f"published: Table 2; claimed is at most {run['privacy.delta']:g}",
        ),
        run_row(
            paper_run,
            "test accuracy",
            correct,
            "mean over trials of the accuracy after the last round; interval: bootstrap over trials",
        ),
    ]
