"""Check recorded evidence for pitfalls; each check describes one pitfall if the evidence shows it, or returns "".

Checks of sampling and of noise have their own modules. This module contains the checks of accounting and of outputs.
"""

import math
from collections.abc import Callable

from fl_audit.app_audits.local_training.noise_checks import NOISE_CHECKS
from fl_audit.app_audits.local_training.pitfalls import FoundPitfall, Pitfall
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.sampling_checks import SAMPLING_CHECKS
from fl_audit.app_audits.local_training.training_facts import BatchSamplingKind, RecordedTraining

Check = Callable[[RecordedTrainings], str]
"""A function that describes one pitfall in the evidence; empty if it is not there."""
_COUNT_RELEASED = (
    " with the count behind the adaptive norm, which AdaClipDPOptimizer of Opacus releases as well: "
    "it counts as if a record moved that by one half, and not at all before Opacus 1.6; divided by the size of the "
    "sample, it moves by up to one"
)
_COUNTS = ("num-examples", "num_examples", "num-samples", "num_samples")


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
            "the noise is not independent at the coordinates, so its size is not known",
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
    """Return the pitfalls that the evidence shows, in the order of `CHECKS`; () if Opacus was not used."""
    pitfalls = (
        FoundPitfall(pitfall, observation) for pitfall, check in CHECKS.items() if (observation := check(trainings))
    )
    return tuple(pitfalls) if trainings.is_private else ()


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


def _trained_before(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        before = [step for step in training.outside if step.is_before and step.tensors]
        if before:
            return f"{before[0].optimizer} took {len(before)} steps on the model before an engine was made"
    return ""


def _unwrapped(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        steps = [step for step in training.outside if not step.is_before and step.is_wrapped]
        if steps:
            return f"{steps[0].optimizer} took {len(steps)} steps that the engine did not make private"
    return ""


def _outside_optimizer(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        steps = [step for step in training.outside if not step.is_before and not step.is_wrapped and step.tensors]
        if steps:
            return f"{steps[0].optimizer} took {len(steps)} steps on {steps[0].tensors} tensors of the private model"
    return ""


def _moved(is_parameter: bool, is_frozen: bool) -> Check:
    def check(trainings: RecordedTrainings) -> str:
        if _is_traced(trainings):
            return ""
        if any(
            step.tensors and not step.is_before for training in trainings.private_trainings for step in training.outside
        ):
            return ""  # said already, with the optimizer that did it
        for training in trainings.private_trainings:
            changed_names = [
                change.name
                for change in training.moved
                if (change.is_parameter, change.is_frozen) == (is_parameter, is_frozen)
                and not (change.is_at_end and training.left.earlier)
            ]
            if changed_names:
                names = ", ".join(dict.fromkeys(changed_names[:3]))
                return f"{names} changed while the engine took no step"
        return ""

    return check


def _is_traced(trainings: RecordedTrainings) -> bool:
    """Return True if all arrays that leave follow from private steps: then it does not matter how they were made."""
    return trainings.trace is not None and not trainings.trace.arrays and not trainings.trace.unstable


def _bare_output(trainings: RecordedTrainings) -> str:
    names = trainings.trace.arrays if trainings.trace is not None else ()
    if not names or _private_schedule(trainings) or _private_rate(trainings):
        return ""  # with other steps everything is different
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{suffix} follow the records although all private steps release the same"


def _unknown_tensors(trainings: RecordedTrainings) -> str:
    if _is_traced(trainings):
        return ""
    names = [name for training in trainings.private_trainings for name in training.left.unknown]
    return f"{', '.join(dict.fromkeys(names[:3]))} left, and the private model has no such tensor" if names else ""


def _chosen(trainings: RecordedTrainings) -> str:
    # A choice among few steps may be the same with other records by chance: tracing does not tell what it follows.
    for training in trainings.private_trainings:
        if training.left.earlier is not None:
            last = len(training.noised)
            return f"the weights that left are those after step {training.left.earlier} of {last}"
    return ""


def _private_schedule(trainings: RecordedTrainings) -> str:
    counts = [len(training.noised) for training in trainings.trace.runs] if trainings.trace else []
    other_count = next((count for count in counts if count != counts[0]), None)
    return "" if other_count is None else f"{counts[0]} steps were taken, and {other_count} with other records"


def _private_rate(trainings: RecordedTrainings) -> str:
    runs = trainings.trace.runs if trainings.trace else ()
    for training in runs[1:]:
        if training.measures != runs[0].measures:
            return "ReduceLROnPlateau is given a measure that follows the records"
        first, second = ([step.learning_rate for step in training.noised] for training in (runs[0], training))
        differ = [index for index, (first, second) in enumerate(zip(first, second, strict=False)) if first != second]
        if differ:
            rates = f"{first[differ[0]]:.3g}, and {second[differ[0]]:.3g} with other records"
            return f"the learning rate of step {differ[0] + 1} is {rates}"
    return ""


def _sizes(training: RecordedTraining) -> set[int]:
    """Return the sizes of the data sets from which a training drew records."""
    return {engine.records for engine in training.engines} | {batch.records for batch in training.batches}


def _exact_count(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        records = _sizes(training)
        # Replies to training and to evaluation may use the same names.
        for name, value in (*training.left.numbers.items(), *training.left.evaluation.items()):
            if value in records and (value > 1 or name in _COUNTS):
                follows = [answer for answer in training.answers if answer.epsilon in training.left.numbers.values()]
                suffix = "; epsilon, which follows from it, leaves too" if follows else ""
                return f"{name} is {value:g}, which is the number of records{suffix}"
    return ""


def _clear(trainings: RecordedTrainings, is_evaluation: bool) -> str:
    if trainings.trace is not None and not is_evaluation:
        names = trainings.trace.numbers
        if not names or _private_schedule(trainings) or _private_rate(trainings):
            return ""
        return f"{', '.join(names[:5])} follow the records although all private steps release the same"
    values_by_name: dict[str, set[float]] = {}
    for training in trainings.private_trainings:
        records = {float(count) for count in _sizes(training)}
        public = (
            records | {answer.epsilon for answer in training.answers} | {answer.delta for answer in training.answers}
        )
        for engine in training.engines:
            public |= {engine.noise_multiplier, *engine.norms, engine.rate, *(engine.target or ())}
        public |= {step.learning_rate for step in training.steps}
        numbers = training.left.evaluation if is_evaluation else training.left.numbers
        for name, value in numbers.items():
            if not any(abs(value - known_number) <= 1e-6 * max(1.0, abs(known_number)) for known_number in public):
                values_by_name.setdefault(name, set()).add(value)
    sent = [name for name, values in values_by_name.items() if len(values) > 1 and name not in _COUNTS]
    return f"{', '.join(sent)} follow the records of a client" if sent else ""


CHECKS: dict[Pitfall, Check] = {
    **SAMPLING_CHECKS,
    **NOISE_CHECKS,
    Pitfall.UNCOUNTED_STEPS: _uncounted,
    Pitfall.UNTAKEN_STEPS: _untaken,
    Pitfall.WRONG_RATE: _wrong_rate,
    Pitfall.WRONG_NOISE_COUNTED: _wrong_noise,
    Pitfall.TRAINED_BEFORE: _trained_before,
    Pitfall.UNWRAPPED: _unwrapped,
    Pitfall.OUTSIDE_OPTIMIZER: _outside_optimizer,
    Pitfall.MOVED_OUTSIDE: _moved(is_parameter=True, is_frozen=False),
    Pitfall.FROZEN_MOVED: _moved(is_parameter=True, is_frozen=True),
    Pitfall.BUFFERS: _moved(is_parameter=False, is_frozen=False),
    Pitfall.UNKNOWN_TENSORS: _unknown_tensors,
    Pitfall.BARE_OUTPUT: _bare_output,
    Pitfall.CHOSEN_EPOCH: _chosen,
    Pitfall.PRIVATE_SCHEDULE: _private_schedule,
    Pitfall.PRIVATE_RATE: _private_rate,
    Pitfall.FRESH_ACCOUNTANT: lambda evidence: evidence.fresh_accountant,
    Pitfall.EARLY_EPSILON: _early_epsilon,
    Pitfall.LARGE_DELTA: _large_delta,
    Pitfall.CLAIMED_EPSILON: _claimed_epsilon,
    Pitfall.EXACT_COUNT: _exact_count,
    Pitfall.CLEAR_METRICS: lambda evidence: _clear(evidence, is_evaluation=False),
    Pitfall.CLEAR_EVALUATION: lambda evidence: _clear(evidence, is_evaluation=True),
}
"""The check of every pitfall, in the order of the report."""
