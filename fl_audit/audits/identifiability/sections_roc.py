"""Findings and report sections on the insider's ROC curve: the AUC of its scores, and its TPRs at small FPRs."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fl_audit.array_types import Floats, finite
from fl_audit.audits.membership.attack_limits import largest_tpr
from fl_audit.errors import InputError
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.figure_style import BIT_STYLES, LIMIT, MUTED, PALE, draw_band, finish_axes
from fl_audit.report.mechanism_messages import at_delta
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.statistics.interval_estimates import EstimateWithConfidence
from fl_audit.statistics.lower_bound_methods import BoundMethod
from fl_audit.statistics.lower_bounds import LowerBound, bound_json, epsilon_lower_bound
from fl_audit.statistics.roc import TradeoffBand, area_under_curve, tradeoff_band
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.words import interval_text, percent


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


_NO_RATIO = (
    "The score is no likelihood ratio, so that a small number is no sign of safety: a cleverer insider may find more"
)


def _scores_sentence(finding: ScoreAucFinding, _: ReportContents) -> str:
    area = finding.area
    ends = interval_text(area.low, area.high, is_share=True)
    return (
        "We put an insider to the test: a participant who already knows everything except that one answer. It sees "
        "only averages of models that every participant had protected by itself, so it cannot say how sure it is; it "
        "can only give each trial a score. Of a trial with the record and one without, the former had the higher score "
        f"in {percent(area.value)} of cases, where coin-flipping has 50 % ({ends} "
        f"at {percent(area.confidence)} confidence). A cleverer insider may do better."
    )


def _scores_rows(finding: ScoreAucFinding, contents: ReportContents) -> list[ReportNumber]:
    area = finding.area
    bound = finding.bound
    guarantee = contents.guarantee
    basis_text = f"share of pairs of trials that the score puts in order (interval: Hoeffding 1963). {_NO_RATIO}"
    return [
        ReportNumber("Trials with the record", finding.members, "counted"),
        ReportNumber("Trials without the record", finding.nonmembers, "counted"),
        ReportNumber("AUC of the scores", area.value, basis_text, area.low, area.high, area.confidence, on_page=True),
        ReportNumber(
            "Lower bound from the scores (nats)",
            finite(bound.epsilon),
            f"holds at {percent(bound.confidence)} confidence; {bound.method}{at_delta(guarantee.delta)}; "
            f"{bound.assumption} {_NO_RATIO}",
            limit=guarantee.epsilon,
            is_bound=True,
            level=TestName.SCORES.level,
            wide=lambda _: (verdict_of(contents).judged.epsilon_lower_bound_at_level, math.inf),
            on_page=True,
        ),
        ReportNumber(
            "Largest bound that so many scores could prove (nats)",
            finite(bound.limit_of_detection),
            f"{bound.method}; {bound.limit_meaning}",
        ),
    ]


SCORES = Section(
    "scores",
    "Scores of the insider",
    ScoreAucFinding,
    measure_scores,
    keys=("scores",),
    on_page=True,
    sentence=_scores_sentence,
    rows=_scores_rows,
)


_SMALLEST_RATE = 1e-3
_BAND = "Clopper-Pearson bounds above two ranks of the trials with D'"


def _tradeoff_figure(figure: Figure, _: TprAtFprFinding, contents: ReportContents) -> None:
    axes = figure.add_subplot()
    guarantee = contents.guarantee
    style = BIT_STYLES[1]
    run = contents.run
    smallest = max(_SMALLEST_RATE, 1 / int((~run.bits).sum()))
    curve = curve_of(run, np.geomspace(smallest, 1, 60), run.plan.confidence)
    draw_band(
        axes,
        curve.alarms,
        np.maximum(curve.low, _SMALLEST_RATE),
        curve.high,
        facecolor=PALE,
        linewidth=0.8,
        edgecolor=style.colour,
        label=f"its {percent(run.plan.confidence)} band, point by point",
    )
    axes.plot(
        curve.alarms,
        np.maximum(curve.rates, _SMALLEST_RATE),
        "-",
        color=style.colour,
        linewidth=2.2,
        label="the insider, measured",
    )
    rates = np.geomspace(_SMALLEST_RATE, 1, 60)
    allowed = largest_tpr(guarantee.claim.profile, rates)
    axes.plot(rates, allowed, label="most that is claimed", **LIMIT)
    axes.fill_between(rates, allowed, 1.0, facecolor="none", edgecolor=MUTED, hatch="//", linewidth=0)
    axes.plot(rates, rates, ":", color=MUTED, linewidth=1.4, label="coin-flipping")
    axes.set(xscale="log", yscale="log", xlim=(_SMALLEST_RATE, 1), ylim=(_SMALLEST_RATE, 1.05))
    finish_axes(
        axes,
        "What the insider finds, at how many false alarms",
        "False alarms: share of D' taken for D",
        "Share of D found",
    )


def _tradeoff_caption(finding: TprAtFprFinding, contents: ReportContents) -> str:
    _, row = _tradeoff_rows(finding, contents)
    interval = row.shown
    return (
        f"At {percent(finding.false_alarms)} false alarms the insider finds {interval.value} ({interval.interval} at "
        f"{percent(contents.plan.confidence)}); {interval.claim} is allowed{row.comparison_in_brackets}. A kept "
        "guarantee lets nobody into the hatched region, but by chance."
    )


def _tradeoff_rows(finding: TprAtFprFinding, contents: ReportContents) -> list[ReportNumber]:
    where = f"at {percent(finding.false_alarms)} false alarms"
    method = f"trials with D above the threshold {where}, counted; {_BAND}"
    return [
        ReportNumber("False alarms of the trade-off", finding.false_alarms, "chosen before the run", is_share=True),
        ReportNumber(
            f"Share of D found {where}",
            finding.found,
            method,
            finding.low,
            finding.high,
            contents.plan.confidence,
            finding.allowed,
            is_share=True,
            largest=1.0,
            on_page=True,
            wide=partial(tpr_interval, contents.run, finding.false_alarms),
        ),
    ]


TRADEOFF = Section(
    "tradeoff",
    "The insider's trade-off",
    TprAtFprFinding,
    measure_tradeoff,
    keys=("tradeoff",),
    trusts=True,
    rows=_tradeoff_rows,
    picture=FindingFigure("The insider's trade-off", _tradeoff_figure, _tradeoff_caption, height=4.4),
)
