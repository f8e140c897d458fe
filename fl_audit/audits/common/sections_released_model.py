"""Report sections on the released model: its accuracy, and Epsilon* (an empirical epsilon) from its losses."""

import math
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_audit.array_types import finite
from fl_audit.audits.common import findings_released_model as evidence
from fl_audit.audits.common.report_cautions import NOT_MEANINGFUL, chance_text, star_text
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.federation.federation_enums import EpsilonStarLocation, InitialWeightsSource
from fl_audit.learning.metric_names import Metric, is_share, metric_column, metric_title
from fl_audit.plurals import plural
from fl_audit.released_model.minimum_sample_size import FEWEST
from fl_audit.released_model.normal_fit_tests import FIT
from fl_audit.released_model.star_methods import cut_text
from fl_audit.report.figure_style import (
    INK,
    LIMIT,
    MUTED,
    SMALL_TEXT_SIZE,
    TEXT_SIZE,
    draw_spread,
    finish_axes,
    markers_for,
)
from fl_audit.report.formatting import metric_text, number_text, percent
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section

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


SQUASH = 4.0  # the claimed epsilon is plotted if it is at most this many times the largest Epsilon*


def _star_sentence(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    if not math.isfinite(star.mean):
        return "How much a released model gives away by its losses was not determined."
    if not star.is_meaningful:
        return f"{star_text(star)}.{_losses_text(contents)}"
    at_least = "at least " if star.is_lower_bound else ""
    text = (
        f"Judged by its losses alone, a released model scores {at_least}{number_text(star.mean, 3)} on the leakage "
        f"scale Epsilon* (at most {number_text(star.max, 3)}), where 0 means that it treats people in the training "
        f"data like others ({cut_text(star.cut)} count). {_fit_text(star, contents)}"
    )
    if math.isfinite(star.untrained_mean):
        text += (
            f" Chance alone reaches {number_text(star.untrained_mean, 3)} (at most "
            f"{number_text(star.untrained_max, 3)}): that is what {_start(contents)} models score, which cannot leak."
        )
    guarantee, other = contents.plan.guarantee, " The claimed epsilon is another quantity, over all repetitions:"
    if guarantee is not None and star.max > guarantee.epsilon:
        text += f"{other} single models may exceed it by chance."
    return f"{text}{_losses_text(contents)}"


def _fit_text(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    """Return a sentence on the normality test of the losses, and on the resulting estimator of Epsilon*."""
    if star.is_lower_bound:
        few = f"fewer than {FEWEST} losses of a set give no value, only a lower bound that holds for any distributions"
        return f"It is at least this: {few}."
    if star.fit_tested == 0 and star.by_normals is not None:
        return "Losses are counted, for whether they are normal could not be tested."
    if star.fit_tested == 0:
        owned = _stay_with_owners(contents)
        reason = "the losses stay with their owners" if owned else f"a test takes {FEWEST} losses of each set"
        why = f": {reason}" if owned or FIT in contents.trials else ""
        return f"It rests on normals, whose fit was not tested{why}."
    tested = f"a test rejects that in {star.fit_rejected:,} of {plural(star.fit_tested, 'trial')}"
    if star.by_normals is None:
        return f"It takes the losses for normal after a logit transform; {tested}."
    normal = f"{number_text(star.by_normals.mean, 3)} ({cut_text(star.by_normals.cut)})"
    return (
        f"Losses are counted, for they are not normal after a logit transform: {tested}. Normals would give {normal}."
    )


def _star_note(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    """Return a note on how Epsilon* was estimated, and on the Epsilon* that untrained models have by chance."""
    if not math.isfinite(star.untrained_mean) or (level := chance_text(star.untrained_mean)) is None:
        return _fit_note(star)
    level += " for records" if contents.find(evidence.UserEpsilonStarFinding) is not None else ""
    chance = f"chance alone gives {level}, for {_start(contents)} models, which learned nothing of anybody"
    return f"{chance}; {_fit_note(star)}"


def _start(contents: ReportContents) -> str:
    """Return "pretrained" or "untrained", the word for the models before the first round of training (release 0)."""
    is_pretrained = contents.plan.config.model.initial is InitialWeightsSource.PRETRAINED
    return "pretrained" if is_pretrained else "untrained"


def _fit_note(star: evidence.EpsilonStarFinding) -> str:
    if star.is_lower_bound:
        return f"{cut_text(star.cut)}; a lower bound for any distributions, since losses are few"
    if star.fit_tested == 0 and star.by_normals is not None:
        return f"{cut_text(star.cut)}; losses are counted, since normals could not be tested"
    if star.fit_tested == 0:
        return f"{cut_text(star.cut)}; by normals, whose fit was not tested"
    tested = f"rejected in {star.fit_rejected:,} of {plural(star.fit_tested, 'trial')}"
    kind = "by normals" if star.by_normals is None else "losses are counted, since normals were"
    return f"{cut_text(star.cut)}; {kind}{',' if star.by_normals is None else ''} {tested}"


def _stay_with_owners(contents: ReportContents) -> bool:
    return contents.plan.config.audit.epsilon_star_losses is EpsilonStarLocation.FEDERATED


def _losses_text(contents: ReportContents) -> str:
    """Return a sentence on the statistics of losses that clients reported.

    The text is empty if the losses themselves were pooled.
    """
    if not _stay_with_owners(contents):
        return ""
    return (
        " The losses stayed with their owners: each told their number, and mean and spread after the transform, and "
        "the smallest and the largest loss."
    )


def _star_rows(star: evidence.EpsilonStarFinding, contents: ReportContents) -> list[ReportNumber]:
    how = f"Negoescu et al. 2023{at_delta(star.delta)}, {cut_text(star.cut)}. {_fit_text(star, contents).rstrip('.')}"
    chance = "the same of release 0, which cannot leak: what chance reaches"
    at_least = " at least" if star.is_lower_bound else ""
    doubt = "" if star.is_meaningful else f": {NOT_MEANINGFUL}"
    return [
        ReportNumber(
            f"Epsilon*{at_least}, mean over trials (nats){doubt}",
            finite(star.mean),
            f"of the final release, {how}",
            on_page=True,
            note=_star_note(star, contents),
        ),
        ReportNumber("Epsilon*, largest trial (nats)", finite(star.max), "an extreme value"),
        ReportNumber("Epsilon* of untrained models, mean (nats)", finite(star.untrained_mean), chance),
        ReportNumber(
            "Epsilon* of untrained models, largest (nats)", finite(star.untrained_max), "likewise, an extreme value"
        ),
        ReportNumber("Delta of Epsilon* (probability)", star.delta, "chosen before the run"),
        ReportNumber("Error rates left out", star.cut, "chosen before the run"),
    ]


def _star_caption(star: evidence.EpsilonStarFinding, contents: ReportContents) -> str:
    spread = "" if contents.run.trials == 1 else " Median, middle half and range of the trials."
    at, guarantee = number_text(star.delta), contents.plan.guarantee
    meaning = "Under the floor chance decides." if star.is_meaningful else f"It is {NOT_MEANINGFUL}: the floor is high."
    cut, how = star.cut, ""
    if star.by_normals is not None:
        cut, how = star.by_normals.cut, " by normals, which are not known to fit: the numbers beside it count losses"
    text = f"Measured from losses alone at δ = {at}, {cut_text(cut)}{how}.{spread} {meaning}"
    if guarantee is None or guarantee_fits(contents):
        return text
    return f"{text} The guarantee, {number_text(guarantee.epsilon, 3)}, lies far above."


def guarantee_fits(contents: ReportContents) -> bool:
    """Return whether the plot of Epsilon* stays readable with a line at the claimed epsilon.

    It does if the claimed epsilon is at most four times the largest finite Epsilon*. False without a guarantee.
    """
    guarantee, column = contents.plan.guarantee, contents.releases["epsilon_star"]
    values = column.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    return guarantee is not None and bool(values.size) and guarantee.epsilon <= SQUASH * float(values.max())


def _star_figure(figure: Figure, star: evidence.EpsilonStarFinding, contents: ReportContents) -> None:
    releases, guarantee = contents.releases, contents.plan.guarantee
    axes = figure.add_subplot()
    draw_spread(axes, releases, "epsilon_star")
    if guarantee is not None and guarantee_fits(contents):
        label = f"claimed epsilon = {number_text(guarantee.epsilon, 3)} ({guarantee.accountant})"
        axes.axhline(guarantee.epsilon, label=label, **LIMIT)
    floor = (star if star.by_normals is None else star.by_normals).untrained_mean
    if math.isfinite(floor):
        label = f"floor by chance: {number_text(floor, 2)}"
        axes.axhline(floor, color=MUTED, linestyle=":", linewidth=1.8, label=label)
    axes.set_ylim(0, 1.05 * max(axes.get_ylim()[1], 1e-3))
    name = f"Epsilon* (nats)\nat δ = {number_text(star.delta)}"
    finish_axes(axes, "Epsilon* of each released model", "Release (number; 0 = initial model)", name)


EPSILON_STAR = Section(
    "epsilon-star", "What the models' losses give away (Epsilon*)", evidence.EpsilonStarFinding, evidence.measure_star,
    keys=("epsilon_star",), sentence=_star_sentence, rows=_star_rows,
    picture=FindingFigure("Epsilon*", _star_figure, _star_caption,
                    applies=lambda _, contents: bool(contents.releases["epsilon_star"].notna().any())),
)  # fmt: skip


def _users_rows(numbers: evidence.UserEpsilonStarFinding, contents: ReportContents) -> list[ReportNumber]:
    star, right = numbers.star, finite(numbers.test_accuracy)
    mean = "by the mean loss of each user's records, taken for normal after a logit transform"
    rows = [
        ReportNumber(
            "Accuracy for a user",
            right,
            "share of a test user's records that is named right, mean over users and "
            "trials: a user with many records counts once",
            is_share=True,
        )
    ]
    if star is None:
        return rows
    chance = "the same of release 0, which cannot leak: what chance reaches"
    how = f"of the final release, {mean}, whose fit was not tested{at_delta(numbers.delta)}, {cut_text(star.cut)}"
    return [
        ReportNumber("Epsilon* of users, mean over trials (nats)", finite(star.mean), how),
        ReportNumber("Epsilon* of users, largest trial (nats)", finite(star.max), "an extreme value"),
        ReportNumber("Epsilon* of users of untrained models, mean (nats)", finite(star.untrained_mean), chance),
        *rows,
    ]


def _users_sentence(numbers: evidence.UserEpsilonStarFinding, _: ReportContents) -> str:
    star = numbers.star
    told = "The statistic of a user is the mean of the losses of the user's records. "
    if star is None:
        return f"{told}Epsilon* of users was not computed."
    reached = chance_text(star.untrained_mean)
    chance = "" if reached is None else f"; chance alone reaches {reached}"
    return f"{told}Epsilon* of users is {number_text(star.mean, 3)}{chance}."


USERS = Section(
    "of-users", "What the models' losses give away of users", evidence.UserEpsilonStarFinding, evidence.measure_users,
    keys=("of_users",), sentence=_users_sentence, rows=_users_rows,
)  # fmt: skip
