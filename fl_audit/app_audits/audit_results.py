"""The results of audits of other people's code, in the form that every audit stores: `AuditResult`."""

from collections.abc import Mapping, Sequence
from typing import Any

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import (
    claim_warning,
    not_tried,
    opening_sentences,
    refusal_words,
)
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit
from fl_audit.app_audits.claim_audit.findings import DistinguisherFinding, result_json
from fl_audit.app_audits.live.live_audit import LiveFinding
from fl_audit.app_audits.live.live_page import live_headline, live_lines
from fl_audit.app_audits.local_training.accounting_and_output_checks import CHECKS, unasked
from fl_audit.app_audits.local_training.assessment import ALWAYS_UNSEEN, Assessment, assessment_json, report_lines
from fl_audit.app_audits.local_training.assessment import headline as training_headline
from fl_audit.app_audits.review.claims import guarantee_of_stated, stated_claim_warning
from fl_audit.app_audits.review.review_messages import headline as review_headline
from fl_audit.app_audits.review.review_messages import report_lines_of_review, review_json, unseen_of_review
from fl_audit.app_audits.review.review_result import ReviewResult
from fl_audit.array_types import finite
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_values
from fl_audit.report.guarantee_warnings import weakness_warning
from fl_audit.runs.provenance import package_versions
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope

_UNSEEN_OF_STRATEGY = (
    "what clients do with their records before they reply",
    "what the server does beside this strategy",
)
_CARRIED = "what the strategy carries from round to round, such as a factor: --rounds 2 or more has trials play it"
_UNSEEN_OF_FEDERATION = ("what rounds without canaries release", "losses of records, beside those of clients")


def strategy_result(
    name: str,
    audit: ClaimAudit,
    findings: Sequence[DistinguisherFinding],
    rounds: int | None = None,
    clients: int | None = None,
    claim_source: str | None = None,
) -> AuditResult:
    """Return the result of the audit of a strategy.

    `rounds` is the number of rounds of the whole training, None if nobody named it; `clients` is the number of clients
    of a trial, and `claim_source` says where the strategy itself states its claim, None if it does not.
    """
    lines = [line for finding in findings for line in _finding_lines(finding)]
    lines += [("Refused", text) for text in refusal_words(audit.refusals)]
    lines += [("Claim", f"the strategy's own: {claim_source}")] if claim_source else []
    unseen = (*_UNSEEN_OF_STRATEGY, *([_CARRIED] if audit.claim.rounds == 1 else []))
    lines += [("Not played", _CARRIED)] if audit.claim.rounds == 1 else []
    return AuditResult(
        kind=AuditedKind.STRATEGY,
        name=name,
        verdict=audit.verdict,
        headline=opening_sentences(audit),
        lines=tuple(lines),
        guarantee=_guarantee_of_claim(audit.claim),
        scope=_scope_of_trials(audit, rounds, audit.claim.rounds, unseen),
        warning=claim_warning(audit.claim),
        versions=package_versions(),
        numbers=result_json(audit, tuple(findings)) | {"clients": clients, "claim_source": claim_source},
    )


def review_result(review: ReviewResult, bundle: str | None = None) -> AuditResult:
    """Return the result of the review of an app; `bundle` is the hash of its bundle, if it is known."""
    return AuditResult(
        kind=AuditedKind.APP,
        name=review.app,
        verdict=review.verdict,
        headline=review_headline(review),
        lines=report_lines_of_review(review),
        guarantee=guarantee_of_stated(review.stated, review.rounds),
        scope=_scope_of_trials(
            review.result, review.rounds, review.played_rounds, (*review.unseen, unseen_of_review(review))
        ),
        warning=stated_claim_warning(review.stated, review.rounds),
        versions=package_versions(),
        bundle=bundle,
        numbers=review_json(review),
    )


def training_result(assessment: Assessment) -> AuditResult:
    """Return the result of the audit of a private training."""
    trainings = assessment.evidence
    missing = {str(name): reason for name, reason in unasked(trainings).items()} if trainings.is_private else {}
    made = tuple(str(check) for check in CHECKS if str(check) not in missing) if trainings.is_private else ()
    claimed = None
    if trainings.claimed is not None:
        values = {"epsilon": finite(trainings.claimed), "delta": trainings.used_delta}
        claimed = dict.fromkeys(GUARANTEE_NAMES) | values | {"unit": "record"}
    return AuditResult(
        kind=AuditedKind.TRAINING,
        name=assessment.name,
        verdict=assessment.verdict,
        headline=training_headline(assessment),
        lines=report_lines(assessment),
        guarantee=claimed,
        scope=AuditScope(
            trainings.claimed_rounds,
            len({training.round for training in trainings.trainings}),
            made,
            missing,
            (*assessment.unseen, ALWAYS_UNSEEN),
        ),
        versions=package_versions(),
        numbers=assessment_json(assessment),
    )


def live_result(name: str, finding: LiveFinding) -> AuditResult:
    """Return the result of the audit of a running federation by its canaries."""
    guarantee = finding.guarantee
    return AuditResult(
        kind=AuditedKind.FEDERATION,
        name=name,
        verdict=finding.verdict,
        headline=live_headline(finding),
        lines=live_lines(finding),
        guarantee=guarantee_values(guarantee.epsilon, guarantee.claims),
        scope=AuditScope(
            guarantee.rounds,
            finding.finding.rounds,
            (f"scores of {finding.canaries} canaries at {len(finding.looks)} interim analyses",),
            {},
            (*sorted(map(str, finding.doubts.kinds)), *_UNSEEN_OF_FEDERATION),
        ),
        warning=weakness_warning(guarantee),
        versions=package_versions(),
        numbers=finding.to_json(),
    )


def _finding_lines(finding: DistinguisherFinding) -> list[tuple[str, str]]:
    """Return the lines of a test of a distinguisher: what was guessed and, of a broken claim, its cause and fix."""
    attempt = finding.attempt
    lines = [("Cause", finding.cause)] if attempt.is_broken else []
    lines.append((f"{attempt.distinguisher.kind} ({finding.words})", finding.sentence))
    if finding.noise is not None:
        lines.append(("Noise, if it is Gaussian", finding.noise.words))
    if attempt.is_broken:
        lines += [("Differs", line) for line in attempt.lines]
        lines.append(("Usual fix", finding.fix))
    return lines


def _scope_of_trials(
    audit: ClaimAudit, rounds: int | None, played_rounds: int | None, unseen: tuple[str, ...]
) -> AuditScope:
    reasons = {kind: reason for reason, kinds in not_tried(audit).items() for kind in kinds}
    made = dict.fromkeys(attempt.distinguisher.kind for attempt in audit.attempts)
    return AuditScope(rounds, played_rounds, tuple(kind for kind in made if kind not in reasons), reasons, unseen)


def _guarantee_of_claim(claim: StatedClaim) -> Mapping[str, Any]:
    """Return the values of the guarantee that was stated for the strategy, for all rounds of the claim."""
    epsilon = gdp_epsilon(claim.delta, claim.allowed_mu) if claim.epsilon is None else claim.epsilon
    values = {"epsilon": finite(epsilon), "delta": claim.delta, "adjacency": str(claim.adjacency)}
    values |= {"unit": str(claim.neighbours.unit), "gdp_mu": claim.mu, "gdp_regret": None if claim.mu is None else 0.0}
    return dict.fromkeys(GUARANTEE_NAMES) | values
