"""The results of audits of other people's code, in the form that every audit stores: `AuditResult`."""

from fl_audit.app_audits.claim_audit.trial_results import scope_of_trials, unseen_in
from fl_audit.app_audits.live.live_audit import LiveFinding
from fl_audit.app_audits.live.live_page import live_headline, live_lines
from fl_audit.app_audits.local_training.assessment import CHECKS, Assessment, unasked
from fl_audit.app_audits.local_training.assessment_messages import (
    assessment_json,
    report_lines,
    training_claim_warning,
    unseen_of_assessment,
)
from fl_audit.app_audits.local_training.assessment_messages import headline as training_headline
from fl_audit.app_audits.review.claims import guarantee_of_stated, stated_claim_warning
from fl_audit.app_audits.review.review_messages import headline as review_headline
from fl_audit.app_audits.review.review_messages import report_lines_of_review, review_json, unseen_of_review
from fl_audit.app_audits.review.review_result import ReviewResult
from fl_audit.array_types import finite
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, guarantee_values
from fl_audit.report.guarantee_warnings import weakness_warning
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, AuditScope


def review_result(review: ReviewResult, bundle: str | None = None) -> AuditResult:
    """Return the result of the review of an app; `bundle` is the hash of its bundle, if it is known."""
    return AuditResult(
        kind=AuditedKind.APP,
        name=review.app,
        verdict=review.verdict,
        headline=review_headline(review),
        lines=report_lines_of_review(review),
        guarantee=guarantee_of_stated(review.app_claim, review.rounds),
        scope=scope_of_trials(
            review.result, review.rounds, review.played_rounds, (*review.unseen, unseen_of_review(review))
        ),
        warning=stated_claim_warning(review.app_claim, review.rounds),
        bundle=bundle,
        numbers=review_json(review),
    )


def training_result(assessment: Assessment) -> AuditResult:
    """Return the result of the audit of a private training."""
    trainings = assessment.trainings
    missing = {str(name): reason for name, reason in unasked(trainings).items()} if trainings.is_private else {}
    checks_made = tuple(str(check) for check in CHECKS if str(check) not in missing) if trainings.is_private else ()
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
            checks_made,
            missing,
            unseen_of_assessment(assessment),
        ),
        warning=training_claim_warning(trainings),
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
            finding.bounds.rounds,
            (f"scores of {finding.canaries} canaries at {len(finding.looks)} interim analyses",),
            {},
            (*sorted(map(str, finding.doubts)), *unseen_in("federation")),
        ),
        warning=weakness_warning(guarantee),
        numbers=finding.to_json(),
    )
