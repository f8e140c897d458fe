"""Finding and report section on epsilon: the empirical epsilons of Bernau et al. 2021, and the lower bounds."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.array_types import finite
from fl_audit.audits.identifiability import bernau_empirical_epsilons as estimates
from fl_audit.audits.identifiability.bernau_empirical_epsilons import EmpiricalEpsilonEstimate
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.report.mechanism_messages import at_delta
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section, Table
from fl_audit.report.unit_words import UnitWords
from fl_audit.statistics.lower_bound_methods import BoundMethod, ScoreDistribution
from fl_audit.statistics.lower_bounds import LowerBound, all_bounds, bound_json
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.noise_estimate import epsilon_lower_bound_from_noise
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.verdict.stored_measurements import measured_in
from fl_audit.verdict.verdict import VerdictDetails
from fl_audit.verdict.verdict_messages import title_of
from fl_audit.words import DASH, number_text, percent, side_of, uncapital


@dataclass(frozen=True)
class EmpiricalEpsilonFinding:
    """The empirical epsilons of Bernau et al. 2021 and the lower bounds on epsilon, from one run."""

    # Estimate by sensitivities, variant (i) of section 5.3 of Bernau et al. 2021; None if the insider cannot compute
    # the sensitivities.
    from_sensitivity: EmpiricalEpsilonEstimate | None
    from_belief: EmpiricalEpsilonEstimate  # estimate by the largest belief, variant (ii)
    from_advantage: EmpiricalEpsilonEstimate  # estimate by the advantage, variant (iii)
    decisive: VerdictDetails  # the judgement that gives the verdict
    bounds: tuple[LowerBound, ...]  # one bound by each method that applies; empty without trials with D or with D'

    @property
    def intervals(self) -> dict[str, EmpiricalEpsilonEstimate]:
        """The estimates of Bernau et al. 2021, keyed by their names in `summary.json`, such as `from_belief`."""
        estimates = {"from_belief": self.from_belief, "from_advantage": self.from_advantage}
        return estimates if self.from_sensitivity is None else {"from_sensitivity": self.from_sensitivity} | estimates

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `empirical_epsilon`, for `summary.json`."""
        decisive = self.decisive
        intervals = json_of(self.intervals)
        epsilons = {name: interval.pop("epsilon") for name, interval in intervals.items()}
        bounds = {
            "lower_bound": decisive.epsilon_lower_bound,
            "confidence": decisive.confidence,
            "method": decisive.method,
            "assumption": decisive.assumption,
            "limit_of_detection": decisive.limit_of_detection,
            "lower_bound_at_violation_level": decisive.epsilon_lower_bound_at_level,
            "violation_level": decisive.level,
        }
        every = {"intervals": intervals, "bounds": [bound_json(bound) for bound in self.bounds]}
        return {"empirical_epsilon": {"from_sensitivity": None} | epsilons | json_of(bounds) | every}


def measure_empirical(run: FinishedRun, findings: Findings) -> EmpiricalEpsilonFinding | None:
    """Return the empirical epsilons and lower bounds of a run; None without a guarantee, verdict or insider."""
    guarantee = run.plan.guarantee
    verdict = findings.find(VerdictFinding)
    if guarantee is None or verdict is None or verdict.judgement is None or not run.has_insider:
        return None
    confidence = run.plan.confidence
    wins = int(run.tables.trials["won"].sum())
    bounds = tuple[LowerBound, ...]()
    is_exact = run.plan.federation.mechanism.knows_llr
    is_normal = run.has_normal_final_distribution
    from_sensitivity = estimates.sensitivity_interval(run.accounted_signal, guarantee.claim) if is_exact else None
    from_belief = estimates.belief_interval(run.llr_of_used_set, confidence, guarantee.mu if is_normal else None)
    from_advantage = estimates.advantage_interval(wins, run.trials, guarantee.delta, confidence)
    if run.has_both_bits:
        scores = run.log_odds[run.bits], run.log_odds[~run.bits]
        mechanism = ScoreDistribution.NORMAL_EQUAL_SPREAD if is_normal else ScoreDistribution.ANY
        bounds = all_bounds(*scores, guarantee.delta, confidence, mechanism)
    return EmpiricalEpsilonFinding(from_sensitivity, from_belief, from_advantage, verdict.judgement, bounds)


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


def _noise_of_the_equation(contents: ReportContents) -> str:
    """Return a phrase on the noise that Eq. (6) of Bernau et al. 2021 describes."""
    distribution = contents.noise.distribution
    if distribution is NoiseDistribution.GAUSSIAN:
        return "of noise calibrated by the classic formula only"
    return f"which describes the noise of the paper and not {distribution} noise"


def _rows(finding: EmpiricalEpsilonFinding, contents: ReportContents) -> list[ReportNumber]:
    guarantee = contents.guarantee
    decisive = finding.decisive
    delta = at_delta(guarantee.delta)
    level = decisive.level
    by = f"{_method(decisive, contents.words)}{delta}. {decisive.assumption}"
    # This inverts `rho_alpha`. Compared with the guarantee it would refute noise that is calibrated exactly.
    advantage = f"section 5.3 (iii): Eq. (6) turned round{delta}, {_noise_of_the_equation(contents)}"

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


def _tables(finding: EmpiricalEpsilonFinding, _: ReportContents) -> list[Table]:
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
    EmpiricalEpsilonFinding,
    measure_empirical,
    keys=("empirical_epsilon",),
    rows=_rows,
    tables=_tables,
)
