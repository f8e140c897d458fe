"""The files of a black-box audit: a self-contained HTML page with figures of the findings, and its content as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import (
    claim_warning,
    claim_words,
    floating_words,
    refusal_words,
    untried_words,
)
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, DistinguisherTest
from fl_audit.app_audits.claim_audit.findings import DistinguisherFinding, result_json
from fl_audit.app_audits.local_training.assessment import Assessment, headline, report_lines
from fl_audit.app_audits.local_training.pitfalls import Severity
from fl_audit.atomic_files import write_json, write_text
from fl_audit.audits.page.html_building_blocks import html_figure, html_page, page_table
from fl_audit.report.figure_style import BIT_STYLES, INK, MUTED, add_legend, finish_axes, new_figure, to_png
from fl_audit.report.formatting import capital
from fl_audit.verdict.banner import verdict_banner
from fl_audit.verdict.verdict import Verdict

_BINS = 40
_LOAD = (
    "Make what could not be loaded available, such as packages that are missing here; where a claim could not be read, "
    "name it (--claim-noise-multiplier and --set clipping-norm=C). Then review the app again."
)
_NOTICE = (
    "The bounds assume nothing of the mechanism but that trials are independent. They are corrected for the number of "
    "distinguishers and stages that were tried. Readings that assume Gaussian noise are marked, and decide nothing."
)


def write_result(
    result: ClaimAudit,
    found: Sequence[DistinguisherFinding],
    name: str,
    directory: Path,
    played: Mapping[str, Any] | None = None,
) -> Path:
    """Write the page `report.html` and `summary.json` on one audit of a claim, and return the path of the page.

    `played`: Further values for `summary.json`, keyed by name.
    """
    page = html_page(
        title=f"{name}: {result.verdict}",
        heading=name,
        subtitle=f"Claim: {result.claim.words} · {result.pilots} trials looked for distinguishers",
        opening=_opening(result, found),
        body=f"{_details(result, found)}\n<p>{_NOTICE}</p>",
        banner=verdict_banner(result.verdict, capital(claim_words(result))),
        step=_next(result, found),
        warning=claim_warning(result.claim),
    )
    return _written(page, result_json(result, tuple(found)) | dict(played or {}), directory)


def write_page(
    name: str,
    verdict: Verdict,
    headline: str,
    screen: Sequence[tuple[str, str]],
    results: Sequence[tuple[ClaimAudit, Sequence[DistinguisherFinding]]],
    values: Mapping[str, Any],
    directory: Path,
) -> Path:
    """Write the page `report.html` and `summary.json` on the review of an app, and return the path of the page.

    The page begins with a summary of one screen; details follow.
    """
    first, _ = results[0]
    details = "\n".join(_details(result, found) for result, found in results)
    body = f"{_listed(screen)}\n<details><summary>Every trial that was followed</summary>\n{details}\n</details>"
    unseen = bool(values.get("not_loaded"))
    # The verdict differs from that of the trials if the claim covers more than was played, or if a part was not loaded.
    is_of_trials = verdict is first.verdict and not unseen and headline.startswith(f"{capital(str(verdict))}:")
    # Where another sentence leads, the headline has said what the opening would say.
    is_opened = verdict is first.verdict and not unseen and verdict not in (Verdict.NO_GUARANTEE, Verdict.NOT_AUDITED)
    page = html_page(
        title=f"{name}: {verdict}",
        heading=name,
        subtitle="A Flower app, as it is",
        opening=_opening(*results[0]) if is_opened else "",
        body=f"{body}<p>{_NOTICE}</p>",
        banner=verdict_banner(verdict, capital(claim_words(first)) if is_of_trials else headline),
        step=_LOAD if unseen else _next(*results[0]),
    )
    return _written(page, values, directory)


def write_assessment(assessment: Assessment, values: Mapping[str, Any], directory: Path) -> Path:
    """Write the page `report.html` and `summary.json` on an audit of private training, and return the page's path."""
    broken = [one for one in assessment.found if one.weight is Severity.BREAKS]
    page = html_page(
        title=f"{assessment.name}: {assessment.verdict}",
        heading=assessment.name,
        subtitle="Private training, as it ran",
        opening="",
        body=_listed(report_lines(assessment)),
        banner=verdict_banner(assessment.verdict, headline(assessment)),
        step=broken[0].fix if broken else "Run it with the data and the configuration that you will train with.",
    )
    return _written(page, values, directory)


def _listed(screen: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt><strong>{escape(about)}</strong></dt><dd>{escape(said)}</dd>" for about, said in screen)
    return f"<dl>{rows}</dl>"


def _written(page: str, values: Mapping[str, Any], directory: Path) -> Path:
    write_json(directory / "summary.json", values)
    path = directory / "report.html"
    write_text(path, page)
    return path


def _details(result: ClaimAudit, found: Sequence[DistinguisherFinding]) -> str:
    lines = "".join(f"<li>{escape(said)}</li>" for said in refusal_words(result.refusals))
    refusals = [f"<h2>What the mechanism would not play</h2><ul>{lines}</ul>"] if lines else []
    return "\n".join([_table(found), *(_section(result, finding) for finding in found), *refusals])


def _opening(result: ClaimAudit, found: Sequence[DistinguisherFinding]) -> str:
    """Return sentences on the cause of a broken claim, on untried scenarios, and on floating-point leaks."""
    causes = [finding.cause for finding in found[:1] if finding.attempt.is_broken]
    return " ".join(part for part in (*causes, untried_words(result), floating_words(result)) if part)


def _next(result: ClaimAudit, found: Sequence[DistinguisherFinding]) -> str:
    """Return advice for the next step, in one or a few sentences: a fix if a test refutes the claim, or more trials."""
    broken = [finding for finding in found if finding.attempt.is_broken]
    if broken:
        return f"Do not deploy it as it is. Usual fix: {broken[0].fix} Then try again."
    if result.bare_rounds:
        return f"Have trials play the rounds without noise: --rounds {result.bare_rounds[0]}."
    if result.verdict is Verdict.CONSISTENT:
        return "Play more rounds and more trials before you lean on this; then audit a whole run."
    return "Play more trials, or claim less: these could not have told."


def _table(found: Sequence[DistinguisherFinding]) -> str:
    if not found:
        return "<p>No trial could be played.</p>"
    rows = []
    for one in found:
        attempt = one.attempt
        right = f"{attempt.right / attempt.trials:.1%}"
        rows.append(
            (
                attempt.distinguisher.kind,
                attempt.distinguisher.group,
                one.shown,
                one.allowed,
                right,
                str(attempt.trials),
            )
        )
    return page_table(("trial", "what told", "shown", "claimed", "guessed right", "trials"), rows, numbers=(4, 5))


def _section(result: ClaimAudit, finding: DistinguisherFinding) -> str:
    attempt, figure = finding.attempt, new_figure(4.0)
    left, right = figure.subplots(1, 2)  # scores under D and D', and their trade-off with what the claim allows
    _draw_scores(left, attempt)
    _draw_tradeoff(right, result.claim, attempt)
    lines = "".join(f"<li>{escape(line)}</li>" for line in attempt.lines)
    broken = "breaks the claim" if attempt.is_broken else "does not contradict the claim"
    parts = [
        f"<h2>{escape(attempt.distinguisher.kind.capitalize())}: {broken}</h2>",
        f"<p>{escape(finding.cause)}</p>" if attempt.is_broken else "",
        f"<p>{escape(finding.sentence)}</p>",
        html_figure(
            to_png(figure),
            f"Scores under D and D' and their trade-off, trial: {attempt.distinguisher.kind}",
            escape(f"{attempt.trials} fresh trials of the kind '{attempt.distinguisher.kind}': {finding.words}."),
        ),
        f"<p>What differs most in the transcript:</p><ul>{lines}</ul>" if lines else "",
        f"<p>{escape(finding.noise.words)} A broken reading keeps a verdict from being consistent.</p>"
        if finding.noise
        else "",
        f"<p>Usual fix: {escape(finding.fix)}</p>" if attempt.is_broken else "",
    ]
    return "\n".join(part for part in parts if part)


def _draw_scores(axes: Axes, attempt: DistinguisherTest) -> None:
    # A score has no unit: it is shown in spreads of all scores, from where the guess changes.
    shown = (attempt.scores - attempt.distinguisher.threshold) / max(float(attempt.scores.std()), 1e-300)
    low, high = np.quantile(shown, [0.001, 0.999])
    pad = max(float(high - low), 1e-9) * 0.05
    edges = np.linspace(low - pad, high + pad, _BINS + 1)
    for bit in (1, 0):
        style = BIT_STYLES[bit]
        values = np.clip(shown[attempt.present == bool(bit)], edges[0], edges[-1])
        heights, _ = np.histogram(values, edges)
        axes.stairs(heights, edges, fill=True, color=style.fill, alpha=0.6, hatch=style.hatch)
        axes.stairs(heights, edges, color=style.colour, linestyle=style.line, linewidth=1.6, label="D" if bit else "D'")
    axes.axvline(0, color=INK, linewidth=1, linestyle=":")
    axes.legend(frameon=False, fontsize=9)
    finish_axes(axes, "Scores of fresh trials", "score, in spreads (right of the line: guess D)", "trials")


def _draw_tradeoff(axes: Axes, claim: StatedClaim, attempt: DistinguisherTest) -> None:
    one, zero = (np.sort(attempt.scores[chosen]) for chosen in (attempt.present, ~attempt.present))
    thresholds = np.unique(attempt.scores)[::-1]
    found = 1 - np.searchsorted(one, thresholds, side="left") / one.size
    alarms = 1 - np.searchsorted(zero, thresholds, side="left") / zero.size
    floor = 0.5 / zero.size
    axes.step(np.maximum(alarms, floor), found, where="post", color=INK, linewidth=1.8, label="measured")
    rates = np.geomspace(floor, 1, 200)
    allowed = np.min([np.exp(limit.epsilon) * rates + limit.delta for limit in claim.limits], axis=0)
    axes.plot(rates, np.minimum(allowed, 1), color=MUTED, linestyle="--", linewidth=1.6, label="most that is claimed")
    axes.plot(rates, rates, color=MUTED, linestyle=":", linewidth=1, label="guessing")
    axes.set_xscale("log")
    axes.set_xlim(floor, 1)
    axes.set_ylim(0, 1.02)
    finish_axes(axes, "Trade-off", "false alarms: share of D' taken for D", "share of D found")
    add_legend(axes, columns=2)
