"""The files of an audit of other people's code: a self-contained HTML page, and the result as JSON values."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from fl_audit.app_audits.claim_audit.claim import EpsilonDeltaLimit
from fl_audit.app_audits.claim_audit.claim_audit_messages import (
    claim_words,
    floating_words,
    next_step_words,
    refusal_words,
    untried_words,
)
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, DistinguisherTest
from fl_audit.app_audits.claim_audit.trial_results import DistinguisherFinding
from fl_audit.app_audits.local_training.assessment import Assessment
from fl_audit.app_audits.local_training.pitfalls import Severity
from fl_audit.array_types import Flags, Floats
from fl_audit.atomic_files import write_json, write_text
from fl_audit.report.figure_style import BIT_STYLES, INK, MUTED, add_legend, finish_axes, new_figure, to_png
from fl_audit.report.page import (
    folded_html,
    heading_html,
    html_figure,
    html_page,
    joined_html,
    list_html,
    page_table,
    pairs_html,
    paragraph_html,
    strong_html,
)
from fl_audit.verdict.audit_result import AuditResult
from fl_audit.verdict.verdict_messages import verdict_banner
from fl_audit.words import capital, percent

_BINS = 40
_LOAD = (
    "Make what could not be loaded available, such as packages that are missing here; where a claim could not be read, "
    "name it (--claim-noise-multiplier and --set clipping-norm=C). Then review the app again."
)
_NOTICE = (
    "The bounds assume nothing of the mechanism but that trials are independent. They are corrected for the number of "
    "distinguishers and stages that were tried. Readings that assume Gaussian noise are marked: a broken one keeps a "
    "verdict from being consistent, and none makes it violated."
)


def write_result(
    result: AuditResult,
    directory: Path,
    subtitle: str,
    step: str,
    opening: str = "",
    banner: str = "",
    details: str = "",
    is_listed: bool = True,
) -> Path:
    """Write the page `report.html` and `summary.json` on an audit, and return the path of the page.

    Parameters
    ----------
    result
        The result of the audit.
    directory
        Directory for both files, new or not.
    subtitle
        Line below the heading of the page.
    step
        Advice for the next step.
    opening
        Sentences below the banner.
    banner
        Line of the banner; the headline of the result if empty.
    details
        HTML below the findings of the first screen.
    is_listed
        Whether the findings of the first screen are listed; False where `details` shows them.
    """
    # The warning has a box of its own on the page.
    lines = [(about, text) for about, text in result.lines if text != f"{result.warning}."]
    body = f"{_listed(lines)}\n{details}" if is_listed else details
    page = html_page(
        title=f"{result.name}: {result.verdict}",
        heading=result.name,
        subtitle=subtitle,
        opening=opening,
        body=body,
        banner=verdict_banner(result.verdict, banner or result.headline),
        step=step,
        warning=result.warning,
    )
    write_json(directory / "summary.json", result.to_json())
    path = directory / "report.html"
    write_text(path, page)
    return path


def write_strategy_page(
    result: AuditResult, audit: ClaimAudit, findings: Sequence[DistinguisherFinding], directory: Path
) -> Path:
    """Write the files of the audit of a strategy, with a figure for each finding, and return the path of the page."""
    return write_result(
        result,
        directory,
        subtitle=f"Claim: {audit.claim.words} · {audit.pilots:,} trials looked for distinguishers",
        step=_next(audit, findings),
        opening=_opening(audit, findings),
        banner=capital(claim_words(audit)),
        details=joined_html(_details(audit, findings), paragraph_html(_NOTICE)),
        is_listed=False,
    )


def write_app_page(
    result: AuditResult,
    audits: Sequence[tuple[ClaimAudit, Sequence[DistinguisherFinding]]],
    is_loaded: bool,
    directory: Path,
) -> Path:
    """Write the files of the review of an app, whose trials are shown in detail, and return the path of the page.

    `is_loaded`: whether every part of the app could be loaded and read.
    """
    first, findings = audits[0]
    # What is released beside the model may break a claim that the model keeps.
    deciding = next((audited for audited in audits if audited[0].verdict is result.verdict), audits[0])
    details = "\n".join(_details(audit, findings) for audit, findings in audits)
    # The verdict differs from that of the trials if the claim covers more than was played, or if a part was not loaded.
    is_of_trials = (
        first.verdict is result.verdict and is_loaded and result.headline.startswith(f"{capital(str(result.verdict))}:")
    )
    # Where another sentence leads, the headline has said what the opening would say.
    is_opened = first.verdict is result.verdict and is_loaded
    return write_result(
        result,
        directory,
        subtitle="A Flower app, as it is",
        step=_next(*deciding) if is_loaded else _LOAD,
        opening=_opening(first, findings) if is_opened else "",
        banner=capital(claim_words(first)) if is_of_trials else "",
        details=joined_html(folded_html("Every trial that was followed", details), paragraph_html(_NOTICE)),
    )


def write_training_page(result: AuditResult, assessment: Assessment, directory: Path) -> Path:
    """Write the files of the audit of a private training, and return the path of the page."""
    broken = [pitfall for pitfall in assessment.pitfalls if pitfall.weight is Severity.BREAKS]
    usual = "Run it with the data and the configuration that you will train with."
    step = broken[0].fix if broken else usual
    return write_result(result, directory, subtitle="Private training, as it ran", step=step)


def _listed(lines: Iterable[tuple[str, str]]) -> str:
    return pairs_html((strong_html(subject, ""), text) for subject, text in lines)


def _details(claim_audit: ClaimAudit, findings: Sequence[DistinguisherFinding]) -> str:
    refused = list_html(refusal_words(claim_audit.refusals))
    refusals = (heading_html("What the mechanism would not play"), refused) if refused else ()
    return joined_html(_table(findings), *(_section(claim_audit, finding) for finding in findings), *refusals)


def _opening(claim_audit: ClaimAudit, findings: Sequence[DistinguisherFinding]) -> str:
    """Return sentences on the cause of a broken claim, on untried scenarios, and on floating-point leaks."""
    causes = [finding.cause for finding in findings[:1] if finding.test.refutes_claim]
    return " ".join(phrase for phrase in (*causes, untried_words(claim_audit), floating_words(claim_audit)) if phrase)


def _next(claim_audit: ClaimAudit, findings: Sequence[DistinguisherFinding]) -> str:
    """Return advice for the next step, in one or a few sentences: a fix if a test refutes the claim."""
    broken = [finding for finding in findings if finding.test.refutes_claim]
    if broken:
        return f"Do not deploy it as it is. Usual fix: {broken[0].fix} Then try again."
    return next_step_words(claim_audit)


def _table(findings: Sequence[DistinguisherFinding]) -> str:
    if not findings:
        return paragraph_html("No trial could be played.")
    rows = []
    for finding in findings:
        test = finding.test
        right = percent(test.right / test.trials)
        rows.append(
            (
                test.distinguisher.kind,
                test.distinguisher.group,
                finding.shown,
                finding.allowed,
                right,
                f"{test.trials:,}",
            )
        )
    return page_table(
        ("scenario", "what was looked at", "shown", "claimed", "guessed right", "trials"), rows, numbers=(4, 5)
    )


def _section(claim_audit: ClaimAudit, finding: DistinguisherFinding) -> str:
    test, figure = finding.test, new_figure(4.0)
    # Scores under D and D', and their trade-off with what the claim allows.
    score_axes, tradeoff_axes = figure.subplots(1, 2)
    _draw_scores(score_axes, test)
    draw_tradeoff(tradeoff_axes, claim_audit.claim.limits, test.scores, test.present)
    is_open = "leaves the claim open" if test.is_broken else "does not contradict the claim"
    outcome = "breaks the claim" if test.refutes_claim else is_open
    phrases = [
        heading_html(f"{test.distinguisher.kind.capitalize()}: {outcome}"),
        paragraph_html(finding.cause) if test.refutes_claim else "",
        paragraph_html(capital(f"{finding.scenario.words}: {finding.sentence}")),
        html_figure(
            to_png(figure),
            f"Scores under D and D' and their trade-off, trial: {test.distinguisher.kind}",
            f"{test.trials:,} fresh trials of the kind '{test.distinguisher.kind}': {finding.scenario.words}.",
        ),
        paragraph_html("What differs most in the transcript:") if test.lines else "",
        list_html(test.lines),
        paragraph_html(test.noise.words) if test.noise else "",
        paragraph_html(f"Usual fix: {finding.fix}") if test.refutes_claim else "",
    ]
    return joined_html(*phrases)


def _draw_scores(axes: Axes, test: DistinguisherTest) -> None:
    # A score has no unit: it is shown in spreads of all scores, from where the guess changes.
    entries = (test.scores - test.distinguisher.threshold) / max(float(test.scores.std()), 1e-300)
    low, high = np.quantile(entries, [0.001, 0.999])
    pad = max(float(high - low), 1e-9) * 0.05
    edges = np.linspace(low - pad, high + pad, _BINS + 1)
    for bit in (1, 0):
        style = BIT_STYLES[bit]
        values = np.clip(entries[test.present == bool(bit)], edges[0], edges[-1])
        heights, _ = np.histogram(values, edges)
        axes.stairs(heights, edges, fill=True, color=style.fill, alpha=0.6, hatch=style.hatch)
        axes.stairs(heights, edges, color=style.colour, linestyle=style.line, linewidth=1.6, label="D" if bit else "D'")
    axes.axvline(0, color=INK, linewidth=1, linestyle=":")
    axes.legend(frameon=False, fontsize=9)
    finish_axes(axes, "Scores of fresh trials", "Score, in spreads (right of the line: guess D)", "Trials")


def draw_tradeoff(
    axes: Axes,
    limits: Sequence[EpsilonDeltaLimit],
    scores: Floats,
    present: Flags,
    names: tuple[str, str] = ("False alarms: share of D' taken for D", "Share of D found"),
) -> None:
    """Draw the measured trade-off of a score, with the most that a claim allows and with guessing.

    Parameters
    ----------
    axes
        Where it is drawn.
    limits
        Inequalities that the claim implies; empty if nothing is claimed.
    scores
        Scores, higher where the target seems present, shape (n,).
    present
        Whether the target was present, shape (n,).
    names
        Names of the two axes.
    """
    ones, zeros = (np.sort(scores[chosen]) for chosen in (present, ~present))
    thresholds = np.unique(scores)[::-1]
    powers = 1 - np.searchsorted(ones, thresholds, side="left") / ones.size
    alarms = 1 - np.searchsorted(zeros, thresholds, side="left") / zeros.size
    floor = 0.5 / zeros.size
    axes.step(np.maximum(alarms, floor), powers, where="post", color=INK, linewidth=1.8, label="measured")
    rates = np.geomspace(floor, 1, 200)
    if limits:
        allowed = np.min([np.exp(limit.epsilon) * rates + limit.delta for limit in limits], axis=0)
        axes.plot(
            rates, np.minimum(allowed, 1), color=MUTED, linestyle="--", linewidth=1.6, label="most that is claimed"
        )
    axes.plot(rates, rates, color=MUTED, linestyle=":", linewidth=1, label="guessing")
    axes.set_xscale("log")
    axes.set_xlim(floor, 1)
    axes.set_ylim(0, 1.02)
    finish_axes(axes, "Trade-off", *names)
    add_legend(axes, columns=2)
