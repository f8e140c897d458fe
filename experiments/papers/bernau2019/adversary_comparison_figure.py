"""A figure that compares the adversaries of three papers on the same models at the same epsilon of central DP."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from fl_audit.experiments.papers.bernau2019.attacked_models import DatasetModels, models_by_dataset
from fl_audit.experiments.papers.bernau2019.claim_premises import CONFIDENCE
from fl_audit.experiments.papers.bernau2019.membership_runs import BLACK_BOX, INSIDER, WHITE_BOX
from fl_audit.experiments.papers.bernau2019.tradeoffs import area_of, gain
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.papers import StoredPaperRuns
from fl_audit.experiments.papers.plot_style import CurveLook, draw_measured, legend_below
from fl_audit.report.figure_style import MUTED, finish_axes, new_figure

_ADVERSARY_LOOKS = {
    INSIDER: CurveLook("insider, every round, all records but one (2021)", "#12426e", "", "-", "o", ""),
    WHITE_BOX: CurveLook("white-box, gradients of the final model (2019)", "#b35806", "", "--", "^", ""),
    BLACK_BOX: CurveLook("black-box, shadow models (2019)", "#1b7837", "", "-.", "s", ""),
    "loss": CurveLook("losses of the final model (2021, 2023)", "#5c5c5c", "", ":", "v", ""),
}


def adversaries_item(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return a figure and a table of the AUC of each adversary, and their differences, by epsilon of central DP.

    All adversaries attack the same targets of the same trials.
    """
    return adversaries_figure(models_by_dataset(paper_runs))


def adversaries_figure(datasets: Sequence[DatasetModels]) -> ItemResult:
    """Return the figure and table of the models on several data sets."""
    figure = new_figure(2.4 + 2.4 * ((len(datasets) + 1) // 2))
    panels = figure.subplots((len(datasets) + 1) // 2, 2, sharey=True, squeeze=False).ravel()
    for number, (axes, dataset) in enumerate(zip(panels, datasets, strict=False)):
        _draw_adversaries(axes, dataset)
        finish_axes(
            axes,
            f"({'abcdefgh'[number]}) {dataset.data.title}",
            "epsilon of central DP",
            "AUC" if number % 2 == 0 else "",
        )
    for axes in panels[len(datasets) :]:
        axes.set_axis_off()
    legend_below(figure, list(panels), columns=1)
    return ItemResult(
        table(row for dataset in datasets for row in _adversary_rows(dataset)),
        figure,
        "Area under the ROC of each adversary, mean over trials with 95 % intervals. All judge the same targets of "
        "the same models. Grey: guessing.",
        (
            "Each target has an insider of its own, who knows all other records and which of the other targets are "
            "members, and sees the noised sum of every round. The others see the final model alone.",
            "Epsilon* of Negoescu et al. 2023 is a function of losses of members and others: it can tell no more than "
            "the adversary of losses.",
            "The accountant's epsilon is an upper bound: no adversary need come near it.",
        ),
        data=tuple(dataset.data.title for dataset in datasets),
    )


def _draw_adversaries(axes: Axes, models: DatasetModels) -> None:
    central = [run for run in models.central if INSIDER in run.areas_of_trials]
    axes.axhline(0.5, color=MUTED, linewidth=4, alpha=0.35)
    for attack, look in _ADVERSARY_LOOKS.items():
        if not all(attack in run.areas_of_trials for run in central):
            continue
        areas = [area_of(run, attack) for run in central]
        draw_measured(axes, [run.epsilon for run in central], areas, look, look.name)
    axes.set_xscale("log")


def _adversary_rows(models: DatasetModels) -> Iterator[ItemRow]:
    for run in models.central:
        if INSIDER not in run.areas_of_trials:
            continue
        setting = f"{run.label}, epsilon {run.epsilon:.4g}"
        attacks = [attack for attack in _ADVERSARY_LOOKS if attack in run.areas_of_trials]
        for attack in attacks:
            yield measured_row(setting, f"AUC, {_ADVERSARY_LOOKS[attack].name}", area_of(run, attack), run.trials)
        note = f"interval at {CONFIDENCE:.1%}, trials as pairs"
        for first, second in pairwise(attacks):
            difference = gain([run], first, second, CONFIDENCE)
            yield measured_row(setting, f"AUC, {first} less {second}", difference, run.trials, note)
