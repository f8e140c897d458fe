"""`ReviewResult`, the result of reviewing a Flower app: its verdict, remarks, and the parts that were not observed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, DistinguisherTest
from fl_audit.app_audits.review.app_loading import AppDescription, StubImportFinder
from fl_audit.app_audits.review.claims import StatedAppClaim, training_doubt
from fl_audit.app_audits.review.fresh_starts import NOT_COMPARED, ComparedStarts
from fl_audit.app_audits.review.privacy_mentions import RecordPrivacyMention, mentions_phrase, named_in, of_settings
from fl_audit.app_audits.review.scenario_groups import (
    ScenarioGroup,
    SideChannelResult,
    broken_tests,
    is_mechanism_as_claimed,
    tests_of_metrics,
)
from fl_audit.app_audits.review.strategy_capture import CapturedStrategy
from fl_audit.statistics.lower_bounds import epsilon_lower_bound
from fl_audit.verdict.verdict import Verdict, with_doubt

if TYPE_CHECKING:
    from fl_audit.app_audits.local_training.assessment import Assessment


@dataclass(frozen=True)
class ReviewResult:
    """Result of reviewing a Flower app: its privacy claim, the verdict on it, the trials' results, and remarks.

    It is the evidence behind an `AuditResult`: audits of model, metrics and clients, from which one verdict follows.
    """

    app: str  # name of the app
    app_claim: StatedAppClaim  # privacy claim of the app or the reviewer
    verdict: Verdict  # verdict on the claim, or the verdict that there is no claim
    rounds: int  # number of rounds of the app's training
    played_rounds: int  # number of rounds of a trial
    nodes: int  # number of clients that the app's strategy sees
    asked: dict[str, int]  # most clients that the strategy asks in a round, for `train` and `evaluate`
    parameters: int | None  # number of parameters of the app's own model; None if trials were not run on this model
    kinds: tuple[str, ...]  # names of the planned scenarios (conditions of trials) on the model
    budget: str  # description of the number of trials, such as "fewer trials"
    result: ClaimAudit  # audit of the released model
    # Audit of the metrics that are released beside the model; None if the adversary is the server, which sees them all.
    beside: ClaimAudit | None
    leaks: tuple[SideChannelResult, ...]  # results on metrics, example counts, buffers and evaluation replies
    remarks: tuple[str, ...]  # remarks on parts that could not be used unchanged, or not observed
    buffers: int | None = None  # number of buffers (untrained tensors) of the app's model; None if it was not seen
    of_records: tuple[RecordPrivacyMention, ...] = ()  # places where the app's code mentions record-level privacy
    # Numbers in the app's configuration that claim more privacy than the strategy has, each as a phrase.
    weaker: tuple[str, ...] = ()
    # Parts of the mechanism or claim that could not be loaded or read, with reasons. If there are any, the verdict is
    # inconclusive.
    unseen: tuple[str, ...] = ()
    inside: "Assessment | None" = None  # assessment of the clients' training; None if they did not train
    inside_unseen: str = ""  # reason why they could not train; empty if they did, or were not asked to
    count_fault: str = ""  # fault of the number of clients that the noise is made for; empty without one
    early: tuple[str, ...] = ()  # what trials with the fewest clients showed with which the app begins, as sentences
    starts: ComparedStarts = NOT_COMPARED  # comparison of two starts of the app in fresh processes


def mentions_and_unseen(
    captured: CapturedStrategy,
    app_claim: StatedAppClaim,
    app: AppDescription,
    mentions: tuple[RecordPrivacyMention, ...],
) -> tuple[tuple[RecordPrivacyMention, ...], tuple[str, ...]]:
    """Return all mentions of record-level privacy in an app, and the parts of its claim that were not observed.

    If no claim could be read, the privacy settings in the app's configuration are added: to the mentions if the code
    has mentions too, and otherwise to the parts that were not observed.
    """
    if app_claim.claim is not None:
        return mentions, captured.unseen
    if mentions:
        return (*mentions, *of_settings(app.directory / "pyproject.toml", app.config)), (
            *captured.unseen,
            *app_claim.unseen,
        )
    return (), (*captured.unseen, *app_claim.unseen, *filter(None, [named_in(app.config)]))


def app_remarks(
    mentions: tuple[RecordPrivacyMention, ...], unoffered: Sequence[str], finder: StubImportFinder, has_written: bool
) -> Iterator[str]:
    """Yield remarks on an app for the report of its review."""
    if mentions:
        names = mentions_phrase(mentions)
        yield f"its code names {names}: what that guarantees of records is kept or broken inside clients, unseen"
    if unoffered:
        names = ", ".join(unoffered)
        yield f"it looks for {names} in what clients report, and fails if these are numbers: nothing is said of them"
    if finder.packages:
        yield f"inert stand-ins took the place of what is not installed: {', '.join(finder.packages)}"
    if has_written:
        yield "it writes files while it trains: they were written to a copy, and removed after every trial"


def server_verdict(
    app_claim: StatedAppClaim,
    claim_audit: ClaimAudit,
    rounds: int,
    played: int,
    unseen: Sequence[str] = (),
    mentions: tuple[RecordPrivacyMention, ...] = (),
    beside: ClaimAudit | None = None,
) -> Verdict:
    """Return the verdict on an app's claim to protect clients; inconclusive if parts of the app were not observed.

    The verdict is also inconclusive if a reviewer set the epsilon of the whole training, and the trials neither
    contradict nor support it. Without a claim, the verdict is that there is no guarantee. If the code then mentions
    record-level privacy, the verdict is `not audited` instead.

    `beside` is the audit of what is released beside the model. If metrics of clients refute the claim there, it is
    violated. If they tell more than a smaller epsilon allows, or only the trials' clients are known to report them, the
    verdict is not consistent.

    If an unchanged wrapper of Flower adds the noise as claimed, and nothing but unusual replies or unequal numbers of
    examples refutes the claim, the verdict is inconclusive: whether the app's clients send these is not seen.
    """
    # Unobserved parts may add noise, or reveal more.
    if unseen:
        return Verdict.INCONCLUSIVE
    if app_claim.claim is None:
        return Verdict.NOT_AUDITED if mentions else Verdict.NO_GUARANTEE
    of_metrics = tests_of_metrics(beside)
    if any(refutes(test, claim_audit.claim) for test in of_metrics):
        return Verdict.VIOLATED
    # Numbers that an ordinary update moves are seen to be released.
    is_released = any(test.is_beside_model for test in broken_tests(claim_audit, ScenarioGroup.BESIDE))
    if has_edges_of_flower_alone(app_claim, claim_audit) and not is_released:
        return Verdict.INCONCLUSIVE
    is_doubted = bool(of_metrics) or training_doubt(app_claim, rounds, played) != ""
    return with_doubt(claim_audit.verdict, is_doubted)


def refutes(test: DistinguisherTest, claim: StatedClaim) -> bool:
    """Return whether a test of another claim refutes `claim` too, by what an app is known to release."""
    ones, zeros = test.scores[test.present], test.scores[~test.present]
    confidence = 1 - (1 - test.confidence) / len(claim.limits)
    method = test.distinguisher.method
    bounds = (epsilon_lower_bound(ones, zeros, limit.delta, confidence, method).epsilon for limit in claim.limits)
    is_exceeded = any(bound > limit.epsilon for bound, limit in zip(bounds, claim.limits, strict=True))
    return is_exceeded and not test.is_of_trials_alone


def has_edges_of_flower_alone(app_claim: StatedAppClaim, claim_audit: ClaimAudit) -> bool:
    """Return whether a wrapper of Flower has noise and clipping as claimed, and something else refutes the claim."""
    return app_claim.is_of_flower and claim_audit.verdict is Verdict.VIOLATED and is_mechanism_as_claimed(claim_audit)


def joint_verdict(verdict: Verdict, app_claim: StatedAppClaim, assessment: "Assessment | None") -> Verdict:
    """Return the joint verdict of the trials and of the inspection of the clients' training.

    The first rule that applies decides. If the inspection has no result, the joint verdict is that of the trials. If
    the trials or the inspection found a violation, it is `violated`. If the inspection could not audit, it is the
    verdict of the trials. If nothing is claimed about clients and the trials tested no guarantee, it is the verdict of
    the inspection. If one of the two verdicts is `inconclusive`, it is `inconclusive`. Otherwise it is the verdict of
    the trials.
    """
    if assessment is None:
        return verdict
    verdict_of_inspection = assessment.verdict
    if Verdict.VIOLATED in (verdict, verdict_of_inspection):
        return Verdict.VIOLATED
    if verdict_of_inspection is Verdict.NOT_AUDITED:
        return verdict
    # If nothing is claimed about clients, the verdict is on the claim about records.
    if app_claim.claim is None and verdict in (Verdict.NO_GUARANTEE, Verdict.NOT_AUDITED):
        return verdict_of_inspection
    return Verdict.INCONCLUSIVE if Verdict.INCONCLUSIVE in (verdict, verdict_of_inspection) else verdict


def early_words(first: int, sampled: int, made_for: int | None, claim_audit: ClaimAudit) -> str:
    """Return a remark on trials of an app that starts with fewer clients than its noise is calibrated for."""
    text = f"it begins as soon as {first} clients are there and asks {sampled} of them, and its noise is for {made_for}"
    if claim_audit.worst is None:
        return f"{text}: no trials were played with so few"
    broken = "which breaks the claim" if claim_audit.verdict is Verdict.VIOLATED else "which does not refute the claim"
    share_text = (
        f"{claim_audit.worst.right / claim_audit.worst.trials:.0%} of {claim_audit.worst.trials} trials were "
        "guessed rightly"
    )
    return f"{text}: with so few {share_text}, where the claim allows {claim_audit.claim.success:.0%}, {broken}"
