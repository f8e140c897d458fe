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
from fl_audit.experiments.papers.bernau2021.published import TABLE_2, TABLE_2_REPETITIONS, TABLE_2_UNROUNDED
from fl_audit.experiments.papers.bernau2021.runs import InsiderResultsBySetting, InsiderRunResults
from fl_audit.experiments.papers.bernau2021.settings import (
    MAIN_BELIEF,
    SCALINGS,
    InsiderDatasetName,
    InsiderDatasetRecipe,
    InsiderSetting,
    main_settings,
)
from fl_audit.experiments.papers.item_results import CONFIDENCE, ItemResult, ItemRow, measured_row, table
from fl_audit.report.figure_style import INK, finish_axes, new_figure
from fl_audit.statistics.advantage import clopper_pearson, empirical_advantage
from fl_audit.statistics.interval_estimates import IntervalEstimate

ADVANTAGE = "advantage"
EXCEEDED = "delta' (share of beliefs above rho_beta)"
_APPROXIMATE = "approximate, from the sensitivities of each trial"
AGAINST_PUBLISHED = "against the published"
_SHADES = ("#ffffff", "#bdbdbd", "#7f7f7f")


def table_2(played: InsiderResultsBySetting) -> ItemResult:
    """Return Table 2 from runs: the insider's advantage, and its share of beliefs above the bound rho_beta = 0.9."""
    data, runs = played.data, played.runs
    return table_2_of([row for setting in main_settings(data) for row in identified(runs[setting])], data)


def table_2_of(rows: Sequence[ItemRow], data: Sequence[InsiderDatasetRecipe]) -> ItemResult:
    """Return Table 2, with its figure, from rows that are already computed."""
    figure = new_figure(2.2 + 2.1 * 2)
    panels = figure.subplots(2, len(data), squeeze=False, sharey="row")
    for column, one in enumerate(data):
        settings = main_settings([one])
        part = [[row for row in rows if row.setting == setting.label] for setting in settings]
        upper, lower = panels[0][column], panels[1][column]
        for index, (panel, name) in enumerate(((upper, "Advantage"), (lower, "delta' (share of beliefs)"))):
            _draw(panel, settings, [pair[index] for pair in part])
            finish_axes(panel, "" if index else one.short_title, "", name if column == 0 else "")
        lower.set_ylim(bottom=-0.06 * lower.get_ylim()[1])
        lower.axhline(one.delta, color=INK, linestyle=":", linewidth=1.4, label="delta, as claimed")
    plot_style.legend_below(figure, [panel for row in panels for panel in row], columns=2)
    return ItemResult(
        table(rows),
        figure,
        "Advantage of the insider (top) and share of its beliefs above rho_beta = 0.9 (bottom), with 95 % intervals. "
        "LS, GS: noise by local or global sensitivity; B, U: a record is replaced or removed. LS is not a private "
        "release.",
        explained(
            ("local-distribution", "global-distribution", "repetitions", "second-draw", "bit", "optimizer",
                "calibration", "eq-9", "ssim",
             "network", "subset"),
            any(one.is_substitute for one in data),
        ),
    )  # fmt: skip


def unrounded_text(advantage: float) -> str:
    """Return a remark that states an advantage of Table 2 before rounding. The paper prints only rounded ones."""
    return f" ({advantage:g} before rounding, not in print)"


def identified(found: InsiderRunResults) -> tuple[ItemRow, ItemRow]:
    """Return two table rows of a run: the insider's advantage, and the share of its beliefs above rho_beta.

    Each row has the measured, the published and the predicted value.
    """
    setting, trials, expected = found.setting, found.repetitions, found.expected_advantage
    measured = empirical_advantage(found.trials["won"].to_numpy(), CONFIDENCE)
    published = TABLE_2[setting.data.study, setting.scaling, setting.relation]
    z = _z_against(measured.advantage, expected, trials)
    unrounded = TABLE_2_UNROUNDED[setting.data.study, setting.scaling, setting.relation]
    z_published = _z_between(measured.advantage, trials, unrounded, TABLE_2_REPETITIONS)
    distribution = "exact" if setting.is_local else _APPROXIMATE
    against = f"{AGAINST_PUBLISHED} {z_published:+.2f}{unrounded_text(unrounded)}"
    note = f"theory {distribution}; z against theory {z:+.2f}, {against}"
    if setting.is_local and found.floored_share:
        seen = statistics.predicted_advantage(found.mu_of_trials)
        note += f"; {100 * found.floored_share:.2g} % of rounds without evidence, which leaves {seen:.4f}"
    passed = int(np.sum(found.trials["belief"] > setting.belief))
    share = IntervalEstimate(passed / trials, *clopper_pearson(passed, trials, CONFIDENCE))
    return (
        measured_row(
            setting.label,
            ADVANTAGE,
            IntervalEstimate(measured.advantage, measured.low, measured.high),
            trials,
            note,
            published=published.advantage,
            theory=expected,
        ),
        measured_row(
            setting.label,
            EXCEEDED,
            share,
            trials,
            f"{passed} of {trials}; claimed is at most {setting.data.delta:g}",
            published=published.exceeded,
            theory=_predicted_exceedance(found.mu_of_trials, setting.belief),
        ),
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


def _z_between(advantage: float, trials: int, other: float, other_trials: int) -> float:
    """Return the z-score of `advantage` minus `other`, from independent trials; infinite if the variance is 0."""
    variance = (1 - advantage**2) / trials + (1 - other**2) / other_trials
    return (advantage - other) / math.sqrt(variance) if variance > 0 else math.inf


def _draw(axes: Axes, settings: Sequence[InsiderSetting], rows: Sequence[ItemRow]) -> None:
    for scaling in SCALINGS:
        own = [index for index, setting in enumerate(settings) if setting.scaling is scaling]
        part = [rows[index] for index in own]
        look = plot_style.SCALING_LOOKS[scaling]
        plot_style.draw_measured(axes, own, [row.found for row in part], look, look.name, joined=False)
    places = np.arange(len(rows))
    for place, row in enumerate(rows):
        axes.plot([place - 0.33, place + 0.33], [row.theory] * 2, color=INK, linewidth=2.2, label=plot_style.THEORY)
        look = plot_style.SCALING_LOOKS[settings[place].scaling]
        plot_style.draw_published(axes, [place + 0.22], [row.published], look.colour)
    axes.set_xticks(places, [setting.letters for setting in settings])
    axes.set_xlim(-0.6, len(rows) - 0.4)


def figure_6(played: InsiderResultsBySetting) -> ItemResult:
    """Return Figure 6: the distributions of the final belief in the true data set, and of the test accuracy."""
    data, runs, figure = played.data, played.runs, new_figure(7.2)
    panels = figure.subplots(2, 2).ravel()
    by_study = {one.study: one for one in data}
    for letter, axes, study in zip("abc", panels[:3], InsiderDatasetName, strict=True):
        if study in by_study:
            _draw_beliefs(axes, [runs[setting] for setting in main_settings([by_study[study]])])
            finish_axes(axes, f"({letter}) {by_study[study].title}", "", "Belief in the truth (probability)")
        else:
            plot_style.empty_panel(axes, f"({letter}) {study}", "not played: its data are not there")
    _draw_accuracies(panels[3], played)
    finish_axes(panels[3], "(d) Test accuracy", "", "Accuracy after the last round (%)")
    keys = [plot_style.box_key(plot_style.SCALING_LOOKS[scaling]) for scaling in SCALINGS]
    plot_style.legend_below(figure, list(panels), keys)
    return ItemResult(
        table(row for setting in main_settings(data) for row in _belief_rows(runs[setting])),
        figure,
        "Final beliefs in the data set that was really used (a to c), and test accuracy (d, shades by data set). LS, "
        "GS: noise by local or global sensitivity; B, U: a record is replaced or removed. LS is not a private release.",
        (
            "Panels a to c of the paper show the belief in D, which was always used; ours show the belief in the data "
            "set that was used.",
            "Panel d of the paper is an example that does not name its data set; ours shows all of them. The paper's "
            "panel was not read off. Its point is that the larger noise of GS B costs accuracy.",
            *explained(
                ("local-distribution", "second-draw", "bit", "optimizer", "precision", "network", "subset"),
                played.is_substitute,
            ),
        ),
    )


def _draw_beliefs(axes: Axes, found: Sequence[InsiderRunResults]) -> None:
    for scaling in SCALINGS:
        own = [(place, one) for place, one in enumerate(found) if one.setting.scaling is scaling]
        values = [one.trials["belief"].to_numpy() for _, one in own]
        plot_style.draw_boxes(axes, values, [place for place, _ in own], plot_style.SCALING_LOOKS[scaling], 0.6)
    for place, one in enumerate(found):
        if one.setting.is_local:
            mean = statistics.mean_belief(one.claimed_mu)
            axes.plot([place - 0.42, place + 0.42], [mean] * 2, color=INK, linestyle="--", label="theory, mean (LS)")
        axes.plot([place], [float(one.trials["belief"].mean())], "x", color=INK, markersize=7, label="measured mean")
    axes.axhline(MAIN_BELIEF, color=INK, linestyle=":", linewidth=1.6, label="rho_beta = 0.9")
    axes.set_xticks(range(len(found)), [one.setting.letters for one in found])
    axes.set_ylim(-0.02, 1.02)


def _draw_accuracies(axes: Axes, played: InsiderResultsBySetting) -> None:
    for index, one in enumerate(played.data):
        settings = main_settings([one])
        values = [100 * played.runs[setting].trials["test_accuracy"].to_numpy() for setting in settings]
        places = np.arange(len(settings)) + 0.27 * (index - (len(played.data) - 1) / 2)
        shade = _SHADES[index]
        plot_style.draw_boxes(axes, values, list(places), plot_style.CurveLook(one.title, INK, shade, "", "", ""), 0.23)
        axes.bar([np.nan], [np.nan], color=shade, edgecolor=INK, label=f"d: {one.title}")
    axes.set_xticks(range(4), [setting.letters for setting in main_settings(played.data[:1])])
    axes.set_xlim(-0.6, 3.6)


def _belief_rows(found: InsiderRunResults) -> list[ItemRow]:
    setting, trials, random = found.setting, found.repetitions, statistics.reproducible_generator(found.setting.name)
    beliefs = found.trials["belief"].to_numpy(dtype=np.float64)
    accuracy = found.trials["test_accuracy"].to_numpy(dtype=np.float64)
    mean, median = (statistics.bootstrap(beliefs, of, random) for of in (np.mean, np.median))
    quartiles = np.percentile(beliefs, [25, 75])
    distribution = "exact distribution" if setting.is_local else _APPROXIMATE
    return [
        measured_row(setting.label, "mean belief in the truth", mean, trials,
            f"theory: {distribution}; in print 'on average only slightly above 0.5'",
            theory=float(np.mean([statistics.mean_belief(float(one)) for one in found.mu_of_trials]))),
        measured_row(setting.label, "median belief in the truth", median, trials,
            f"quartiles {quartiles[0]:.3f} and {quartiles[1]:.3f}"),
        ItemRow(setting.label, "largest belief in the truth", measured=float(beliefs.max()), repetitions=trials,
            note="an extreme value: grows with the repetitions"),
        replace(identified(found)[1], quantity="share of beliefs above rho_beta",
            note=f"published: Table 2; claimed is at most {setting.data.delta:g}"),
        measured_row(setting.label, "test accuracy", statistics.bootstrap(accuracy, np.mean, random), trials,
            "mean over trials of the accuracy after the last round; interval: bootstrap over trials"),
    ]  # fmt: skip
