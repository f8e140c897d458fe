"""Report section on the released model: its accuracy and other metrics on test records."""

import math
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_audit.array_types import finite
from fl_audit.audits.common import findings_released_model as evidence
from fl_audit.learning.metric_names import Metric, is_share, metric_column, metric_text, metric_title
from fl_audit.report.figure_style import INK, MUTED, SMALL_TEXT_SIZE, TEXT_SIZE, draw_spread, finish_axes, markers_for
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.words import percent, plural

_PANEL_HEIGHT = 2.3  # in inches
_EPSILON = "epsilon"  # column of the table of releases
_RELEASE = "Release (number; 0 = initial model)"
_UNUSED = "test records were not used in training"


def reference_accuracies_text(numbers: evidence.ModelAccuracyFinding) -> str:
    """Return two accuracies for comparison, as text in brackets: without privacy, and of the most frequent class.

    An unknown accuracy is left out; if both are unknown, the text is empty.
    """
    known = []
    if numbers.unprotected is not None and math.isfinite(numbers.unprotected.final):
        known.append(f"{percent(numbers.unprotected.final)} without privacy")
    if numbers.commonest is not None:
        known.append(f"{percent(numbers.commonest)} by always naming the most frequent class")
    return f" ({', '.join(known)})" if known else ""


def _sentence(numbers: evidence.ModelAccuracyFinding, contents: ReportContents) -> str:
    kept = ""
    if (chosen := contents.run.chosen_releases) is not None:
        kept = f"Each training kept the model after which errors on new cases fell no more: {_numbers_of(chosen)}. "
    metric, value = numbers.headline
    if not numbers.is_of_classes:
        return f"{kept}The released model has {article(metric)} of {metric_text(metric, value)} on new cases."
    right = percent(numbers.test_accuracy)
    first = "" if metric == Metric.ACCURACY else f"has {article(metric)} of {metric_text(metric, value)}, and "
    return f"{kept}The released model {first}is right for {right} of new cases{reference_accuracies_text(numbers)}."


def article(metric: str) -> str:
    """Return a metric in words with its indefinite article, such as "an AUROC"."""
    title = metric_title(metric)
    return f"{'an' if title[0].lower() in 'aeiou' else 'a'} {title}"


def _numbers_of(chosen: tuple[int, int]) -> str:
    first, last = chosen
    return f"release {first}" if first == last else f"a release from {first} to {last}"


def _rows(numbers: evidence.ModelAccuracyFinding, _: ReportContents) -> list[ReportNumber]:
    final = f"of the final release, mean over trials; {_UNUSED}"
    basis = f"share of right predictions {final}"
    rows = list[ReportNumber]()
    if numbers.is_of_classes:
        rows.append(ReportNumber("Test accuracy", numbers.test_accuracy, basis, is_share=True, on_page=True))
    if numbers.commonest is not None:
        basis = "share of the most frequent class among the test records"
        rows.append(ReportNumber("Accuracy of naming one class", numbers.commonest, basis, is_share=True, on_page=True))
    if (other := numbers.unprotected) is not None and numbers.is_of_classes:
        basis = f"the same of {other.run}, without clipping and noise, {plural(other.trials, 'trial')}; {_UNUSED}"
        rows.append(ReportNumber("Test accuracy without privacy", other.final, basis, is_share=True, on_page=True))
    is_headline = numbers.headline[0] == Metric.AUROC
    if math.isfinite(numbers.test_auroc):
        area = ReportNumber(TEST_AUROC, numbers.test_auroc, f"area under the ROC {final}", on_page=is_headline)
        rows.insert(0 if is_headline else len(rows), area)
    for metric, value in numbers.metrics.items():
        if metric not in (Metric.ACCURACY, Metric.AUROC):
            row = ReportNumber(test_name(metric), finite(value), final, is_share=is_share(metric))
            is_first = metric == numbers.headline[0]
            rows.insert(0 if is_first else len(rows), replace(row, on_page=is_first))
    return rows


TEST_AUROC = "Test AUROC (probability)"


def test_name(metric: str) -> str:
    """Return the name of the row of a metric on test records, such as "Test accuracy"."""
    return TEST_AUROC if metric == Metric.AUROC else f"Test {metric_title(metric)}"


def _caption(numbers: evidence.ModelAccuracyFinding, contents: ReportContents) -> str:
    shown = "The one trial" if contents.run.trials == 1 else "Median, middle half and range of the trials"
    metric, value = numbers.headline
    final = f"{metric_title(metric)} {metric_text(metric, value)}" if metric != Metric.ACCURACY else ""
    if numbers.is_of_classes:
        final += f"{', accuracy ' if final else ''}{percent(numbers.test_accuracy)}"
    final += " at the final release"
    text = f"{shown}; {final}{reference_accuracies_text(numbers)}.{best_round_text(numbers, contents)}"
    if (chosen := contents.run.chosen_releases) is None:
        return text
    counted = f"by public records alone; the guarantee counts all {plural(contents.plan.federation.rounds, 'round')}"
    return f"{text} Early stopping chose {_numbers_of(chosen)}, {counted}."


def best_round_text(numbers: evidence.ModelAccuracyFinding, contents: ReportContents) -> str:
    """Return a sentence on the round with the best headline, which test records choose; "" if it is the last one."""
    if numbers.best_round is None or numbers.best_round[0] == contents.plan.federation.rounds:
        return ""
    number, value = numbers.best_round
    best = metric_text(numbers.headline[0], value)
    return f" Best after round {number} ({best}), chosen by test records: not private."


def _metrics_figure(figure: Figure, numbers: evidence.ModelAccuracyFinding, contents: ReportContents) -> None:
    """Draw each metric over the releases: one metric alone, several in panels, two side by side."""
    known = [metric for metric in contents.plan.metrics if metric_column(metric) in contents.releases]
    shown = known or [Metric.ACCURACY]
    if len(shown) == 1:
        axes = figure.add_subplot()
        _draw_metric(axes, shown[0], numbers, contents)
        finish_axes(axes, f"{_upper(shown[0])} of each released model", _RELEASE, f"Test {_with_unit(shown[0])}")
        return
    spends = _EPSILON in contents.releases
    panels_shown = len(shown) + spends
    rows = (panels_shown + 1) // 2
    figure.set_size_inches(figure.get_figwidth(), _PANEL_HEIGHT * rows)
    panels = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axes, metric in zip(panels, shown, strict=False):
        _draw_metric(axes, metric, numbers, contents)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        name = _with_unit(metric)
        finish_axes(axes, f"{name[0].upper()}{name[1:]}", "Release", "")
    if spends:
        _draw_spent_epsilon(panels[len(shown)], contents)
    for unused in panels[panels_shown:]:
        unused.remove()
    figure.suptitle("Metrics of each released model on test records", fontsize=TEXT_SIZE, fontweight="bold", color=INK)
    drawn = [axes.get_legend_handles_labels() for axes in panels[: len(shown)]]
    labels = {label: handle for handles, names in drawn for handle, label in zip(handles, names, strict=True)}
    figure.legend(
        labels.values(), labels, loc="outside lower center", ncols=2, frameon=False, fontsize=SMALL_TEXT_SIZE
    )  # fmt: skip


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


def _draw_metric(axes: Axes, metric: str, numbers: evidence.ModelAccuracyFinding, contents: ReportContents) -> None:
    draw_spread(axes, contents.releases, metric_column(metric), 100.0 if is_share(metric) else 1.0)
    is_accuracy, other = metric == Metric.ACCURACY, numbers.unprotected
    if is_accuracy and other is not None:
        shares = [100.0 * share for share in other.accuracy]
        axes.plot(other.rounds, shares, color=INK, linestyle="--", linewidth=1.5, label="without privacy (mean)")
    if is_accuracy and numbers.commonest is not None:
        axes.axhline(100.0 * numbers.commonest, color=MUTED, linestyle=":", linewidth=1.8, label="most frequent class")
    if metric == numbers.headline[0] and best_round_text(numbers, contents):
        assert numbers.best_round is not None, "a text tells of it"
        label = "best round by test records (not private)"
        axes.axvline(numbers.best_round[0], color=MUTED, linestyle="-.", linewidth=1.4, label=label)
    if is_share(metric):
        axes.set_ylim(0, 100)  # the same in every report


RELEASED_MODEL = Section(
    "accuracy", "The released model", evidence.ModelAccuracyFinding, evidence.measure_model, keys=("utility",),
    on_page=True, sentence=_sentence, rows=_rows,
    picture=FindingFigure("How good the model is", _metrics_figure, _caption),
)  # fmt: skip
