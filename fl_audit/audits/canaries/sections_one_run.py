"""The report section on the one-run audit: the lower bounds from its canaries beside the claimed values."""

import math

from fl_audit.array_types import finite
from fl_audit.audits.canaries.findings_one_run import CanaryBoundsFinding, certified_at, measure_one_run
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.words import number_text, percent, plural


def _sentence(numbers: CanaryBoundsFinding, contents: ReportContents) -> str:
    finding = numbers.finding
    text = (
        f"This one training was its own audit. In each of {plural(finding.rounds, 'round')}, "
        f"{plural(finding.canaries, 'canary', 'canaries')} tossed a coin each; at heads a canary sent the largest "
        "contribution that clipping lets pass, in a random direction. Looking for them in what was released certifies "
        f"an epsilon of at least {number_text(finding.epsilon_lower, 3)} over the training "
        f"({percent(finding.confidence)} "
        f"confidence); {number_text(finding.epsilon_claimed, 3)} is claimed."
    )
    if not numbers.is_reported_epsilon_too_low:
        return text
    return f"{text} The client's own accountant names {number_text(numbers.epsilon_told, 3)}, which cannot be true."


def _rows(finding: CanaryBoundsFinding, contents: ReportContents) -> list[ReportNumber]:
    bounds = finding.finding
    mechanism = contents.plan.federation.mechanism
    unit_of_time = "step" if isinstance(mechanism.contribution, PrivateTraining) else "round"
    basis_text = f"{bounds.method}, {percent(bounds.confidence)} confidence; {bounds.method.assumption}"
    delta = at_delta(bounds.delta)
    rows = [
        ReportNumber("Canaries", bounds.canaries, f"each tossed a coin in each of {plural(bounds.rounds, 'round')}"),
        ReportNumber(
            f"mu of a {unit_of_time}, estimated",
            bounds.mu,
            "distance of the mean scores over their spread; no confidence",
        ),
        ReportNumber(
            f"mu of a {unit_of_time}, at least",
            bounds.mu_lower,
            basis_text,
            limit=bounds.mu_claimed,
            is_bound=True,
            on_page=True,
            wide=lambda confidence: (certified_at(contents.run, confidence).mu_lower, math.inf),
        ),
        ReportNumber(
            f"mu of a {unit_of_time} by the distribution of the noise",
            finding.mu_true,
            "the truth, if the noise is what it should be",
        ),
        ReportNumber(
            "Epsilon of the training, at least (nats)",
            finite(bounds.epsilon_lower),
            f"{basis_text} Composed by the claimed accountant{delta}",
            limit=finite(bounds.epsilon_claimed),
            is_bound=True,
            wide=lambda confidence: (certified_at(contents.run, confidence).epsilon_lower, math.inf),
            on_page=True,
        ),
    ]
    if finding.epsilon_told is not None:
        rows.append(ReportNumber("Epsilon that the client's accountant names", finding.epsilon_told, f"Opacus{delta}"))
    if finding.trials > 1:
        rows.append(ReportNumber("Trainings whose bound holds", finding.held, f"of {finding.trials:,}"))
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
