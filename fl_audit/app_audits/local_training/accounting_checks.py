"""Check what is counted and claimed: epsilon and delta, and steps, rates and noise multipliers of the accountant."""

import math
from collections.abc import Callable

from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.training_facts import BatchSamplingKind

_COUNT_RELEASED = (
    " with the count behind the adaptive norm, which AdaClipDPOptimizer of Opacus releases as well: "
    "it counts as if a record moved that by one half, and not at all before Opacus 1.6; divided by the size of the "
    "sample, it moves by up to one"
)


def _claimed_epsilon(trainings: RecordedTrainings) -> str:
    excess = trainings.excess
    # Steps whose sampling was not seen may give less than those that are composed here without amplification.
    if excess is None or trainings.unseen_sampling:
        return ""
    over = "1 round" if excess.rounds == 1 else f"{excess.rounds} rounds"
    epsilon = f"{excess.epsilon:.3g}" if math.isfinite(excess.epsilon) else "no finite one"
    bound_words = "at least " if trainings.measured is not None and math.isfinite(excess.epsilon) else ""
    return (
        f"epsilon {trainings.claimed:.3g} is claimed, and the steps of {over} give {bound_words}{epsilon} "
        f"at delta {excess.delta:g}"
    )


def _early_epsilon(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        if training.answers and training.answers[-1].after < len(training.noised):
            uncounted = len(training.noised) - training.answers[-1].after
            return f"{uncounted} of {len(training.noised)} steps were taken after epsilon was asked for"
    return ""


def _large_delta(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        deltas = [answer.delta for answer in training.answers] + [
            engine.target[1] for engine in training.engines if engine.target
        ]
        records = max((engine.records for engine in training.engines), default=0)
        if records and deltas and max(deltas) >= 1 / records:
            return f"delta is {max(deltas):g}, and a client has {records} records"
    return ""


def _uncounted(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        is_fresh = len(training.engines) > 1 and bool(trainings.fresh_accountant)  # said there
        if training.is_accountant_seen and training.counted < len(training.noised) and not is_fresh:
            return f"{len(training.noised)} steps were taken, and the accountant counted {training.counted}"
    return ""


def _untaken(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        applied = sum(step.is_applied for step in training.noised)
        if training.counted > applied and training.counted != trainings.rounds * applied:
            return f"the accountant counted {training.counted} steps, and {applied} were taken"
    return ""


def _wrong_rate(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        fed = [batch for step in training.noised for batch in training.batches_of(step)]
        rates = [batch.rate for batch in fed if batch.sampling is BatchSamplingKind.POISSON and batch.rate is not None]
        counted_rates = [rate for _, rate, _ in training.counted_here]
        if rates and counted_rates and min(counted_rates) < min(rates) * (1 - 1e-6):
            return (
                f"steps are counted with a sampling rate of {min(counted_rates):.4g}, and drawn with {min(rates):.4g}"
            )
    return ""


def _wrong_noise(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        noise = [step.noise_multiplier for step in training.noised]
        multipliers = [multiplier for multiplier, _, _ in training.counted_here]
        if noise and multipliers and max(multipliers) > max(noise) * (1 + 1e-6):
            text = f"steps are counted with noise multiplier {max(multipliers):.4g}, and taken with {max(noise):.4g}"
            is_adaptive = any(step.count_multiplier is not None for step in training.noised)
            return f"{text}{_COUNT_RELEASED if is_adaptive else ''}"
    return ""


COUNTING_CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
    Pitfall.UNCOUNTED_STEPS: _uncounted,
    Pitfall.UNTAKEN_STEPS: _untaken,
    Pitfall.WRONG_RATE: _wrong_rate,
    Pitfall.WRONG_NOISE_COUNTED: _wrong_noise,
}
"""The checks of what the accountant counted."""

CLAIM_CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
    Pitfall.FRESH_ACCOUNTANT: lambda trainings: trainings.fresh_accountant,
    Pitfall.EARLY_EPSILON: _early_epsilon,
    Pitfall.LARGE_DELTA: _large_delta,
    Pitfall.CLAIMED_EPSILON: _claimed_epsilon,
}
"""The checks of the epsilon and delta that are claimed."""
