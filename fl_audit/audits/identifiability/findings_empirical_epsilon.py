"""Findings on epsilon: the paper's three estimates, lower bounds, bounds from scores, and the measured ROC curve."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.audits.identifiability import empirical_epsilon as estimates
from fl_audit.audits.identifiability.empirical_epsilon import EpsilonInterval
from fl_audit.audits.membership.attack_limits import largest_tpr
from fl_audit.errors import InputError
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.statistics.intervals import Estimate
from fl_audit.statistics.lower_bounds import LowerBound, all_bounds, bound_json, epsilon_lower_bound
from fl_audit.statistics.methods import BoundMethod, ScoreDistribution
from fl_audit.statistics.roc import TradeoffBand, area_under_curve, tradeoff_band
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Judgement


@dataclass(frozen=True)
class EmpiricalFinding:
    """The empirical epsilons and the lower bounds on epsilon of a run."""

    # Estimate by sensitivities, variant (i) of section 5.3 of Bernau et al. 2021, with its interval; None where the
    # insider cannot compute the sensitivities.
    from_sensitivity: EpsilonInterval | None
    from_belief: EpsilonInterval  # estimate by the largest belief, variant (ii), with its interval
    from_advantage: EpsilonInterval  # estimate by the advantage, variant (iii), with its interval
    decisive: Judgement  # the judgement behind the verdict
    bounds: tuple[LowerBound, ...]  # by every method that fits the insider's log-odds; none where a group has no trial

    @property
    def intervals(self) -> dict[str, EpsilonInterval]:
        """The paper's estimates, keyed by their names in `summary.json`."""
        counted = {"from_belief": self.from_belief, "from_advantage": self.from_advantage}
        return counted if self.from_sensitivity is None else {"from_sensitivity": self.from_sensitivity} | counted

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `empirical_epsilon` of `summary.json`."""
        decisive, each = self.decisive, json_of(self.intervals)
        told = {name: interval.pop("epsilon") for name, interval in each.items()}
        bounds = {
            "lower_bound": decisive.epsilon_lower_bound, "confidence": decisive.confidence, "method": decisive.method,
            "assumption": decisive.assumption, "limit_of_detection": decisive.limit_of_detection,
            "lower_bound_at_violation_level": decisive.epsilon_lower_bound_at_level, "violation_level": decisive.level,
        }  # fmt: skip
        every = {"intervals": each, "bounds": [bound_json(bound) for bound in self.bounds]}
        return {"empirical_epsilon": {"from_sensitivity": None} | told | json_of(bounds) | every}


def measure_empirical(run: FinishedRun, findings: Findings) -> EmpiricalFinding | None:
    """Return the empirical epsilons and lower bounds of a run; None without a guarantee or an insider.

    Parameters
    ----------
    run
        A finished run.
    findings
        Earlier findings of the run; the verdict is used.
    """
    guarantee, verdict = run.facts.guarantee, findings.find(VerdictFinding)
    if guarantee is None or verdict is None or verdict.judgement is None or not run.has_insider:
        return None
    confidence, wins, bounds = run.facts.confidence, int(run.tables.trials["won"].sum()), tuple[LowerBound, ...]()
    is_exact, is_normal = run.facts.federation.mechanism.has_exact_llr, run.has_normal_final_distribution
    shown = estimates.sensitivity_interval(run.accounted_signal, guarantee.claim) if is_exact else None
    believed = estimates.belief_interval(run.towards_truth, confidence, guarantee.mu if is_normal else None)
    counted = estimates.advantage_interval(wins, run.trials, guarantee.delta, confidence)
    if run.has_both_bits:
        scores = run.log_odds[run.bits], run.log_odds[~run.bits]
        mechanism = ScoreDistribution.NORMAL_EQUAL_SPREAD if is_normal else ScoreDistribution.ANY
        bounds = all_bounds(*scores, guarantee.delta, confidence, mechanism)
    return EmpiricalFinding(shown, believed, counted, verdict.judgement, bounds)


@dataclass(frozen=True)
class ScoreFinding:
    """The AUC of an insider's scores that are no likelihood ratio, and the lower bound on epsilon from them."""

    members: int  # number of trials in which the record was in
    nonmembers: int  # number of trials in which it was not
    area: Estimate  # how well the scores separate them
    bound: LowerBound  # the epsilon that they prove, without any assumption about their distribution
    # Area of every insider's scores, by client, where several attack; empty where one does.
    of_each: Mapping[int, Estimate] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `scores` of `summary.json`."""
        each = {client: area.value for client, area in self.of_each.items()}
        area = {"area": self.area.value, "low": self.area.low, "high": self.area.high}
        told = {"lower_bound": bound_json(self.bound), "is_likelihood_ratio": False, "area_of_each": json_of(each)}
        told |= {"trials": self.members + self.nonmembers, "confidence": self.area.confidence}
        return {"scores": area | told}


def measure_scores(run: FinishedRun, _: Findings) -> ScoreFinding | None:
    """Return AUC and lower bound from scores of unknown distribution; None if the insider has no such scores."""
    guarantee, scores = run.facts.guarantee, run.insider_scores
    if guarantee is None or scores is None or not run.has_both_bits:
        return None
    members, others = scores[run.bits], scores[~run.bits]
    confidence = run.facts.confidence
    area, each = area_under_curve(members, others, confidence), _of_each(run)
    bound = epsilon_lower_bound(members, others, guarantee.delta, confidence, BoundMethod.ORDER_STATISTIC)
    return ScoreFinding(len(members), len(others), area, bound, each)


def _of_each(run: FinishedRun) -> dict[int, Estimate]:
    if (table := run.tables.insiders) is None:
        return {}
    by_client = table.pivot(index="trial", columns="insider", values="score").loc[run.tables.trials["trial"]]
    scores = {int(str(client)): column.to_numpy(dtype=np.float64) for client, column in by_client.items()}
    return {
        client: area_under_curve(found[run.bits], found[~run.bits], run.facts.confidence)
        for client, found in scores.items()
    }


FEWEST = 20  # a curve of fewer trials of either kind has steps too large to say anything
_AT = 0.1  # share of false alarms at which numbers are told


@dataclass(frozen=True)
class TradeoffFinding:
    """The TPR of the insider at one FPR, with its confidence interval and the largest TPR under the guarantee."""

    false_alarms: float  # share of the trials with D' that is taken for D
    found: float  # share of the trials with D that is found at it
    low: float  # lower end of its interval
    high: float  # upper end
    allowed: float  # the largest share that the guarantee allows

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `tradeoff` of `summary.json`."""
        return {"tradeoff": json_of(self)}


def measure_tradeoff(run: FinishedRun, _: Findings) -> TradeoffFinding | None:
    """Return the TPR of the insider at one FPR; None without a guarantee or insider, or with too few trials."""
    guarantee = run.facts.guarantee
    if guarantee is None or not run.has_insider or min(run.bits.sum(), (~run.bits).sum()) < FEWEST:
        return None
    try:
        allowed = float(largest_tpr(guarantee.claim.profile, _AT))
    except InputError:  # so little noise that no grid holds the losses
        return None
    curve = curve_of(run, np.array([_AT]))
    return TradeoffFinding(_AT, float(curve.found[0]), float(curve.low[0]), float(curve.high[0]), allowed)


def curve_of(run: FinishedRun, alarms: Floats) -> TradeoffBand:
    """Return the ROC curve of the insider with its confidence band at the given FPRs, each of shape (points,).

    Parameters
    ----------
    run
        A finished run with an insider.
    alarms
        False-positive rates, i.e. shares of the trials with D', from 0 to 1, shape (points,).
    """
    return tradeoff_band(run.log_odds[run.bits], run.log_odds[~run.bits], alarms, run.facts.confidence)


def found_at(run: FinishedRun, alarms: float, confidence: float) -> tuple[float, float]:
    """Return the confidence interval of the insider's TPR at one FPR.

    Parameters
    ----------
    run
        A finished run with an insider.
    alarms
        A false-positive rate, from 0 to 1.
    confidence
        Confidence of the interval, above 0 and below 1.
    """
    band = tradeoff_band(run.log_odds[run.bits], run.log_odds[~run.bits], np.array([alarms]), confidence)
    return float(band.low[0]), float(band.high[0])
