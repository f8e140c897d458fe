"""Finding and report section on the released model: its accuracy and other metrics on test records."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_audit.array_types import finite
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_tables import NonPrivateAccuracy
from fl_audit.learning.metric_names import (
    Metric,
    columns_of,
    is_share,
    is_smaller_better,
    metric_column,
    metric_text,
    metric_title,
)
from fl_audit.report.figure_style import INK, MUTED, SMALL_TEXT_SIZE, TEXT_SIZE, draw_spread, finish_axes, markers_for
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.words import percent, plural


@dataclass(frozen=True)
class ModelAccuracyFinding:
    """The test accuracy and AUROC of the final models, with other accuracies for comparison."""

    # Share of right predictions on test records, mean over trials; NaN where labels are quantities.
    test_accuracy: float
    test_auroc: float  # area under the ROC curve on test records, mean over trials; NaN if not computed
    # Accuracy of the same training without privacy; None if no such run was given.
    unprotected: NonPrivateAccuracy | None = None
    commonest: float | None = None  # accuracy of always predicting the most frequent class; None if unknown
    # Each metric of the final models on test records, mean over trials, the headline first; NaN if not determined.
    metrics: Mapping[str, float] = field(default_factory=dict)
    # Round with the best mean headline, and this mean; None if the headline was not computed. Test records decide.
    best_round: tuple[int, float] | None = None

    @property
    def is_of_classes(self) -> bool:
        """Whether the model names classes, and so has an accuracy."""
        return math.isfinite(self.test_accuracy)

    @property
    def headline(self) -> tuple[str, float]:
        """The metric that stands for how good a model is, and its mean over the trials."""
        return next(iter(self.metrics.items()), (Metric.ACCURACY, self.test_accuracy))

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `utility`, for `summary.json`."""
        without = None if self.unprotected is None else finite(self.unprotected.final)
        accuracy = {"test_accuracy": finite(self.test_accuracy), "test_auroc": finite(self.test_auroc)}
        references = {"commonest_class": self.commonest, "test_accuracy_without_privacy": without}
        metrics = {str(name): finite(value) for name, value in self.metrics.items()}
        best = None
        if self.best_round is not None:
            best = {"round": self.best_round[0], "value": finite(self.best_round[1]), "is_private": False}
        headline_values = {"headline": str(self.headline[0]), "metrics": metrics, "best_round": best}
        return {"utility": accuracy | references | headline_values}


def measure_model(run: FinishedRun, _: Findings) -> ModelAccuracyFinding:
    """Return the test accuracy and AUROC of the final models, with the accuracy without privacy if it is known."""
    trials = run.tables.trials
    # Tables of older versions have no such column.
    area = float(trials["test_auroc"].mean()) if "test_auroc" in trials else math.nan
    columns = {metric: column for metric, column in columns_of(run.plan.metrics).items() if column in trials}
    metrics = {metric: float(trials[column].mean()) for metric, column in columns.items()}
    if trials["test_accuracy"].isna().all():
        metrics.pop(Metric.ACCURACY, None)
    best = _best_round(run, next(iter(metrics), str(Metric.ACCURACY)))
    accuracy = float(trials["test_accuracy"].mean())
    return ModelAccuracyFinding(accuracy, area, run.unprotected, run.commonest, metrics, best)


def _best_round(run: FinishedRun, metric: str) -> tuple[int, float] | None:
    """Return the round with the best mean of a metric, the first one of ties, and this mean; None without any value."""
    column = metric_column(metric)
    if column not in run.tables.releases:
        return None
    means = run.tables.releases.groupby("round")[column].mean().dropna()
    if means.empty:
        return None
    values = means.to_numpy(dtype=np.float64)
    position = int(values.argmin() if is_smaller_better(metric) else values.argmax())
    return int(means.index.to_numpy()[position]), float(values[position])


_PANEL_HEIGHT = 2.3  # in inches
_EPSILON = "epsilon"  # column of the table of releases
_RELEASE = "Release (number; 0 = initial model)"
_UNUSED = "test records were not used in training"


def reference_accuracies_text(finding: ModelAccuracyFinding) -> str:
    """Return two accuracies for comparison, as text in brackets: without privacy, and of the most frequent class.

    An unknown accuracy is left out; if both are unknown, the text is empty.
    """
    references = []
    if finding.unprotected is not None and math.isfinite(finding.unprotected.final):
        references.append(f"{percent(finding.unprotected.final)} without privacy")
    if finding.commonest is not None:
        references.append(f"{percent(finding.commonest)} by always naming the most frequent class")
    return f" ({', '.join(references)})" if references else ""


def _sentence(finding: ModelAccuracyFinding, contents: ReportContents) -> str:
    kept_text = ""
    if (chosen := contents.run.chosen_releases) is not None:
        kept_text = (
            f"Each training kept the model after which errors on new cases fell no more: {_numbers_of(chosen)}. "
        )
    metric, value = finding.headline
    if not finding.is_of_classes:
        return f"{kept_text}The released model has {article(metric)} of {metric_text(metric, value)} on new cases."
    right = percent(finding.test_accuracy)
    first = "" if metric == Metric.ACCURACY else f"has {article(metric)} of {metric_text(metric, value)}, and "
    return (
        f"{kept_text}The released model {first}is right for {right} of new cases{reference_accuracies_text(finding)}."
    )


def article(metric: str) -> str:
    """Return a metric in words with its indefinite article, such as "an AUROC"."""
    title = metric_title(metric)
    return f"{'an' if title[0].lower() in 'aeiou' else 'a'} {title}"


def _numbers_of(chosen: tuple[int, int]) -> str:
    first, last = chosen
    return f"release {first}" if first == last else f"a release from {first} to {last}"


def _rows(finding: ModelAccuracyFinding, _: ReportContents) -> list[ReportNumber]:
    final = f"of the final release, mean over trials; {_UNUSED}"
    basis = f"share of right predictions {final}"
    rows = list[ReportNumber]()
    if finding.is_of_classes:
        rows.append(ReportNumber("Test accuracy", finding.test_accuracy, basis, is_share=True, on_page=True))
    if finding.commonest is not None:
        basis = "share of the most frequent class among the test records"
        rows.append(ReportNumber("Accuracy of naming one class", finding.commonest, basis, is_share=True, on_page=True))
    if (accuracy := finding.unprotected) is not None and finding.is_of_classes:
        basis = f"the same of {accuracy.run}, without clipping and noise, {plural(accuracy.trials, 'trial')}; {_UNUSED}"
        rows.append(ReportNumber("Test accuracy without privacy", accuracy.final, basis, is_share=True, on_page=True))
    is_headline = finding.headline[0] == Metric.AUROC
    if math.isfinite(finding.test_auroc):
        area = ReportNumber(TEST_AUROC, finding.test_auroc, f"area under the ROC {final}", on_page=is_headline)
        rows.insert(0 if is_headline else len(rows), area)
    for metric, value in finding.metrics.items():
        if metric not in (Metric.ACCURACY, Metric.AUROC):
            row = ReportNumber(test_name(metric), finite(value), final, is_share=is_share(metric))
            is_first = metric == finding.headline[0]
            rows.insert(0 if is_first else len(rows), replace(row, on_page=is_first))
    return [*rows, *_rows_of_best_round(finding)]


def _rows_of_best_round(finding: ModelAccuracyFinding) -> list[ReportNumber]:
    """Return the best headline of all rounds, and the number of its round."""
    if finding.best_round is None:
        return []
    number, value = finding.best_round
    metric = finding.headline[0]
    basis = "chosen by test records, mean over trials: not private"
    best_name = f"{test_name(metric)} of the best round"
    return [
        ReportNumber(best_name, value, basis, is_share=is_share(metric)),
        ReportNumber("Number of the best round", number, basis),
    ]


TEST_AUROC = "Test AUROC (probability)"


def test_name(metric: str) -> str:
    """Return the name of the row of a metric on test records, such as "Test accuracy"."""
    return TEST_AUROC if metric == Metric.AUROC else f"Test {metric_title(metric)}"


def _caption(finding: ModelAccuracyFinding, contents: ReportContents) -> str:
    subject = "The one trial" if contents.run.trials == 1 else "Median, middle half and range of the trials"
    metric, value = finding.headline
    final = f"{metric_title(metric)} {metric_text(metric, value)}" if metric != Metric.ACCURACY else ""
    if finding.is_of_classes:
        final += f"{', accuracy ' if final else ''}{percent(finding.test_accuracy)}"
    final += " at the final release"
    # A page about an audit is short, and its reader did not ask which round was best.
    best = best_round_text(finding, contents) if contents.plan.is_ordinary_training else ""
    text = f"{subject}; {final}{reference_accuracies_text(finding)}.{best}"
    if (chosen := contents.run.chosen_releases) is None:
        return text
    counted_text = (
        f"by public records alone; the guarantee counts all {plural(contents.plan.federation.rounds, 'round')}"
    )
    return f"{text} Early stopping chose {_numbers_of(chosen)}, {counted_text}."


def best_round_text(finding: ModelAccuracyFinding, contents: ReportContents) -> str:
    """Return a sentence on the round with the best headline, which test records choose; "" if it is the last one."""
    if finding.best_round is None or finding.best_round[0] == contents.plan.federation.rounds:
        return ""
    number, value = finding.best_round
    best = metric_text(finding.headline[0], value)
    return f" Best after round {number} ({best}), chosen by test records: not private."


def _metrics_figure(figure: Figure, finding: ModelAccuracyFinding, contents: ReportContents) -> None:
    """Draw each metric over the releases: one metric alone, several in panels, two side by side."""
    metrics = [metric for metric in contents.plan.metrics if metric_column(metric) in contents.releases]
    metrics_shown = metrics or [Metric.ACCURACY]
    if len(metrics_shown) == 1:
        axes = figure.add_subplot()
        _draw_metric(axes, metrics_shown[0], finding, contents)
        finish_axes(
            axes, f"{_upper(metrics_shown[0])} of each released model", _RELEASE, f"Test {_with_unit(metrics_shown[0])}"
        )
        return
    spends = _EPSILON in contents.releases
    panels_shown = len(metrics_shown) + spends
    rows = (panels_shown + 1) // 2
    figure.set_size_inches(figure.get_figwidth(), _PANEL_HEIGHT * rows)
    panels = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axes, metric in zip(panels, metrics_shown, strict=False):
        _draw_metric(axes, metric, finding, contents)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        name = _with_unit(metric)
        finish_axes(axes, f"{name[0].upper()}{name[1:]}", "Release", "")
    if spends:
        _draw_spent_epsilon(panels[len(metrics_shown)], contents)
    for unused in panels[panels_shown:]:
        unused.remove()
    figure.suptitle("Metrics of each released model on test records", fontsize=TEXT_SIZE, fontweight="bold", color=INK)
    legends = [axes.get_legend_handles_labels() for axes in panels[: len(metrics_shown)]]
    labels = {label: handle for handles, names in legends for handle, label in zip(handles, names, strict=True)}
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=2, frameon=False, fontsize=SMALL_TEXT_SIZE)


def _draw_spent_epsilon(axes: Axes, contents: ReportContents) -> None:
    """Draw the epsilon of the training up to each release for which it is known."""
    spent = contents.releases[["round", _EPSILON]].drop_duplicates("round").dropna().sort_values("round")
    style = markers_for(len(spent))
    axes.plot(spent["round"], spent[_EPSILON], "--", color=INK, marker="s", **style, label="follows from the mechanism")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    finish_axes(axes, "Epsilon spent (nats)", "Release", "")


def _with_unit(metric: str) -> str:
    return f"{metric_title(metric)}{' (%)' if is_share(metric) else ''}"


def _upper(metric: str) -> str:
    title = metric_title(metric)
    return f"{title[0].upper()}{title[1:]}"


def _draw_metric(axes: Axes, metric: str, finding: ModelAccuracyFinding, contents: ReportContents) -> None:
    draw_spread(axes, contents.releases, metric_column(metric), 100.0 if is_share(metric) else 1.0)
    is_accuracy = metric == Metric.ACCURACY
    accuracy = finding.unprotected
    if is_accuracy and accuracy is not None:
        shares = [100.0 * share for share in accuracy.accuracy]
        axes.plot(accuracy.rounds, shares, color=INK, linestyle="--", linewidth=1.5, label="without privacy (mean)")
    if is_accuracy and finding.commonest is not None:
        axes.axhline(100.0 * finding.commonest, color=MUTED, linestyle=":", linewidth=1.8, label="most frequent class")
    if metric == finding.headline[0] and best_round_text(finding, contents):
        assert finding.best_round is not None, "a text tells of it"
        label = "best round by test records (not private)"
        axes.axvline(finding.best_round[0], color=MUTED, linestyle="-.", linewidth=1.4, label=label)
    if is_share(metric):
        axes.set_ylim(0, 100)  # the same in every report


RELEASED_MODEL = Section(
    "accuracy",
    "The released model",
    ModelAccuracyFinding,
    measure_model,
    keys=("utility",),
    on_page=True,
    sentence=_sentence,
    rows=_rows,
    picture=FindingFigure("How good the model is", _metrics_figure, _caption),
)
