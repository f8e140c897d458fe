"""Report section on epsilon: the empirical epsilons of Bernau et al. 2021, and the lower bounds."""

import math

from fl_audit.array_types import finite
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.audits.identifiability import findings_empirical_epsilon as evidence
from fl_audit.audits.identifiability.bernau_empirical_epsilons import EmpiricalEpsilonEstimate
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section, Table
from fl_audit.report.unit_words import UnitWords
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.noise_estimate import epsilon_lower_bound_from_noise
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.verdict.stored_measurements import measured_in
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.verdict.verdict_messages import title_of
from fl_audit.words import DASH, number_text, percent, side_of, uncapital


def _method(details: VerdictDetails, words: UnitWords) -> str:
    """Return a phrase that names the test from which the verdict follows, or the bound if no test decided.

    `details` holds the results behind the verdict.
    """
    is_test = details.method in set(TestName)
    return f"the {uncapital(title_of(TestName(details.method), words))}" if is_test else details.method


def _detectable(contents: ReportContents) -> str:
    decisive = verdict_of(contents).judged
    level = f"level {number_text(decisive.level_of_limit)}"
    if not math.isfinite(decisive.limit_of_detection):
        nothing = f"where the {contents.words.one} is hidden nothing could have been found at {level}"
        return f"{nothing}, since D and D' hardly differed"
    limit_text = number_text(decisive.limit_of_detection, 3)
    return f"noise that leaves epsilon {limit_text} would have been found in 9 of 10 runs at {level}"


def _rows(finding: evidence.EmpiricalEpsilonFinding, contents: ReportContents) -> list[ReportNumber]:
    guarantee = contents.guarantee
    decisive = finding.decisive
    delta = at_delta(guarantee.delta)
    level = decisive.level
    by = f"{_method(decisive, contents.words)}{delta}. {decisive.assumption}"
    # This inverts `rho_alpha`. Compared with the guarantee it would refute noise that is calibrated exactly.
    advantage = f"section 5.3 (iii): Eq. (6) turned round{delta}, of noise calibrated by the classic formula only"

    def wide(confidence: float) -> tuple[float, float]:
        return epsilon_lower_bound_from_noise(measured_in(contents.run), confidence, guarantee.claim), math.inf

    rows = [
        ReportNumber(
            "Epsilon shown at least (nats)",
            finite(decisive.epsilon_lower_bound),
            f"lower bound, holds at {percent(decisive.confidence)} confidence, by {by}",
            limit=guarantee.epsilon,
            is_bound=True,
            wide=wide,
            level=TestName.NOISE_ALONG_RECORD.level,
            on_page=True,
        ),
        ReportNumber(
            "The same at the level of the verdict (nats)",
            finite(decisive.epsilon_lower_bound_at_level),
            f"holds at {percent(1 - level)} confidence, likewise",
            limit=guarantee.epsilon,
            is_bound=True,
            wide=wide,
            level=TestName.NOISE_ALONG_RECORD.level,
        ),
        ReportNumber("Level of the verdict (probability)", level, "of all tests together, fixed before the run"),
        ReportNumber(
            "Limit of detection (nats)", finite(decisive.limit_of_detection), f"{_detectable(contents)}, by {by}"
        ),
        _estimate(
            "From the largest belief (nats)",
            finding.from_belief,
            f"section 5.3 (ii): Eq. (5) turned round. {finding.from_belief.note}",
        ),
        _estimate("From the advantage (nats)", finding.from_advantage, advantage),
    ]
    if (estimate := finding.from_sensitivity) is not None:
        method = (
            f"section 5.3 (i): sensitivities over the noise that the mechanism names{delta}, by {guarantee.accountant}"
        )
        rows.append(_estimate("From sensitivities (nats)", estimate, f"{method}; tests the bookkeeping"))
    return rows


def _estimate(name: str, estimate: EmpiricalEpsilonEstimate, basis: str) -> ReportNumber:
    basis_text = basis + "; ends over the trials" * (estimate.confidence == 1)
    low = estimate.low
    high = estimate.high
    if side_of(low, high) == 0:  # they differ by rounding only
        low = high = estimate.epsilon
    return ReportNumber(name, finite(estimate.epsilon), basis_text, finite(low), finite(high), estimate.confidence)


def _tables(finding: evidence.EmpiricalEpsilonFinding, _: ReportContents) -> list[Table]:
    if not finding.bounds:
        return []
    columns = (
        "Method",
        "Epsilon at least (nats)",
        "Confidence",
        "Would be found from (nats)",
        "Could be shown up to (nats)",
        "Assumption",
    )
    rows = tuple(
        (
            str(bound.method),
            finite(bound.epsilon),
            f"{percent(bound.confidence)}, at delta = {bound.delta:g}",
            *_limits(bound),
            " ".join([bound.assumption, *bound.warnings]),
        )
        for bound in finding.bounds
    )
    return [Table("Lower bounds on epsilon by every method that applies", columns, rows)]


def _limits(bound: LowerBound) -> tuple[float | str | None, float | str | None]:
    """Return two cells of a table: the smallest epsilon that a bound would detect, and the largest that it can show.

    Only one of them is known for each method of a bound, and the other is a dash.
    """
    limit = finite(bound.limit_of_detection)
    return (limit, DASH) if bound.method is BoundMethod.GAUSSIAN_SHIFT else (DASH, limit)


EMPIRICAL_EPSILON = Section(
    "empirical-epsilon",
    "The epsilon that the run shows",
    evidence.EmpiricalEpsilonFinding,
    evidence.measure_empirical,
    keys=("empirical_epsilon",),
    rows=_rows,
    tables=_tables,
)
