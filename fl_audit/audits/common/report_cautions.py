"""Cautions for the reader of a report: properties of the data that limit its numbers, and uninformative numbers."""

import math

from fl_audit.audits.common.findings_epsilon_star import EpsilonStarFinding, EpsilonStarSummary, UserEpsilonStarFinding
from fl_audit.audits.common.sections_accuracy import ModelAccuracyFinding
from fl_audit.audits.registry import audit_of
from fl_audit.learning.metric_names import Metric
from fl_audit.released_model.minimum_sample_size import FEWEST
from fl_audit.report.report_elements import ReportContents
from fl_audit.words import number_text, percent, plural

_CHANCE_AUROC = 0.5  # AUROC of a model that ranks by chance
NOT_MEANINGFUL = "not meaningful here"


def cautions_for_reader(contents: ReportContents) -> list[str]:
    """Return the cautions for the reader of a report, one text for each caution."""
    return [*cautions_on_data(contents), *cautions_on_epsilon_star(contents)]


def cautions_on_data(contents: ReportContents) -> list[str]:
    """Return cautions on what could not be computed, on the data, and on a model that only names one class."""
    lines = [*map(str, contents.errors), *contents.run.look_at]
    model = contents.find(ModelAccuracyFinding)
    if model is not None and model.commonest is not None and _is_no_better(model, model.commonest):
        accuracy_text = f"{percent(round(model.test_accuracy, 3))} of test records"
        naming = f"{percent(round(model.commonest, 3))} by always naming the most frequent class"
        no_better = f"The model is no better than naming one class: it is right for {accuracy_text}, against {naming}"
        lines.append(f"{no_better}{_reason_of_low_accuracy(contents, model)}")
    return lines


def cautions_on_epsilon_star(contents: ReportContents) -> list[str]:
    """Return cautions on values of Epsilon* that are not informative."""
    lines = list[str]()
    star = contents.find(EpsilonStarFinding)
    if star is not None and not star.is_meaningful:
        lines.append(star_text(star))
    of_users = contents.find(UserEpsilonStarFinding)
    users = contents.plan.federation.users
    sizes = contents.run.group_sizes
    outside = None if sizes is None else sizes.users_outside
    fewest = users if outside is None else min(users, outside)
    if of_users is not None and of_users.star is not None and fewest < FEWEST:
        lines.append(_few_users_text(users, outside, of_users.star))
    return lines


def _is_no_better(model: ModelAccuracyFinding, commonest: float) -> bool:
    """Return whether a model is no better than naming the most frequent class, by the metric that stands for it.

    Of unbalanced labels this is not the accuracy: a model that ranks well can still name one class alone.
    """
    metric, value = model.headline
    if metric == Metric.ACCURACY:
        return model.test_accuracy <= commonest
    return metric == Metric.AUROC and value <= _CHANCE_AUROC


def _reason_of_low_accuracy(contents: ReportContents, model: ModelAccuracyFinding) -> str:
    """Return the reason of a low accuracy, or how to find it, after a semicolon; "" if no command finds it.

    The reason is known if the same training was played without privacy.
    """
    if model.unprotected is not None:
        is_lost_by_noise = model.commonest is not None and model.unprotected.final > model.commonest
        reason = "the noise is the reason" if is_lost_by_noise else "the data, model or training are the reason"
        return f"; without privacy it is right for {percent(round(model.unprotected.final, 3))}, so {reason}"
    federation = contents.plan.federation
    if not (federation.mechanism.adds_noise and audit_of(federation).chooses_pair):
        return ""
    return "; fl-audit run --without-privacy tells whether the noise or the data are the reason"


def _few_users_text(users: int, outside: int | None, star: EpsilonStarSummary) -> str:
    """Return a sentence on why Epsilon* of users is not informative if D or the population sample has few users.

    `users` is the number of users in D, and `outside` the number outside D.
    """
    value = f" ({number_text(star.mean, 3)}, in the appendix of the report)" if math.isfinite(star.mean) else ""
    needed = f"a value needs {FEWEST} users in D and as many outside it"
    counts_text = f"{plural(users, 'user')} in D" + ("" if outside is None else f" and {outside:,} outside it")
    reached = chance_text(star.untrained_mean)
    chance = "" if reached is None else f"; chance alone gives {reached} for so few users"
    return f"Epsilon* of users{value} rests on {counts_text}: {needed}{chance}"


def chance_text(untrained_mean: float) -> str | None:
    """Return the Epsilon* that chance alone gives, as text; None if it was not measured."""
    if math.isnan(untrained_mean) or untrained_mean == 0:
        return None
    return number_text(untrained_mean, 3) if math.isfinite(untrained_mean) else "infinity"


def star_text(star: EpsilonStarFinding) -> str:
    """Return a sentence that explains why Epsilon* of a run is not informative."""
    reached = number_text(star.untrained_mean, 3) if math.isfinite(star.untrained_mean) else "infinity"
    chance = f"untrained models, which cannot leak, score {reached} nats by chance alone"
    return f"Epsilon* is {NOT_MEANINGFUL}: {chance}; more records make it smaller"
