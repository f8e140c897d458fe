"""Assess a recorded DP-SGD training against its claim: verdict, facts, and pitfalls (known mistakes) with fixes."""

from collections.abc import Sequence
from dataclasses import dataclass

from fl_audit.app_audits.local_training.checks import CALLED_ONCE, found_pitfalls, unasked
from fl_audit.app_audits.local_training.composition import ComposedPrivacy
from fl_audit.app_audits.local_training.pitfalls import FoundPitfall, Severity
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.verdict.verdict import Verdict


@dataclass(frozen=True)
class Assessment:
    """Result of the audit of some clients' DP-SGD training, or of a training function.

    It is the evidence behind the `AuditResult` of a training, and a part of the review of an app.
    """

    name: str  # name of the audited app or training function
    verdict: Verdict
    evidence: RecordedTrainings
    found: tuple[FoundPitfall, ...]  # the pitfalls, those that break the claim first
    composed: ComposedPrivacy | None  # the privacy loss of the steps over all rounds; None without private steps
    # Privacy loss of the steps over all rounds with users as units; None if every user has one record.
    of_users: ComposedPrivacy | None
    unseen: tuple[str, ...]  # parts of this training that could not be observed, with the reasons


def assess(name: str, trainings: RecordedTrainings, unseen: Sequence[str] = ()) -> Assessment:
    """Check recorded trainings for pitfalls, compose their privacy loss, and return the assessment with a verdict."""
    order = list(Severity)
    pitfalls = sorted(found_pitfalls(trainings), key=lambda pitfall: order.index(pitfall.weight))
    composed = trainings.composed_of()
    of_users = trainings.composed_of(of_user=True) if trainings.records_per_user > 1 else None
    unseen = (*unseen, *trainings.unseen)
    if trainings.is_private and CALLED_ONCE in unasked(trainings).values():
        unseen = (*unseen, f"whether noise and samples repeat when it trains again, since {CALLED_ONCE}; 2 calls tell")
    verdict = _verdict(trainings, pitfalls, unseen)
    if trainings.is_private and not trainings.replays:
        unseen = (*unseen, "replays without a record: the clipping of records by themselves was not compared")
    return Assessment(name, verdict, trainings, tuple(pitfalls), composed, of_users, unseen)


def _verdict(trainings: RecordedTrainings, pitfalls: Sequence[FoundPitfall], unseen: Sequence[str]) -> Verdict:
    weights = {pitfall.weight for pitfall in pitfalls}
    if Severity.BREAKS in weights:
        return Verdict.VIOLATED
    if not trainings.is_private:
        return Verdict.NOT_AUDITED
    if (
        Severity.DOUBT in weights
        or unseen
        or not trainings.replays
        or not any(training.noised for training in trainings.trainings)
    ):
        return Verdict.INCONCLUSIVE
    return Verdict.CONSISTENT
