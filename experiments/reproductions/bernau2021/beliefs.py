"""Figure 6 of Bernau et al. 2021: final beliefs and test accuracy at rho_beta = 0.9."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from experiments.reproductions.bernau2021.published import TABLE_2
from experiments.reproductions.bernau2021.runs import InsiderFindings
from experiments.reproductions.bernau2021.settings import (
    MAIN_BELIEF,
    RELATION_LETTERS,
    SCALING_LETTERS,
    SCALINGS,
    InsiderData,
    InsiderSetting,
    InsiderStudy,
    main_settings,
)
from experiments.reproductions.bernau2021.slips import explained
from experiments.reproductions.items import CONFIDENCE, ItemResult, ItemRow, table
from experiments.reproductions.looks import (
    SCALING_LOOKS,
    CurveLook,
    box_key,
    draw_boxes,
    empty_panel,
    legend_below,
    name_panel,
)
from experiments.reproductions.statistics import bootstrap, mean_belief, predicted_exceedance, resampling
from fl_audit.evidence.belief.advantage import clopper_pearson
from fl_audit.mechanisms.noise import NoiseScaling
from fl_audit.report.style import INK, new_figure

_SHADES = ("#ffffff", "#bdbdbd", "#7f7f7f")


def figure_6(data: Sequence[InsiderData], runs: Mapping[InsiderSetting, InsiderFindings]) -> ItemResult:
    """Return the distributions of the final belief in the truth, and of the test accuracy.

    Parameters
    ----------
    data, runs
        The data sets; what was found in each run.
    """
    figure = new_figure(7.2)
    panels = figure.subplots(2, 2).ravel()
    by_study = {one.study: one for one in data}
    for letter, axes, study in zip("abc", panels[:3], InsiderStudy, strict=True):
        if study in by_study:
            _draw_beliefs(axes, [runs[setting] for setting in main_settings([by_study[study]])])
            name_panel(axes, letter, by_study[study].title, "", "Belief in the truth (probability)")
        else:
            empty_panel(axes, f"({letter}) {study}", "not played: its data are not there")
    _draw_accuracies(panels[3], data, runs)
    name_panel(panels[3], "d", "Test accuracy", "", "Accuracy after the last round (%)")
    keys = [box_key(SCALING_LOOKS[scaling]) for scaling in SCALINGS]
    legend_below(figure, list(panels), keys)
    return ItemResult(
        table(row for setting in main_settings(data) for row in _rows(runs[setting])),
        figure,
        "Final beliefs in the data set that was really used (a to c), and test accuracy (d, shades by data set). LS, "
        "GS: noise by local or global sensitivity; B, U: a record is replaced or removed. LS is not a private release.",
        (
            "Panels a to c of the paper show the belief in D, which was always used; ours show the belief in the data "
            "set that was used.",
            "Panel d of the paper is an example that does not name its data set; ours shows all of them. The paper's "
            "panel was not read off. Its point is that the larger noise of GS B costs accuracy.",
            *explained(
                ("local-law", "second-draw", "bit", "optimizer", "precision", "network", "subset"),
                any(one.stands_in for one in data),
            ),
        ),
    )


def _name(setting: InsiderSetting) -> str:
    return f"{SCALING_LETTERS[setting.scaling]} {RELATION_LETTERS[setting.relation]}"


def _draw_beliefs(axes: Axes, found: Sequence[InsiderFindings]) -> None:
    for scaling in SCALINGS:
        own = [(place, one) for place, one in enumerate(found) if one.setting.scaling is scaling]
        values = [one.worlds["belief"].to_numpy() for _, one in own]
        draw_boxes(axes, values, [place for place, _ in own], SCALING_LOOKS[scaling], 0.6)
    for place, one in enumerate(found):
        if one.setting.scaling is NoiseScaling.LOCAL:
            mean = mean_belief(one.promised_mu)
            axes.plot([place - 0.42, place + 0.42], [mean] * 2, color=INK, linestyle="--", label="theory, mean (LS)")
        axes.plot([place], [float(one.worlds["belief"].mean())], "x", color=INK, markersize=7, label="measured mean")
    axes.axhline(MAIN_BELIEF, color=INK, linestyle=":", linewidth=1.6, label="rho_beta = 0.9")
    axes.set_xticks(range(len(found)), [_name(one.setting) for one in found])
    axes.set_ylim(-0.02, 1.02)


def _draw_accuracies(axes: Axes, data: Sequence[InsiderData], runs: Mapping[InsiderSetting, InsiderFindings]) -> None:
    for index, one in enumerate(data):
        settings = main_settings([one])
        values = [100 * runs[setting].worlds["test_accuracy"].to_numpy() for setting in settings]
        places = np.arange(len(settings)) + 0.27 * (index - (len(data) - 1) / 2)
        shade = _SHADES[index]
        draw_boxes(axes, values, list(places), CurveLook(one.title, INK, shade, "", "", ""), 0.23)
        axes.bar([np.nan], [np.nan], color=shade, edgecolor=INK, label=f"d: {one.title}")
    axes.set_xticks(range(4), [_name(setting) for setting in main_settings(data[:1])])
    axes.set_xlim(-0.6, 3.6)


def _rows(found: InsiderFindings) -> list[ItemRow]:
    setting, random = found.setting, resampling(found.setting.name)
    beliefs = found.worlds["belief"].to_numpy(dtype=np.float64)
    accuracy = found.worlds["test_accuracy"].to_numpy(dtype=np.float64)
    local = setting.scaling is NoiseScaling.LOCAL
    mean, median = bootstrap(beliefs, np.mean, random), bootstrap(beliefs, np.median, random)
    passed, worlds = int(np.sum(beliefs > setting.belief)), found.repetitions
    low, high = clopper_pearson(passed, worlds, CONFIDENCE)
    mu = found.mu_of_worlds
    quartiles = np.percentile(beliefs, [25, 75])
    law = "exact law" if local else "approximate, from the sensitivities of each world"
    return [
        ItemRow(setting.label, "mean belief in the truth",
            theory=float(np.mean([mean_belief(float(one)) for one in mu])), measured=float(beliefs.mean()),
            low=mean[0], high=mean[1], repetitions=worlds,
            note=f"theory: {law}; in print 'on average only slightly above 0.5'"),
        ItemRow(setting.label, "median belief in the truth", measured=float(np.median(beliefs)), low=median[0],
            high=median[1], repetitions=worlds, note=f"quartiles {quartiles[0]:.3f} and {quartiles[1]:.3f}"),
        ItemRow(setting.label, "largest belief in the truth", measured=float(beliefs.max()), repetitions=worlds,
            note="an extreme value: grows with the repetitions"),
        ItemRow(setting.label, "share of beliefs above rho_beta",
            published=TABLE_2[setting.data.study, setting.scaling, setting.relation].exceeded,
            theory=predicted_exceedance(mu, setting.belief), measured=passed / worlds, low=low, high=high,
            repetitions=worlds, note=f"published: Table 2; promised is at most {setting.data.delta:g}"),
        ItemRow(setting.label, "test accuracy", measured=float(accuracy.mean()),
            **dict(zip(("low", "high"), bootstrap(accuracy, np.mean, random), strict=True)), repetitions=worlds,
            note="mean over worlds of the accuracy after the last round; interval: bootstrap over worlds"),
    ]  # fmt: skip
