"""The result and the page of the audit of one released model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from fl_audit.app_audits.model_release.release_audit import FALSE_ALARMS, ReleaseFinding
from fl_audit.app_audits.page import draw_tradeoff, write_result
from fl_audit.array_types import Floats
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES
from fl_audit.report.figure_style import new_figure, to_png
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.report.page import heading_html, html_figure, joined_html, list_html, page_table
from fl_audit.report.template_files import template_texts
from fl_audit.runs.site_policy import RuleAnswer, answers_json
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope
from fl_audit.words import capital, interval_text, number_text, percent, plural

_MADE = ("lower bound", "Epsilon*", "loss attack")
_NOT_MADE = {
    "attacks with reference models": "losses under one model are all that was given",
    "training": "only its result was looked at: fl-audit training, strategy or run look at the noise itself",
}
_UNSEEN = (
    "attacks that know more than a loss, such as gradients, earlier models or reference models",
    "whether the losses are those of this model, and the members those of its training",
)
_MOST_LISTED = 20
_CHANCE = 0.05


def release_result(name: str, finding: ReleaseFinding) -> AuditResult:
    """Return the result of the audit of one released model."""
    claim = finding.claim
    texts = _texts(finding)
    guarantee = warning = None
    if claim is not None and claim.epsilon is not None:
        neighbours = claim.neighbours
        values = {"epsilon": claim.epsilon, "delta": claim.delta, "adjacency": str(neighbours)}
        guarantee = dict.fromkeys(GUARANTEE_NAMES) | values | {"unit": str(neighbours.unit)}
        warning = weak_claim_warning(claim.epsilon, claim.delta, neighbours)
    return AuditResult(
        kind=AuditedKind.MODEL,
        name=name,
        verdict=finding.verdict,
        headline=texts["headline"],
        lines=tuple(_lines(finding, texts)),
        guarantee=guarantee,
        scope=AuditScope(made=_MADE, not_made=_NOT_MADE, unseen=_UNSEEN),
        warning=warning,
        numbers=finding.to_json(),
    )


def with_ceilings(result: AuditResult, answers: Sequence[RuleAnswer]) -> AuditResult:
    """Return a result with its standing to the ceilings of a site's policy, a line for each."""
    failed = [answer for answer in answers if not answer.is_passed]
    summary = f"{plural(len(answers), 'rule')} asked, {len(failed)} not met" if answers else "the policy has none"
    lines = [(f"Ceiling {answer.rule}", f"{answer.standing}: {answer.text}") for answer in answers]
    stored = {"ceilings": answers_json({"ceilings": tuple(answers)})["ceilings"]}
    return replace(result, lines=(*result.lines, ("Ceilings", summary), *lines), numbers=dict(result.numbers) | stored)


def write_release_page(
    result: AuditResult, finding: ReleaseFinding, member_losses: Floats, other_losses: Floats, directory: Path
) -> Path:
    """Write the files of the audit of one released model, and return the path of the page.

    Its figure shows rates and no loss.
    """
    figure = new_figure(4.0)
    _draw(figure.subplots(), finding, member_losses, other_losses)
    texts = _texts(finding)
    rows = [
        (
            str(bound.method),
            number_text(bound.epsilon),
            percent(bound.confidence),
            number_text(bound.limit_of_detection),
        )
        for bound in (*finding.bounds, finding.certain)
    ]
    table = page_table(("lower bound", "epsilon at least", "confidence", "limit"), rows, numbers=(1, 2, 3))
    details = joined_html(
        table,
        html_figure(to_png(figure), texts["caption"], texts["caption"]),
        heading_html("What was not looked at"),
        list_html(result.scope.unseen),
    )
    return write_result(
        result,
        directory,
        subtitle=f"A released model: {finding.model.file}, {plural(finding.model.parameters, 'parameter')}",
        step=texts["next"],
        banner=capital(result.headline.removeprefix(f"{capital(str(result.verdict))}: ")),
        details=details,
    )


def _lines(finding: ReleaseFinding, texts: Mapping[str, str]) -> list[tuple[str, str]]:
    star = finding.star
    model = finding.model
    sizes = f"{plural(model.tensors, 'tensor')}, {plural(model.parameters, 'parameter')}"
    prefix = "at least " if star.is_lower_bound else ""
    interval = f"{star.cut_name} ({star.interval_name} {interval_text(*star.interval)})"
    lines = [
        ("Model", f"{model.file}, {sizes}, SHA-256 {model.sha256}"),
        ("Losses", f"of {plural(finding.members, 'member')} and of {plural(finding.nonmembers, 'other record')}"),
        ("Claimed", texts["claimed"]),
        ("Lower bound", texts["bound"]),
        ("Its assumption", texts["assumption"]),
        (f"Epsilon* ({star.method})", f"{prefix}{number_text(star.epsilon_star, 3)}, over {interval}"),
        ("Its fit", texts["fit"]),
        ("Loss attack", texts["attack"]),
        ("Records that stand out", texts["outstanding"]),
    ]
    return lines + [("Note", text) for text in star.warnings]


def _texts(finding: ReleaseFinding) -> dict[str, str]:
    """Return the sentences on a released model, by name."""
    outstanding = finding.outstanding
    return template_texts(
        "model_release.md",
        finding=finding,
        verdict=str(finding.verdict),
        bound=finding.certain if finding.contradicts else finding.bounds[0],
        first_bound=finding.bounds[0],
        outstanding=outstanding,
        false_alarms=FALSE_ALARMS,
        is_by_chance=outstanding.p_value > _CHANCE,
        listed=", ".join(map(str, outstanding.indices[:_MOST_LISTED])),
        unlisted=len(outstanding.indices) - _MOST_LISTED,
    )


def _draw(axes: Axes, finding: ReleaseFinding, member_losses: Floats, other_losses: Floats) -> None:
    scores = -np.concatenate([member_losses, other_losses])
    is_member = np.arange(scores.size) < member_losses.size
    limits = () if finding.claim is None else finding.claim.limits
    draw_tradeoff(
        axes, limits, scores, is_member, ("share of other records taken for members", "share of members found")
    )
