"""Figures 4 and 5 of Bernau et al. 2021: local sensitivities for several neighbours, and over the rounds."""

from functools import partial

import numpy as np
from matplotlib.axes import Axes

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.experiments.papers import plot_style
from fl_audit.experiments.papers.bernau2021 import settings
from fl_audit.experiments.papers.bernau2021.discrepancies import explained
from fl_audit.experiments.papers.bernau2021.published import FIGURE_4_MEDIANS, FIGURE_4_OUTLIERS
from fl_audit.experiments.papers.bernau2021.runs import InsiderResultsBySetting, InsiderRunResults, labels_of
from fl_audit.experiments.papers.bernau2021.settings import CLIPPING_NORM, RELATIONS, InsiderDatasetName
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.statistics import bootstrap, reproducible_generator
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.report.figure_style import INK, draw_band, finish_axes, new_figure

_REPLACE = Adjacency.REPLACE_RECORD


def _limit(relation: Adjacency) -> float:
    return 2 * CLIPPING_NORM if relation is _REPLACE else CLIPPING_NORM


def outlier_share(values: Floats) -> float:
    """Return the share of values that are outliers: more than 1.5 interquartile ranges above or below the quartiles.

    A value must also be more than 1e-5 clipping norms beyond the quartiles. Smaller deviations are rounding errors.
    """
    low, high = np.percentile(values, [25, 75])
    reach = max(1.5 * float(high - low), 1e-5 * CLIPPING_NORM)
    return float(np.mean((values < low - reach) | (values > high + reach)))


def figure_4(played: InsiderResultsBySetting) -> ItemResult:
    """Return Figure 4: box plots of local sensitivities for several neighbours of D, from most to least dissimilar."""
    data, figure = played.data, new_figure(4.6)
    widths = [len(settings.neighbours_shown(one, _REPLACE)) + 1.5 for one in data]
    panels = figure.subplots(1, len(data), squeeze=False, sharey=True, gridspec_kw={"width_ratios": widths})[0]
    rows: list[ItemRow] = []
    for letter, axes, one in zip("abc", panels, data, strict=False):
        for relation in RELATIONS:
            shown = settings.neighbours_shown(one, relation)
            at = partial(settings.InsiderSetting, one, SensitivityKind.LOCAL, relation, settings.MAIN_BELIEF)
            found = [played.runs[at(*which)] for which in shown]
            shift = -0.2 if relation is _REPLACE else 0.2
            places = np.array([settings.neighbours_shown(one, _REPLACE).index(which) for which in shown]) + shift
            boxes = [one_found.sensitivities.ravel() for one_found in found]
            plot_style.draw_boxes(axes, boxes, list(places), plot_style.RELATION_LOOKS[relation], 0.36)
            rows += [row for one_found in found for row in _neighbour_rows(one_found)]
        _finish_neighbours(axes, one)
        finish_axes(
            axes, f"({letter}) {one.short_title}", "", "Local sensitivity (gradient units)" if letter == "a" else ""
        )
    for axes in panels:
        axes.axhline(CLIPPING_NORM, color=INK, linestyle=":", linewidth=1.4, label="limit C, record removed")
        axes.axhline(2 * CLIPPING_NORM, color=INK, linestyle="-.", linewidth=1.4, label="limit 2C, record replaced")
    keys = [plot_style.box_key(plot_style.RELATION_LOOKS[relation]) for relation in RELATIONS]
    plot_style.legend_below(figure, list(panels), [*keys, plot_style.published_key()])
    return ItemResult(
        table(rows),
        figure,
        "Local sensitivities of all rounds and trials, by the rank of the neighbour under the dissimilarity measure: "
        "the most dissimilar on the left, the least on the right. Boxes: quartiles, whiskers to 1.5 interquartile "
        "ranges.",
        remarks_of_figure_4(played.is_substitute),
    )


def remarks_of_figure_4(stands_in: bool) -> tuple[str, ...]:
    """Return reasons why our numbers may differ from Figure 4 of the paper.

    If `stands_in` is true, one of the reasons is that the data set is a substitute.
    """
    keys = ("figure-4-cosine", "figure-4-relation", "labels", "eq-9", "ssim", "subset", "network", "optimizer")
    return explained(keys, stands_in)


def _finish_neighbours(axes: Axes, data: settings.InsiderDatasetRecipe) -> None:
    shown = settings.neighbours_shown(data, _REPLACE)
    names = [f"{'most' if neighbour.startswith('most') else 'least'} {rank}" for neighbour, rank in shown]
    axes.set_xticks(range(len(shown)), names if len(shown) > 2 else ["most", "least"], rotation=45, ha="right")
    axes.set_xlim(-0.6, len(shown) - 0.4)
    medians = FIGURE_4_MEDIANS[data.study]
    plot_style.draw_published(axes, [-0.2, len(shown) - 1.2], medians)


def _neighbour_rows(found: InsiderRunResults) -> list[ItemRow]:
    setting, values = found.setting, found.sensitivities
    random = reproducible_generator(setting.name)
    found_median, share = (bootstrap(values, of, random) for of in (np.median, outlier_share))
    median = outliers = np.nan
    if setting.relation is _REPLACE and setting.rank == 1:
        extreme = {"most-dissimilar": 0, "least-dissimilar": 1}
        median = FIGURE_4_MEDIANS[setting.data.study][extreme[setting.neighbour]]
    if setting.relation is _REPLACE and setting.data.study is InsiderDatasetName.MNIST:
        outliers = FIGURE_4_OUTLIERS.get((setting.neighbour, setting.rank), np.nan)
    label = f"{setting.label}{', most-dissimilar 1' if setting.is_standard_neighbour else ''}"
    quartiles, labels = np.percentile(values, [25, 75]), labels_of(found)
    said = f"label{'s' if len(labels) == 2 else ''} {' and '.join(map(str, labels))}"
    return [
        measured_row(label, "median local sensitivity", found_median, found.repetitions,
            f"{said}; quartiles {quartiles[0]:.3g} and {quartiles[1]:.3g}; limit "
            f"{_limit(setting.relation):g}; interval: bootstrap over trials", published=median),
        measured_row(label, "share of outliers", share, found.repetitions, "beyond 1.5 interquartile ranges",
            published=outliers),
    ]  # fmt: skip


def figure_5(played: InsiderResultsBySetting) -> ItemResult:
    """Return Figure 5: local and global sensitivities over the rounds, for a claimed belief bound rho_beta of 0.9."""
    data, figure = played.data, new_figure(4.2)
    panels = figure.subplots(1, len(data), squeeze=False, sharey=True)[0]
    rows: list[ItemRow] = []
    for letter, axes, one in zip("abc", panels, data, strict=False):
        for relation in RELATIONS:
            found = played.runs[settings.InsiderSetting(one, SensitivityKind.LOCAL, relation)]
            rows += _round_rows(found)
            _draw_rounds(axes, found)
        finish_axes(
            axes, f"({letter}) {one.short_title}", "Round", "Sensitivity (gradient units)" if letter == "a" else ""
        )
        axes.set_ylim(0, 2.1 * CLIPPING_NORM)
    plot_style.legend_below(figure, list(panels))
    return ItemResult(
        table(rows),
        figure,
        "Median local sensitivity over the trials with its middle half, and the global sensitivity that bounds it: C "
        "where a record is removed, 2C where one is replaced. Runs with local noise.",
        (
            "The curves of the paper were not read off. It says of them that local sensitivities lie below the global "
            "one, clearly so on Adult, and close to C on MNIST and Purchase-100 where a record is removed.",
            *explained(("eq-9", "ssim", "subset", "network", "optimizer"), played.is_substitute),
        ),
    )


def _round_rows(found: InsiderRunResults) -> list[ItemRow]:
    limit, rows = _limit(found.setting.relation), []
    for index, values in enumerate(found.sensitivities.T):
        low, high = np.percentile(values, [25, 75])
        middle = bootstrap(values, np.median, reproducible_generator(f"{found.setting.name} {index}"))
        note = f"quartiles {low:.3g} and {high:.3g}; global sensitivity {limit:g}; interval: bootstrap over trials"
        rows.append(
            measured_row(
                found.setting.label, f"median local sensitivity, round {index + 1}", middle, found.repetitions, note
            )
        )
    return rows


def _draw_rounds(axes: Axes, found: InsiderRunResults) -> None:
    relation, values = found.setting.relation, found.sensitivities
    look, rounds = plot_style.RELATION_LOOKS[relation], np.arange(1, values.shape[1] + 1)
    low, middle, high = np.percentile(values, [25, 50, 75], axis=0)
    draw_band(
        axes, rounds, low, high, facecolor=look.fill, edgecolor=look.colour, hatch=look.hatch, linewidth=0.5, alpha=0.7
    )
    letters = settings.RELATION_LETTERS[relation]
    axes.plot(
        rounds, middle, look.line, color=look.colour, linewidth=2, marker=look.marker, markersize=4, markevery=5,
        label=f"LS {letters}, {look.name}",
    )  # fmt: skip
    dashes = "-." if relation is _REPLACE else ":"
    axes.axhline(
        _limit(relation), color=INK, linestyle=dashes, linewidth=1.5, label=f"GS {letters} = {_limit(relation):g}"
    )
