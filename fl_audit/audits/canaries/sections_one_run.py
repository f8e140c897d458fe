"""The report section on the one-run audit: the lower bounds from its canaries beside the claimed values."""

import math

from fl_audit.array_types import finite
from fl_audit.audits.canaries.findings_one_run import CanaryBoundsFinding, certified_at, measure_one_run
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.plurals import plural
from fl_audit.report.formatting import number_text, percent
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section


def _sentence(numbers: CanaryBoundsFinding, contents: ReportContents) -> str:
    found = numbers.finding
    text = (
        f"This one training was its own audit. In each of {plural(found.rounds, 'round')}, "
        f"{plural(found.canaries, 'canary', 'canaries')} tossed a coin each; at heads a canary sent the largest "
        "contribution that clipping lets pass, in a random direction. Looking for them in what was released certifies "
        f"an epsilon of at least {number_text(found.epsilon_lower, 3)} over the training ({percent(found.confidence)} "
        f"confidence); {number_text(found.epsilon_claimed, 3)} is claimed."
    )
    if not numbers.is_reported_epsilon_too_low:
        return text
    return f"{text} The client's own accountant names {number_text(numbers.epsilon_told, 3)}, which cannot be true."


def _rows(numbers: CanaryBoundsFinding, contents: ReportContents) -> list[ReportNumber]:
    found, mechanism = numbers.finding, contents.plan.federation.mechanism
    what = "step" if isinstance(mechanism.contribution, PrivateTraining) else "round"
    how = f"{found.method}, {percent(found.confidence)} confidence; {found.method.assumption}"
    delta = at_delta(found.delta)
    rows = [
        ReportNumber("Canaries", found.canaries, f"each tossed a coin in each of {plural(found.rounds, 'round')}"),
        ReportNumber(
            f"mu of a {what}, estimated", found.mu, "distance of the mean scores over their spread; no confidence"
        ),
        ReportNumber(
            f"mu of a {what}, at least",
            found.mu_lower,
            how,
            limit=found.mu_claimed,
            is_bound=True,
            on_page=True,
            wide=lambda confidence: (certified_at(contents.run, confidence).mu_lower, math.inf),
        ),
        ReportNumber(
            f"mu of a {what} by the distribution of the noise",
            numbers.mu_true,
            "the truth, if the noise is what it should be",
        ),
        ReportNumber(
            "Epsilon of the training, at least (nats)",
            finite(found.epsilon_lower),
            f"{how} Composed by the claimed accountant{delta}",
            limit=finite(found.epsilon_claimed),
            is_bound=True,
            wide=lambda confidence: (certified_at(contents.run, confidence).epsilon_lower, math.inf),
            on_page=True,
        ),
    ]
    if numbers.epsilon_told is not None:
        rows.append(ReportNumber("Epsilon that the client's accountant names", numbers.epsilon_told, f"Opacus{delta}"))
    if numbers.trials > 1:
        rows.append(ReportNumber("Trainings whose bound holds", numbers.held, f"of {numbers.trials:,}"))
    return rows


ONE_RUN = Section(
    "one-run",
    "One training as its own audit",
    CanaryBoundsFinding,
    measure_one_run,
    keys=("one_run",),
    on_page=True,
    sentence=_sentence,
    rows=_rows,
)
