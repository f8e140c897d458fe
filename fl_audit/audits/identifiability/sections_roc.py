"""Report sections on the insider's ROC curve: the AUC of its scores, and its TPRs at small FPRs."""

import math
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from fl_audit.array_types import finite
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.audits.identifiability import findings_roc as evidence
from fl_audit.audits.membership.attack_limits import largest_tpr
from fl_audit.report.figure_style import BIT_STYLES, LIMIT, MUTED, PALE, draw_band, finish_axes
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.words import interval_text, percent

_NO_RATIO = (
    "The score is no likelihood ratio, so that a small number is no sign of safety: a cleverer insider may find more"
)


def _scores_sentence(finding: evidence.ScoreAucFinding, _: ReportContents) -> str:
    area = finding.area
    ends = interval_text(area.low, area.high, is_share=True)
    return (
        "We put an insider to the test: a participant who already knows everything except that one answer. It sees "
        "only averages of models that every participant had protected by itself, so it cannot say how sure it is; it "
        "can only give each trial a score. Of a trial with the record and one without, the former had the higher score "
        f"in {percent(area.value)} of cases, where coin-flipping has 50 % ({ends} "
        f"at {percent(area.confidence)} confidence). A cleverer insider may do better."
    )


def _scores_rows(finding: evidence.ScoreAucFinding, contents: ReportContents) -> list[ReportNumber]:
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
    evidence.ScoreAucFinding,
    evidence.measure_scores,
    keys=("scores",),
    on_page=True,
    sentence=_scores_sentence,
    rows=_scores_rows,
)


_SMALLEST_RATE = 1e-3
_BAND = "Clopper-Pearson bounds above two ranks of the trials with D'"


def _tradeoff_figure(figure: Figure, _: evidence.TprAtFprFinding, contents: ReportContents) -> None:
    axes = figure.add_subplot()
    guarantee = contents.guarantee
    style = BIT_STYLES[1]
    run = contents.run
    smallest = max(_SMALLEST_RATE, 1 / int((~run.bits).sum()))
    curve = evidence.curve_of(run, np.geomspace(smallest, 1, 60), run.plan.confidence)
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


def _tradeoff_caption(finding: evidence.TprAtFprFinding, contents: ReportContents) -> str:
    _, row = _tradeoff_rows(finding, contents)
    interval = row.shown
    return (
        f"At {percent(finding.false_alarms)} false alarms the insider finds {interval.value} ({interval.interval} at "
        f"{percent(contents.plan.confidence)}); {interval.claim} is allowed{row.comparison_in_brackets}. A kept "
        "guarantee lets nobody into the hatched region, but by chance."
    )


def _tradeoff_rows(finding: evidence.TprAtFprFinding, contents: ReportContents) -> list[ReportNumber]:
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
            wide=partial(evidence.tpr_interval, contents.run, finding.false_alarms),
        ),
    ]


TRADEOFF = Section(
    "tradeoff",
    "The insider's trade-off",
    evidence.TprAtFprFinding,
    evidence.measure_tradeoff,
    keys=("tradeoff",),
    trusts=True,
    rows=_tradeoff_rows,
    picture=FindingFigure("The insider's trade-off", _tradeoff_figure, _tradeoff_caption, height=4.4),
)
