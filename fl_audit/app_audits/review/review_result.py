"""`ReviewResult`, the result of reviewing a Flower app."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit
from fl_audit.app_audits.review.claims import StatedAppClaim
from fl_audit.app_audits.review.fresh_starts import NOT_COMPARED, ComparedStarts
from fl_audit.app_audits.review.record_privacy_mentions import RecordPrivacyMention
from fl_audit.app_audits.review.side_channels import SideChannelResult
from fl_audit.verdict.verdict import Verdict

if TYPE_CHECKING:
    from fl_audit.app_audits.local_training.assessment import Assessment


@dataclass(frozen=True)
class ReviewResult:
    """Result of reviewing a Flower app: its privacy claim, the verdict on it, the trials' results, and remarks.

    It is the evidence behind an `AuditResult`: audits of model, metrics and clients, from which one verdict follows.
    """

    app: str  # name of the app
    stated: StatedAppClaim  # privacy claim of the app or the reviewer
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
    asked_for: tuple[str, ...] = ()  # names of the metrics that the app's own code looks up in replies
    # Parts of the mechanism or claim that could not be loaded or read, with reasons. If there are any, the verdict is
    # inconclusive.
    unseen: tuple[str, ...] = ()
    inside: "Assessment | None" = None  # assessment of the clients' training; None if they did not train
    inside_unseen: str = ""  # reason why they could not train; empty if they did, or were not asked to
    count_fault: str = ""  # fault of the number of clients that the noise is made for; empty without one
    early: tuple[str, ...] = ()  # what trials with the fewest clients showed with which the app begins, as sentences
    starts: ComparedStarts = NOT_COMPARED  # comparison of two starts of the app in fresh processes
