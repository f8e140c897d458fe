"""Figures 3 to 7 of Bernau et al. 2019: test accuracy, AUC and phi over epsilon, ROC curves, and trade-offs.

Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple

import numpy as np
from matplotlib.axes import Axes

from fl_audit.experiments.papers.bernau2019.attacked_models import (
    BINS,
    AttackedModels,
    DatasetModels,
    models_by_dataset,
    most_epochs,
)
from fl_audit.experiments.papers.bernau2019.hyperparameters import COLLAB, LFW, PURCHASES, SKEWED, TEXAS
from fl_audit.experiments.papers.bernau2019.membership_runs import (
    ATTACK_NAMES,
    BLACK_BOX,
    PHI_AT_CHANCE,
    PRINTED,
    REPETITIONS,
    WHITE_BOX,
    PrivacyMethod,
    is_at_chance,
    position_of,
)
from fl_audit.experiments.papers.bernau2019.tradeoffs import area_of, mean_interval, phi
from fl_audit.experiments.papers.item_results import ItemResult, ItemRow, measured_row, table
from fl_audit.experiments.papers.papers import StoredPaperRuns
from fl_audit.experiments.papers.plot_style import CurveLook, draw_measured, draw_published, empty_panel, legend_below
from fl_audit.report.figure_style import MUTED, SMALL_TEXT_SIZE, finish_axes, new_figure
from fl_audit.statistics.interval_estimates import IntervalEstimate

SIDES = (PrivacyMethod.CENTRAL, PrivacyMethod.LOCAL)
_LETTERS = {
    "accuracy": ("a", "e"),
    BLACK_BOX: ("b", "f"),
    WHITE_BOX: ("c", "g"),
    "phi": ("d", "h"),
    "roc": ("i", "j"),
    "trade-off": ("k", "k"),
}
_SHOWN_FORM = {TEXAS: 300, PURCHASES: 50, LFW: 50, SKEWED: 10}
"""The number of classes whose ROC curves and trade-off the paper shows."""
_CLASS_LOOKS = (
    CurveLook("", "#12426e", "#b9d0e6", "-", "o", ""),
    CurveLook("", "#b35806", "#f8d9b0", "--", "^", "////"),
    CurveLook("", "#1b7837", "#c7e5c9", "-.", "s", "...."),
    CurveLook("", "#762a83", "#e3cce8", ":", "D", "xxxx"),
)
"""Forms of a data set with different numbers of classes, in the order in which they are drawn."""
_METHOD_LOOKS = {
    PrivacyMethod.CENTRAL: CurveLook("central DP", "#12426e", "#b9d0e6", "-", "o", ""),
    PrivacyMethod.LOCAL: CurveLook("local DP", "#b35806", "#f8d9b0", "--", "^", "////"),
}
_LEVEL_LOOKS = (
    ("#1a1a1a", "-"),
    ("#12426e", "--"),
    ("#b35806", "-."),
    ("#1b7837", ":"),
    ("#762a83", "-"),
    ("#7f7f7f", "--"),
)
"""Colours and lines: the original model, then falling epsilon."""
_CALLED_LOOKS = (("called a member", "#12426e", "-", "////"), ("called none", "#b35806", "--", ""))
_NO_WHITE_BOX = "these runs were not attacked with a view inside"


def figure_of(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return the table and figure of one data set, with panels of central DP on the left and local DP on the right."""
    return figure_of_models(models_by_dataset(paper_runs))


def figure_of_models(datasets: Sequence[DatasetModels]) -> ItemResult:
    """Return the table and figure of all versions of one data set."""
    study = datasets[0].data.study
    rows = 8 if study == SKEWED else 7
    figure = new_figure(2.86 * rows)
    panels = figure.subplots(rows, 2)
    models = next((dataset for dataset in datasets if dataset.data["classes"] == _SHOWN_FORM.get(study)), datasets[0])
    for column, method in enumerate(SIDES):
        _accuracies(panels[0, column], datasets, method)
        for row, attack in ((1, BLACK_BOX), (2, WHITE_BOX)):
            _areas(panels[row, column], datasets, method, attack)
            _rocs(panels[row + 3, column], models.side(method), method, attack)
        _phis(panels[3, column], datasets, method)
    for column, attack in enumerate((BLACK_BOX, WHITE_BOX)):
        _tradeoff(panels[6, column], models, attack)
        if study == SKEWED:
            _confidences(panels[7, column], models.local, column)
    legend_below(figure, [panels[0][0], panels[1][0]], columns=2 if len(datasets) < 3 else 3)
    curves = f" ROC curves and the trade-off are those of {models.data.title}." if len(datasets) > 1 else ""
    return ItemResult(
        table(row for dataset in datasets for row in _rows_of(dataset)),
        figure,
        "Left central, right local DP, over the epsilon of a record, with 95 % intervals. Grey: guessing; phi of 1. "
        f"Diamonds: as printed.{curves}",
        tuple(_remarks(study, datasets)),
        shown_rows=90,
        data=tuple(dataset.data.title for dataset in datasets),
    )


def _rows_of(models: DatasetModels) -> Iterator[ItemRow]:
    """Yield the table rows of one data set: accuracies, AUC of each attack, and phi of each run."""
    for run in models.settings:
        train = mean_interval(run.train_accuracy)
        chosen = run.chosen_epoch.mean()
        # No interval in its columns: n, epochs and model are not the paper's, so nothing is tested here.
        yield ItemRow(
            run.label,
            "training accuracy",
            _printed_accuracy(run),
            measured=train.value,
            repetitions=run.trials,
            note=f"on members' true records, {train.low:.3f} to {train.high:.3f}; published: Table 3",
        )
        note = f"epsilon {run.epsilon:.4g}; training ended after {chosen:.1f} epochs on average"
        yield _row(run, "test accuracy", mean_interval(run.test_accuracy), note)
        for attack in run.areas_of_trials:
            five = run.areas_of_trials[attack][:REPETITIONS]
            note = f"five trials, as the paper repeats: {five.mean():.3f}, {five.min():.3f} to {five.max():.3f}"
            yield _row(run, ATTACK_NAMES[attack], area_of(run, attack), note)
        if run.areas_against_test is not None:
            yield _row(
                run,
                "AUC of the loss, members against test records",
                mean_interval(run.areas_against_test),
                note="as the paper asks; test records are of another distribution, which this AUC tells apart as well",
            )
        if run is not models.original:
            yield from (
                _row(run, f"phi, {ATTACK_NAMES[attack].removesuffix(' AUC')}", phi(models.original, run, attack))
                for attack in (BLACK_BOX, WHITE_BOX)
                if attack in run.areas_of_trials
            )


def _printed_accuracy(models: AttackedModels) -> float:
    data = models.run.data
    level = models.label.removeprefix(f"{models.run.data.title}, ")
    return PRINTED(data.study, f"{data['classes']} classes, {level}", "training accuracy")


def _row(models: AttackedModels, quantity: str, interval: IntervalEstimate, note: str = "") -> ItemRow:
    return measured_row(models.label, quantity, interval, models.trials, note)


def _places(runs: Sequence[AttackedModels], number: int = 0) -> list[float]:
    """Return the horizontal position of each run: its epsilon or, without DP, 6 times the largest epsilon.

    `number` is the number of the version of the data set, from 0. Positions are multiplied by 1.05 to the power of
    `number`, so that versions do not overlap.
    """
    epsilons = [run.epsilon for run in runs if np.isfinite(run.epsilon)]
    beyond = 6 * max(epsilons) if epsilons else 1.0
    return [1.05**number * (run.epsilon if np.isfinite(run.epsilon) else beyond) for run in runs]


def _forms(
    datasets: Sequence[DatasetModels], method: PrivacyMethod
) -> Iterator[tuple[tuple[AttackedModels, ...], list[float], CurveLook, str]]:
    """Yield what a figure draws for each version of a data set, such as each number of classes.

    For each version these are its runs (first the run without DP), their horizontal positions, the style and the label.
    """
    for number, (dataset, look) in enumerate(zip(datasets, _CLASS_LOOKS, strict=False)):
        runs = dataset.side(method)
        data = dataset.data
        yield runs, _places(runs, number), look, f"{data['classes']} classes" if "30" not in data.name else data.title


def _accuracies(axes: Axes, datasets: Sequence[DatasetModels], method: PrivacyMethod) -> None:
    for runs, positions, look, name in _forms(datasets, method):
        draw_measured(axes, positions, [mean_interval(run.test_accuracy) for run in runs], look, name)
        axes.plot(
            positions,
            [run.train_accuracy.mean() for run in runs],
            look.marker,
            color=look.colour,
            markersize=4,
            markerfacecolor="white",
            linestyle=(0, (1, 3)),
            linewidth=0.9,
        )
        printed = [_printed_accuracy(run) for run in runs]
        if np.isfinite(printed).all():
            draw_published(axes, [1.12 * position for position in positions], printed, look.colour)
    axes.set_ylim(-0.03, 1.03)
    _finish(axes, "accuracy", method, "Accuracy: test, training (open)", datasets)


def _areas(axes: Axes, datasets: Sequence[DatasetModels], method: PrivacyMethod, attack: str) -> None:
    if not any(attack in run.areas_of_trials for dataset in datasets for run in dataset.side(method)):
        empty_panel(axes, f"({_LETTERS[attack][SIDES.index(method)]}) {attack}, {method}", _NO_WHITE_BOX)
        return
    axes.axhline(0.5, color=MUTED, linewidth=4, alpha=0.35)
    for runs, positions, look, name in _forms(datasets, method):
        draw_measured(axes, positions, [area_of(run, attack) for run in runs], look, name)
        at_chance = [position for position, run in zip(positions, runs, strict=True) if is_at_chance(run.run)]
        draw_published(axes, at_chance, [0.5] * len(at_chance), look.colour)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.46), max(high, 0.6))
    _finish(axes, attack, method, f"{ATTACK_NAMES[attack].capitalize().replace('auc', 'AUC')}", datasets)


def _phis(axes: Axes, datasets: Sequence[DatasetModels], method: PrivacyMethod) -> None:
    axes.axhline(1.0, color=MUTED, linewidth=4, alpha=0.35)
    for (original, *private), positions, look, name in _forms(datasets, method):
        attack = WHITE_BOX if WHITE_BOX in original.areas_of_trials else BLACK_BOX
        if private:
            draw_measured(axes, positions[1:], [phi(original, run, attack) for run in private], look, name)
    printed = PRINTED(datasets[0].data.study, method, PHI_AT_CHANCE)
    if np.isfinite(printed):
        axes.axhline(printed, color=MUTED, linestyle="--", linewidth=1.2)
        axes.annotate(
            f"dashed: {printed:g}, in print where the AUC is .5",
            (0.02, 0.1),
            xycoords="axes fraction",
            va="bottom",
            fontsize=SMALL_TEXT_SIZE - 2,
            color=MUTED,
        )
    axes.set_ylim(-0.05, 2.1)
    _finish(axes, "phi", method, "phi", datasets)


def _finish(axes: Axes, panel: str, method: PrivacyMethod, y_name: str, datasets: Sequence[DatasetModels]) -> None:
    """Set the title and the axis labels of a panel with epsilon on the horizontal axis, whose range covers all runs."""
    positions = [position for dataset in datasets for position in _places(dataset.side(method))]
    axes.set_xscale("log")
    axes.set_xlim(min(positions) / 1.6, 1.6 * max(positions))
    letter = _LETTERS[panel][SIDES.index(method)]
    end = "" if panel == "phi" else "; rightmost: no DP"
    finish_axes(axes, f"({letter}) {y_name.partition(':')[0]}, {method}", f"epsilon of a record{end}", y_name)


def _rocs(axes: Axes, runs: Sequence[AttackedModels], method: PrivacyMethod, attack: str) -> None:
    letter = _LETTERS["roc"][SIDES.index(method)]
    if not any(attack in run.areas_of_trials for run in runs):
        empty_panel(axes, f"({letter}) {attack}, {method}", _NO_WHITE_BOX)
        return
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=4, alpha=0.35)
    for run in runs:
        curve = run.rocs[attack]
        colour, line = _LEVEL_LOOKS[position_of(run.run)]
        name = "no DP" if run.method is PrivacyMethod.ORIGINAL else f"epsilon {run.epsilon:,.4g}"
        axes.plot(curve.fpr, curve.tpr, line, color=colour, linewidth=1.4, label=name)
    axes.legend(fontsize=SMALL_TEXT_SIZE - 2, loc="lower right", handlelength=3.0)
    kind = ATTACK_NAMES[attack].removesuffix(" AUC")
    finish_axes(axes, f"({letter}) ROC, {kind}, {method}", "False-positive rate", "True-positive rate")


def _tradeoff(axes: Axes, models: DatasetModels, attack: str) -> None:
    kind = ATTACK_NAMES[attack].removesuffix(" AUC")
    if not any(attack in run.areas_of_trials for run in models.settings):
        empty_panel(axes, f"(k) {kind}", _NO_WHITE_BOX)
        return
    axes.axvline(0.5, color=MUTED, linewidth=4, alpha=0.35)
    for method in SIDES:
        side = models.side(method)
        look = _METHOD_LOOKS[method]
        pairs = [(area_of(run, attack), mean_interval(run.test_accuracy)) for run in side]
        x, y = (np.transpose([astuple(interval) for interval in intervals]) for intervals in zip(*pairs, strict=True))
        axes.errorbar(
            x[0],
            y[0],
            xerr=np.abs(x[1:] - x[0]),
            yerr=np.abs(y[1:] - y[0]),
            fmt=look.marker,
            linestyle=look.line,
            color=look.colour,
            capsize=2,
            linewidth=1.2,
            markersize=6,
            label=look.name,
        )
    axes.legend(fontsize=SMALL_TEXT_SIZE - 2, loc="best")
    axes.locator_params(axis="x", nbins=5)
    finish_axes(axes, f"(k) {models.data['classes']} classes, {kind}", f"{ATTACK_NAMES[attack]}", "Test accuracy")


def _confidences(axes: Axes, local: Sequence[AttackedModels], panel: int) -> None:
    """Draw two histograms of the models' confidence: in targets that the black-box attack calls members, and in others.

    Panel 0 shows epsilon_i = 1, and panel 1 epsilon_i = 0.1; a panel without such a run stays empty.
    """
    level, letter = ((1.0, "l"), (0.1, "m"))[panel]
    title = f"({letter}) Confidence, epsilon_i {level:g}"
    run = next((models for models in local if models.level == level), None)
    if run is None or run.called is None:
        empty_panel(axes, title, "this level was not played")
        return
    called = run.called
    targets = run.called.counts.sum()
    for counts, mean, (name, colour, line, hatch) in zip(called.counts, called.means, _CALLED_LOOKS, strict=True):
        if counts.any():
            axes.stairs(
                100 * counts / targets,
                BINS,
                color=colour,
                linestyle=line,
                hatch=hatch,
                linewidth=1.5,
                label=f"{name}: {counts.sum() / targets:.0%}, mean {mean:.3f}",
            )
    axes.set_ylim(top=1.45 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize=SMALL_TEXT_SIZE - 2, loc="upper left")
    finish_axes(axes, title, "Largest confidence", "Targets, %")


def _remarks(study: str, datasets: Sequence[DatasetModels]) -> Iterator[str]:
    titles_by_size = dict[str, list[str]]()
    for dataset in datasets:
        titles_by_size.setdefault(_size(dataset), []).append(dataset.data.title)
    yield from (f"{'; '.join(titles)}: {size}" for size, titles in titles_by_size.items())
    yield from _REMARKS[study]


def _size(dataset: DatasetModels) -> str:
    """Return how many targets and epochs the models of a data set have; the table has the number of trials."""
    original = dataset.original.config
    return (
        f"{original.data.records // 2:,} members on average of {original.data.records:,} targets, "
        f"{most_epochs(original):.0f} epochs at most."
    )


_STAND_IN = (
    "Stand-in: Location-30 of the same authors (Shokri et al. 2017) has 446 bits, 30 classes and 5,010 records. It "
    "checks what the paper says in general, and not its numbers."
)
_REMARKS = {
    TEXAS: (
        _STAND_IN,
        "Layers are those for Texas; the learning rate is .001 instead of .01, as Texas has fourteen times as many "
        "features.",
    ),
    PURCHASES: (_STAND_IN, "Layers, learning rates, batch and clipping norm are those for Purchases."),
    COLLAB: (
        "Graphs keep their 64 nodes of highest degree, and training is much shorter than 300 epochs, at learning rate "
        ".003 instead of .0001. Local DP counts a node's 64 possible edges, the paper 2,000.",
        "The paper shows accuracy and white-box AUC only; the other panels are ours.",
    ),
    LFW: (
        "A small convolutional network is trained from random weights, at learning rate .003, where the paper trains "
        "the last layer of VGG-16 on images of 250 x 250. Only 62 people have 20 images or more, so 100 cannot be "
        "played.",
        "Pixels are perturbed as the paper says. Epsilon counts 4,096 of them, where the paper counts 62,500.",
    ),
    SKEWED: (
        "Data, layers, learning rate, batch and clipping norm are the paper's, n is not stated. With a few hundred "
        "members 100 classes, each with 6 bits of its own, are hardly learned, so there is little to trade.",
        "The paper's non-members are test records, which have more noise bits, so an attack gets an AUC away from .5 "
        "without any leak. Here members and others have the same distribution.",
    ),
}
