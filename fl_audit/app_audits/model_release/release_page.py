"""The result and the page of the audit of one released model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from fl_audit.app_audits.model_release.release_audit import FALSE_ALARMS, Bound, ReleaseFinding
from fl_audit.app_audits.page import draw_tradeoff, write_result
from fl_audit.array_types import Floats
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES
from fl_audit.released_model.star_estimate import StarEstimate
from fl_audit.released_model.star_methods import StarMethod
from fl_audit.report.figure_style import new_figure, to_png
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.report.page import heading_html, html_figure, joined_html, list_html, page_table
from fl_audit.runs.site_policy import RuleAnswer, answers_json
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope
from fl_audit.verdict.verdict import Verdict
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
        headline=_headline(finding),
        lines=tuple(_lines(finding)),
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
    caption = "Share of members that a loss threshold finds, by the share of other records that it takes for members."
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
        html_figure(to_png(figure), caption, caption),
        heading_html("What was not looked at"),
        list_html(result.scope.unseen),
    )
    return write_result(
        result,
        directory,
        subtitle=f"A released model: {finding.model.file}, {plural(finding.model.parameters, 'parameter')}",
        step=_next(finding),
        banner=capital(result.headline.removeprefix(f"{capital(str(result.verdict))}: ")),
        details=details,
    )


def _headline(finding: ReleaseFinding) -> str:
    verdict = capital(str(finding.verdict))
    claim = finding.claim
    bound = finding.certain if finding.contradicts else finding.bounds[0]
    bound_text = f"epsilon {number_text(bound.epsilon, 3)} at least at delta {finding.delta:g}"
    sure = f"{percent(bound.confidence)} confidence"
    if claim is None:
        return f"{verdict}: nothing is claimed, and the losses of this model show {bound_text} ({sure})."
    claimed = f"epsilon {claim.epsilon:g}"
    if finding.verdict is Verdict.VIOLATED:
        return f"{verdict}: the losses of this model prove {bound_text} ({sure}), and {claimed} is claimed."
    if finding.contradicts:
        return (
            f"{verdict}: the losses of this model show {bound_text} ({sure}), and {claimed} is claimed. They "
            "refute the "
            "claim if members and other records are alike in all else, and their losses independent."
        )
    return (
        f"{verdict}: the losses of this model show {bound_text} ({sure}), which does not contradict the claimed "
        f"{claimed}. "
        "Losses of one model can refute a claim, and cannot confirm it."
    )


def _lines(finding: ReleaseFinding) -> list[tuple[str, str]]:
    star = finding.star
    attacks = finding.star.attacks
    model = finding.model
    sizes = f"{plural(model.tensors, 'tensor')}, {plural(model.parameters, 'parameter')}"
    prefix = "at least " if star.is_lower_bound else ""
    lines = [
        ("Model", f"{model.file}, {sizes}, SHA-256 {model.sha256}"),
        ("Losses", f"of {plural(finding.members, 'member')} and of {plural(finding.nonmembers, 'other record')}"),
        ("Claimed", _claim_text(finding)),
        ("Lower bound", _bound_text(finding.bounds[0])),
        ("Its assumption", _assumption(finding)),
        (
            f"Epsilon* ({star.method})",
            f"{prefix}{number_text(star.epsilon_star, 3)}, over {star.cut_name} ({star.interval_name} "
            f"{interval_text(*star.interval)})",
        ),
        ("Its fit", _fit_text(star)),
        (
            "Loss attack",
            f"area under the ROC curve {float(attacks.auc):.3f} (0.5 without a leak), advantage "
            f"{float(attacks.yeom_advantage):.3f}",
        ),
        ("Records that stand out", _outstanding_text(finding)),
    ]
    return lines + [("Note", text) for text in star.warnings]


def _claim_text(finding: ReleaseFinding) -> str:
    if (claim := finding.claim) is None:
        return "nothing"
    return f"epsilon {claim.epsilon:g} at delta {claim.delta:g} of the whole training, neighbours by {claim.adjacency}"


def _bound_text(bound: Bound) -> str:
    return (
        f"epsilon {number_text(bound.epsilon, 3)} at least, by {bound.method} at {percent(bound.confidence)} "
        f"confidence; so many losses show {number_text(bound.limit_of_detection, 3)} at most"
    )


def _assumption(finding: ReleaseFinding) -> str:
    if finding.has_coins:
        return "a fair coin for each unit decided whether it was in the training, as was stated"
    return (
        "members and other records are drawn alike, and their losses are independent; one training does not show "
        "that, so the bound decides no verdict (--coins, where fair coins drew the members)"
    )


def _fit_text(star: StarEstimate) -> str:
    if star.is_lower_bound:
        return "none: too few losses, so only an interval is stated that holds for any distributions"
    if star.method is StarMethod.EMPIRICAL:
        return "normal distributions were tested and rejected, so every observed loss is a threshold"
    if star.distributions is None:
        return "none: all losses of a set are equal"
    return "normal distributions of both sets were tested and not rejected (two-sample Kolmogorov-Smirnov)"


def _outstanding_text(finding: ReleaseFinding) -> str:
    outstanding = finding.outstanding
    number = len(outstanding.indices)
    expected = f"{number_text(outstanding.expected, 2)} by chance"
    counts_text = (
        f"{number:,} of {plural(finding.members, 'member')} at {percent(FALSE_ALARMS)} false alarms, {expected}"
    )
    if outstanding.p_value > _CHANCE:
        return f"{counts_text}: no more than chance may give"
    listed = ", ".join(map(str, outstanding.indices[:_MOST_LISTED]))
    remark = f" and {number - _MOST_LISTED:,} more, in summary.json" if number > _MOST_LISTED else ""
    return f"{counts_text}: those at {listed}{remark} (places in the file, from 0)"


def _next(finding: ReleaseFinding) -> str:
    if finding.contradicts:
        return (
            "Do not release this model. Audit its training (fl-audit training or strategy), and train with more noise."
        )
    if finding.claim is None:
        return "State a claim (--claim-epsilon), or train with differential privacy: nothing limits what others find."
    return "Audit the training itself before you lean on the claim: fl-audit training, strategy or run."


def _draw(axes: Axes, finding: ReleaseFinding, member_losses: Floats, other_losses: Floats) -> None:
    scores = -np.concatenate([member_losses, other_losses])
    is_member = np.arange(scores.size) < member_losses.size
    limits = () if finding.claim is None else finding.claim.limits
    draw_tradeoff(
        axes, limits, scores, is_member, ("share of other records taken for members", "share of members found")
    )
