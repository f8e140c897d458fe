"""Findings on epsilon: the empirical epsilons of Bernau et al. 2021, and lower bounds by every method that applies."""

from dataclasses import dataclass
from typing import Any

from fl_audit.audits.identifiability import bernau_empirical_epsilons as estimates
from fl_audit.audits.identifiability.bernau_empirical_epsilons import EmpiricalEpsilonEstimate
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.statistics.lower_bound_methods import ScoreDistribution
from fl_audit.statistics.lower_bounds import LowerBound, all_bounds, bound_json
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import VerdictDetails


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
    estimate = estimates.sensitivity_interval(run.accounted_signal, guarantee.claim) if is_exact else None
    believed = estimates.belief_interval(run.llr_of_used_set, confidence, guarantee.mu if is_normal else None)
    counted = estimates.advantage_interval(wins, run.trials, guarantee.delta, confidence)
    if run.has_both_bits:
        scores = run.log_odds[run.bits], run.log_odds[~run.bits]
        mechanism = ScoreDistribution.NORMAL_EQUAL_SPREAD if is_normal else ScoreDistribution.ANY
        bounds = all_bounds(*scores, guarantee.delta, confidence, mechanism)
    return EmpiricalEpsilonFinding(estimate, believed, counted, verdict.judgement, bounds)
