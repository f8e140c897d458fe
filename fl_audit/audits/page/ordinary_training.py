"""First screen and terminal table of an ordinary training: what was trained, how good it is, what it guarantees.

A run of one trial, or without an insider, is a training that nobody asked to audit. What an audit says of it comes
last, unless something was found.
"""

import math

from fl_audit.audits.common.sections_accuracy import ModelAccuracyFinding, best_round_text
from fl_audit.audits.common.sections_client_metrics import ClientMetricsFinding, client_rows
from fl_audit.audits.sections import page_rows
from fl_audit.learning.metric_names import Metric, metric_text, metric_title
from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values
from fl_audit.report.page import Banner, VerdictLook
from fl_audit.report.report_elements import ReportContents
from fl_audit.statistics.claim_comparisons import finding_text
from fl_audit.user_modules import title_of_named
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import capital, plural

_ENOUGH_TRIALS = 1000  # trials that an audit is advised to have


def is_shown_as_training(contents: ReportContents) -> bool:
    """Return whether a run is shown as a training: it is an ordinary one, and nothing was found that must lead."""
    finding = verdict_of(contents)
    if finding.verdict is Verdict.VIOLATED or not contents.plan.is_ordinary_training:
        return False
    if contents.plan.federation.local_randomizer is not None:  # what its owners' randomising guarantees leads
        return False
    if finding.verdict is not Verdict.INCONCLUSIVE:
        return True
    return not (finding.contradicted_by or finding.is_unanswered)


def training_banner(contents: ReportContents) -> Banner:
    """Return the banner of a training: its headline metric, and what was trained."""
    word = "Trained"
    if (numbers := contents.find(ModelAccuracyFinding)) is not None:
        metric, value = numbers.headline
        word = f"Trained: {metric_title(metric)} {metric_text(metric, value)}"
    return Banner(word, f"{capital(trained_text(contents))}.", VerdictLook.NONE)


def trained_text(contents: ReportContents) -> str:
    """Return a phrase on what was trained, such as "logistic on 200 records of 5 clients, dp-fedsgd, 20 rounds"."""
    config = contents.plan.config
    federation = contents.plan.federation
    clients = plural(federation.clients, "client")
    data = f"{title_of_named(federation.model)} on {plural(federation.records, 'record')} of {clients}"
    several = "" if contents.run.trials == 1 else f", in {plural(contents.run.trials, 'training')}"
    return f"{data}, {config.training.strategy}, {plural(federation.rounds, 'round')}{several}"


def audit_text(contents: ReportContents) -> str:
    """Return a sentence on what this training says of its guarantee, and how to audit it."""
    if contents.plan.guarantee is None:
        return "Nothing is claimed, so there is nothing to audit."
    audit = contents.plan.config.audit
    missing = [] if audit.insider else ["insider = true"]
    missing += [] if audit.trials >= _ENOUGH_TRIALS else [f"trials = {_ENOUGH_TRIALS}"]
    remedy = " and ".join(missing)
    return f"Not asked for. Set {remedy} in [audit] to hold the guarantee against what an insider learns."


def model_text(contents: ReportContents) -> str:
    """Return a sentence on where the model is."""
    which = "The model" if contents.run.trials == 1 else "The model of trial 0"
    return f"{which} is in model.safetensors; fl_audit.read_run(DIR).model() returns its parameters by name."


def training_rows(contents: ReportContents) -> list[list[tuple[str, str]]]:
    """Return the rows of the terminal's table of a training, as names and texts, in groups."""
    guarantee = contents.plan.guarantee
    numbers = contents.find(ModelAccuracyFinding)
    rows = [("Trained", trained_text(contents))]
    if numbers is not None:
        mean = "" if contents.run.trials == 1 else ", mean"
        texts = {metric: metric_text(metric, value) for metric, value in numbers.metrics.items()}
        rows += [(f"{capital(metric_title(metric))} on test records{mean}", text) for metric, text in texts.items()]
        if (accuracy := numbers.unprotected) is not None:
            metrics_found = {
                numbers.headline[0]: accuracy.metrics.get(numbers.headline[0]),
                Metric.ACCURACY: accuracy.final,
            }
            known_metrics = {
                metric: value for metric, value in metrics_found.items() if value is not None and math.isfinite(value)
            }
            rows += [
                (f"{capital(metric_title(metric))} without privacy", metric_text(metric, value))
                for metric, value in known_metrics.items()
            ]
        if numbers.commonest is not None:
            rows.append(("Accuracy of naming one class", metric_text("accuracy", numbers.commonest)))
    if numbers is not None and (best := best_round_text(numbers, contents)):
        rows.append(("Best round", best.strip()))
    if (clients := contents.find(ClientMetricsFinding)) is not None:
        rows += [(row.name, finding_text(row.to_json())) for row in client_rows(clients) if row.on_page]
    promised = "nothing: no clipping, no noise"
    if guarantee is not None:
        promised = guarantee_line(guarantee_values(guarantee.epsilon, guarantee.claims))
    rows.append(("Guarantee", promised))
    # What an insider learns in one trial tells next to nothing; the appendix of the report has it.
    of_one_model = [row for row in page_rows(contents) if row.name.startswith("Epsilon*")]
    measured = [(row.name, finding_text(row.to_json())) for row in of_one_model]
    return [rows, [*measured, ("Audit of the guarantee", audit_text(contents))]]
