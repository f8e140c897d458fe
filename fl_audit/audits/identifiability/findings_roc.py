"""Findings on the insider's ROC curve: the AUC of its scores with a lower bound on epsilon, and its TPR at one FPR."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.audits.membership.attack_limits import largest_tpr
from fl_audit.errors import InputError
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.statistics.interval_estimates import EstimateWithConfidence
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound, bound_json, epsilon_lower_bound
from fl_audit.statistics.roc import TradeoffBand, area_under_curve, tradeoff_band


@dataclass(frozen=True)
class ScoreAucFinding:
    """The AUC of an insider's scores, which are not likelihood ratios, and a lower bound on epsilon from the scores."""

    members: int  # number of trials with D, in which the differing unit was in
    nonmembers: int  # number of trials with D'
    area: EstimateWithConfidence  # AUC of the scores for D against D'
    bound: LowerBound  # lower bound on epsilon, valid for any distribution of the scores

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `scores`, for `summary.json`."""
        area = {"area": self.area.value, "low": self.area.low, "high": self.area.high}
        values = {"lower_bound": bound_json(self.bound), "is_likelihood_ratio": False}
        values |= {"trials": self.members + self.nonmembers, "confidence": self.area.confidence}
        return {"scores": area | values}


def measure_scores(run: FinishedRun, _: Findings) -> ScoreAucFinding | None:
    """Return the AUC and the lower bound from an insider's scores that are not likelihood ratios.

    None if the run has no such scores or no guarantee, or if all its trials used D or all used D'.
    """
    guarantee = run.plan.guarantee
    scores = run.insider_scores
    if guarantee is None or scores is None or not run.has_both_bits:
        return None
    members = scores[run.bits]
    nonmembers = scores[~run.bits]
    confidence = run.plan.confidence
    area = area_under_curve(members, nonmembers, confidence)
    bound = epsilon_lower_bound(members, nonmembers, guarantee.delta, confidence, BoundMethod.ORDER_STATISTIC)
    return ScoreAucFinding(len(members), len(nonmembers), area, bound)


FEWEST = 20  # smallest number of trials with D, and also with D', from which a ROC curve is shown
_AT = 0.1  # the FPR of `TprAtFprFinding`


@dataclass(frozen=True)
class TprAtFprFinding:
    """The insider's TPR at one FPR, with its confidence interval and the largest TPR that the guarantee allows.

    A positive is a trial for which the insider guesses D.
    """

    false_alarms: float  # the FPR: share of the trials with D' that are taken for D
    found: float  # the TPR: share of the trials with D that are taken for D
    low: float  # lower end of the confidence interval of the TPR
    high: float  # upper end of the confidence interval of the TPR
    allowed: float  # largest TPR at this FPR that the guarantee allows

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `tradeoff`, for `summary.json`."""
        return {"tradeoff": json_of(self)}


def measure_tradeoff(run: FinishedRun, _: Findings) -> TprAtFprFinding | None:
    """Return the insider's TPR at FPR 0.1; None without a guarantee or an insider.

    Also None with fewer than 20 trials with D or with D', or if the TPR that the guarantee allows cannot be computed.
    """
    guarantee = run.plan.guarantee
    if guarantee is None or not run.has_insider or min(run.bits.sum(), (~run.bits).sum()) < FEWEST:
        return None
    try:
        allowed = float(largest_tpr(guarantee.claim.profile, _AT))
    except InputError:  # the noise is too small for a grid of losses
        return None
    curve = curve_of(run, np.array([_AT]), run.plan.confidence)
    return TprAtFprFinding(_AT, float(curve.rates[0]), float(curve.low[0]), float(curve.high[0]), allowed)


def curve_of(run: FinishedRun, fprs: Floats, confidence: float) -> TradeoffBand:
    """Return the insider's TPRs at the given FPRs, with a pointwise confidence band, each of shape (points,).

    Shapes: `fprs` (points,).
    """
    return tradeoff_band(run.log_odds[run.bits], run.log_odds[~run.bits], fprs, confidence)


def tpr_interval(run: FinishedRun, fpr: float, confidence: float) -> tuple[float, float]:
    """Return the two ends of a confidence interval for the insider's TPR at one FPR."""
    band = curve_of(run, np.array([fpr]), confidence)
    return float(band.low[0]), float(band.high[0])
