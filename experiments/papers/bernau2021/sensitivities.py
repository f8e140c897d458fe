"""Figures 4 and 5 of Bernau et al. 2021: local sensitivities for several neighbours, and over the rounds."""

import numpy as np
from matplotlib.axes import Axes

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.experiments.papers import plot_style
from fl_audit.experiments.papers.bernau2021.discrepancies import explained
from fl_audit.experiments.papers.bernau2021.insider_runs import (
    ADJACENCIES,
    CLIPPING_NORM,
    LETTERS,
    PRINTED,
    insider_run,
    is_usual_neighbour,
    labels_of,
    letters,
    run_row,
    runs_by_neighbour,
    sensitivities,
)
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun, StoredPaperRun, StoredPaperRuns
from fl_audit.experiments.papers.statistics import bootstrap, reproducible_generator
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.report.figure_style import INK, draw_band, finish_axes, new_figure

MEDIAN = "median local sensitivity"
_REPLACE = Adjacency.REPLACE_RECORD


def _limit(adjacency: Adjacency) -> float:
    return 2 * CLIPPING_NORM if adjacency is _REPLACE else CLIPPING_NORM


def outlier_share(values: Floats) -> float:
    """Return the share of values that are outliers: more than 1.5 interquartile ranges above or below the quartiles.

    A value must also be more than 1e-5 clipping norms beyond the quartiles. Smaller deviations are rounding errors.
    """
    low, high = np.percentile(values, [25, 75])
    reach = max(1.5 * float(high - low), 1e-5 * CLIPPING_NORM)
    return float(np.mean((values < low - reach) | (values > high + reach)))


def figure_4(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Figure 4: box plots of local sensitivities for several neighbours of D, from most to least dissimilar."""
    data = paper_runs.data
    figure = new_figure(4.6)
    widths = [len(runs_by_neighbour(dataset, _REPLACE)) + 1.5 for dataset in data]
    panels = figure.subplots(1, len(data), squeeze=False, sharey=True, gridspec_kw={"width_ratios": widths})[0]
    rows: list[ItemRow] = []
    for letter, axes, study in zip("abc", panels, data, strict=False):
        neighbours = [_neighbour_name(run) for run in runs_by_neighbour(study, _REPLACE)]
        for adjacency in ADJACENCIES:
            runs = [paper_runs[run] for run in runs_by_neighbour(study, adjacency)]
            shift = -0.2 if adjacency is _REPLACE else 0.2
            positions = np.array([neighbours.index(_neighbour_name(run.run)) for run in runs]) + shift
            boxes = [sensitivities(run).ravel() for run in runs]
            plot_style.draw_boxes(axes, boxes, list(positions), plot_style.ADJACENCY_LOOKS[adjacency], 0.36)
            rows += [row for run in runs for row in _neighbour_rows(run)]
        _finish_neighbours(axes, study)
        y_name = "Local sensitivity (gradient units)" if letter == "a" else ""
        finish_axes(axes, f"({letter}) {short_title(study)}", "", y_name)
    for axes in panels:
        axes.axhline(CLIPPING_NORM, color=INK, linestyle=":", linewidth=1.4, label="limit C, record removed")
        axes.axhline(2 * CLIPPING_NORM, color=INK, linestyle="-.", linewidth=1.4, label="limit 2C, record replaced")
    keys = [plot_style.box_key(plot_style.ADJACENCY_LOOKS[adjacency]) for adjacency in ADJACENCIES]
    plot_style.legend_below(figure, list(panels), [*keys, plot_style.published_key()])
    return ItemResult(
        table(rows),
        figure,
        "Local sensitivities of all rounds and trials, by the rank of the neighbour: the most dissimilar on the left, "
        "the least on the right. Boxes: quartiles, whiskers to 1.5 interquartile ranges.",
        explained(("figure-4-relation", "eq-9", "ssim", "subset", "network", "optimizer"), paper_runs.stands_in),
    )


def _neighbour_name(run: PaperRun) -> str:
    return f"{run['audit.neighbour'].partition('-')[0]} {run['audit.neighbour-rank'] or 1}"


def short_title(dataset: PaperDataset) -> str:
    """Return the title of a data set, with a line break before the name of the data set for which it stands in."""
    return dataset.title.replace(" for ", "\nfor ")


def _finish_neighbours(axes: Axes, dataset: PaperDataset) -> None:
    runs = runs_by_neighbour(dataset, _REPLACE)
    names = [_neighbour_name(run) for run in runs]
    axes.set_xticks(range(len(runs)), names if len(runs) > 2 else ["most", "least"], rotation=45, ha="right")
    axes.set_xlim(-0.6, len(runs) - 0.4)
    medians = [PRINTED.of(run, MEDIAN) for run in (runs[0], runs[-1])]
    plot_style.draw_published(axes, [-0.2, len(runs) - 1.2], medians)


def _neighbour_rows(paper_run: StoredPaperRun) -> list[ItemRow]:
    run = paper_run.run
    values = sensitivities(paper_run)
    random = reproducible_generator(run.name)
    median, share = (bootstrap(values, of, random) for of in (np.median, outlier_share))
    is_usual = is_usual_neighbour(run["audit.neighbour"], run["audit.neighbour-rank"] or 1)
    label = f"{run.label}{', most-dissimilar 1' if is_usual else ''}"
    quartiles = np.percentile(values, [25, 75])
    labels = labels_of(paper_run)
    note = (
        f"label{'s' if len(labels) == 2 else ''} {' and '.join(map(str, labels))}; quartiles {quartiles[0]:.3g} and "
        f"{quartiles[1]:.3g}; limit {_limit(run['privacy.adjacency']):g}; interval: bootstrap over trials"
    )
    outliers = "share of outliers"
    beyond = "beyond 1.5 interquartile ranges"
    return [
        measured_row(label, MEDIAN, median, paper_run.repetitions, note, published=PRINTED.of(run, MEDIAN)),
        measured_row(label, outliers, share, paper_run.repetitions, beyond, published=PRINTED.of(run, outliers)),
    ]


def figure_5(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return Figure 5: local and global sensitivities over the rounds, for a claimed belief bound rho_beta of 0.9."""
    data = paper_runs.data
    figure = new_figure(4.2)
    panels = figure.subplots(1, len(data), squeeze=False, sharey=True)[0]
    rows: list[ItemRow] = []
    for letter, axes, dataset in zip("abc", panels, data, strict=False):
        for adjacency in ADJACENCIES:
            run = paper_runs[insider_run(dataset, SensitivityKind.LOCAL, adjacency)]
            rows += _round_rows(run)
            _draw_rounds(axes, run)
        y_name = "Sensitivity (gradient units)" if letter == "a" else ""
        finish_axes(axes, f"({letter}) {short_title(dataset)}", "Round", y_name)
        axes.set_ylim(0, 2.1 * CLIPPING_NORM)
    plot_style.legend_below(figure, list(panels))
    return ItemResult(
        table(rows),
        figure,
        "Median local sensitivity over the trials with its middle half, and the global sensitivity that bounds it: C "
        "where a record is removed, 2C where one is replaced. Runs with local noise.",
        (
            "The paper's curves were not read off; what it says of them is among the claims below.",
            *explained(("eq-9", "ssim", "subset", "network", "optimizer"), paper_runs.stands_in),
        ),
    )


def _round_rows(paper_run: StoredPaperRun) -> list[ItemRow]:
    rows = []
    limit = _limit(paper_run.run["privacy.adjacency"])
    for index, values in enumerate(sensitivities(paper_run).T):
        low, high = np.percentile(values, [25, 75])
        median = bootstrap(values, np.median, reproducible_generator(f"{paper_run.run.name} {index}"))
        note = f"quartiles {low:.3g} and {high:.3g}; global sensitivity {limit:g}; interval: bootstrap over trials"
        rows.append(run_row(paper_run, f"{MEDIAN}, round {index + 1}", median, note))
    return rows


def _draw_rounds(axes: Axes, paper_run: StoredPaperRun) -> None:
    adjacency = paper_run.run["privacy.adjacency"]
    values = sensitivities(paper_run)
    look = plot_style.ADJACENCY_LOOKS[adjacency]
    rounds = np.arange(1, values.shape[1] + 1)
    low, middle, high = np.percentile(values, [25, 50, 75], axis=0)
    draw_band(
        axes, rounds, low, high, facecolor=look.fill, edgecolor=look.colour, hatch=look.hatch, linewidth=0.5, alpha=0.7
    )
    axes.plot(
        rounds,
        middle,
        look.line,
        color=look.colour,
        linewidth=2,
        marker=look.marker,
        markersize=4,
        markevery=5,
        label=f"{letters(paper_run.run)}, {look.name}",
    )
    limit = _limit(adjacency)
    dashes = "-." if adjacency is _REPLACE else ":"
    axes.axhline(limit, color=INK, linestyle=dashes, linewidth=1.5, label=f"GS {LETTERS[adjacency]} = {limit:g}")
