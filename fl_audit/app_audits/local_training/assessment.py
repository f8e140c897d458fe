"""Assess a recorded DP-SGD training against its claim: verdict, facts, and pitfalls (known mistakes) with fixes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fl_audit.app_audits.local_training.accounting_checks import CLAIM_CHECKS, COUNTING_CHECKS
from fl_audit.app_audits.local_training.composition import ComposedPrivacy
from fl_audit.app_audits.local_training.mechanism_checks import MECHANISM_CHECKS
from fl_audit.app_audits.local_training.output_checks import NUMBER_CHECKS, WEIGHT_CHECKS
from fl_audit.app_audits.local_training.pitfalls import FoundPitfall, Pitfall, Severity
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.sampling_checks import SAMPLING_CHECKS
from fl_audit.verdict.verdict import Verdict, verdict_on

CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
    **SAMPLING_CHECKS,
    **MECHANISM_CHECKS,
    **COUNTING_CHECKS,
    **WEIGHT_CHECKS,
    **CLAIM_CHECKS,
    **NUMBER_CHECKS,
}
"""The check of every pitfall, in the order of the report; it describes what shows the pitfall, or returns ""."""


def unasked(trainings: RecordedTrainings) -> dict[Pitfall, str]:
    """Return the pitfalls that could not be looked for, each with the reason."""
    is_single = max(map(len, (trainings.repeated, *trainings.by_client.values())), default=0) < 2
    is_unclipped = all(step.rows is None for training in trainings.private_trainings for step in training.steps)
    reasons: tuple[tuple[bool, str, tuple[Pitfall, ...]], ...] = (
        (is_single, CALLED_ONCE, (Pitfall.SEEDED_NOISE, Pitfall.FIXED_SAMPLE)),
        (len(trainings.by_client) < 2, "one client trained", (Pitfall.SHARED_NOISE,)),
        (not trainings.replays, "no replay was compared", (Pitfall.COUPLED, Pitfall.OVER_NORM, Pitfall.LAYER_CLIPPING)),
        (
            all(replay.noise_moved is None or replay.is_replaced for replay in trainings.replays),
            "no replay had the same noise and one record less",
            (Pitfall.NOISE_FOLLOWS,),
        ),
        (
            trainings.trace is None,
            "what leaves was not traced with other records",
            (Pitfall.BARE_OUTPUT, Pitfall.PRIVATE_SCHEDULE, Pitfall.PRIVATE_RATE),
        ),
        (is_unclipped, "Opacus kept no gradients of single records", (Pitfall.CUT_BATCH, Pitfall.BATCH_CLIPPING)),
        (trainings.claimed is None, "no epsilon was named", (Pitfall.CLAIMED_EPSILON, Pitfall.EARLY_EPSILON)),
        (
            not any(training.is_accountant_seen for training in trainings.private_trainings),
            "no accountant of Opacus counted",
            (Pitfall.UNCOUNTED_STEPS, Pitfall.UNTAKEN_STEPS, Pitfall.WRONG_RATE, Pitfall.WRONG_NOISE_COUNTED),
        ),
        (
            trainings.measured is not None,
            "the steps are taken without Opacus, and state no noise multiplier and no norm",
            (Pitfall.SMALL_NOISE, Pitfall.LAYER_CLIPPING),
        ),
        (
            trainings.has_dependent_noise,
            "the noise is no independent normal noise, so epsilon is not known",
            (Pitfall.CLAIMED_EPSILON, Pitfall.NOISE_DISTRIBUTION),
        ),
        (
            trainings.measured is not None and any(effect.coupling is None for effect in trainings.measured.effects),
            "no second record was found whose values move the same step",
            (Pitfall.COUPLED,),
        ),
        (trainings.measured is not None, "no engine of Opacus made a model private", _OF_ENGINES),
        (trainings.measured is not None, "replays leave records out of mini-batches alone", (Pitfall.PRIVATE_SIZE,)),
        (
            not any(training.left.evaluation for training in trainings.private_trainings),
            "no evaluation replied",
            (Pitfall.CLEAR_EVALUATION,),
        ),
        (not _has_numbers(trainings), "no numbers left", (Pitfall.EXACT_COUNT,)),
        (
            trainings.trace is None and not _has_numbers(trainings),
            "what leaves was not traced with other records",
            (Pitfall.CLEAR_METRICS,),
        ),
    )
    pitfalls = {pitfall.pitfall for pitfall in found_pitfalls(trainings)}
    reasons_by_pitfall = {name: why for holds, why, names in reasons if holds for name in names if name not in pitfalls}
    return dict(sorted(reasons_by_pitfall.items(), key=lambda item: list(Pitfall).index(item[0])))


_OF_ENGINES = (
    Pitfall.NO_POISSON,
    Pitfall.OTHER_LOADER,
    Pitfall.BATCH_NORM,
    Pitfall.TRAINED_BEFORE,
    Pitfall.UNWRAPPED,
    Pitfall.OUTSIDE_OPTIMIZER,
    Pitfall.MOVED_OUTSIDE,
    Pitfall.FROZEN_MOVED,
    Pitfall.BUFFERS,
    Pitfall.UNKNOWN_TENSORS,
    Pitfall.CHOSEN_EPOCH,
)
"""Pitfalls that are looked for in models that an engine of Opacus made private."""


def _has_numbers(trainings: RecordedTrainings) -> bool:
    return any(training.left.numbers or training.left.evaluation for training in trainings.private_trainings)


CALLED_ONCE = "the training ran once"
"""The reason for which it is not known whether a training repeats its draws."""


def found_pitfalls(trainings: RecordedTrainings) -> tuple[FoundPitfall, ...]:
    """Return the pitfalls that the trainings show, in the order of `CHECKS`; () if Opacus was not used."""
    pitfalls = (
        FoundPitfall(pitfall, observation) for pitfall, check in CHECKS.items() if (observation := check(trainings))
    )
    return tuple(pitfalls) if trainings.is_private else ()


@dataclass(frozen=True)
class Assessment:
    """Result of the audit of some clients' DP-SGD training, or of a training function.

    It is the evidence behind the `AuditResult` of a training, and a part of the review of an app.
    """

    name: str  # name of the audited app or training function
    verdict: Verdict
    trainings: RecordedTrainings
    pitfalls: tuple[FoundPitfall, ...]  # the pitfalls, those that break the claim first
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
    if not trainings.is_private:
        return Verdict.NOT_AUDITED
    weights = {pitfall.weight for pitfall in pitfalls}
    is_noised = any(training.noised for training in trainings.trainings)
    is_conclusive = Severity.DOUBT not in weights and not unseen and bool(trainings.replays) and is_noised
    return verdict_on(Severity.BREAKS in weights, is_conclusive)
