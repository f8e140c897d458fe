"""Check what leaves a training: weights that other steps changed, tensors beside the model, counts and metrics."""

from collections.abc import Callable

from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.training_facts import RecordedTraining

_COUNTS = ("num-examples", "num_examples", "num-samples", "num_samples")


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


def _moved(is_parameter: bool, is_frozen: bool) -> Callable[[RecordedTrainings], str]:
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


WEIGHT_CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
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
}
"""The checks of the weights and other tensors that leave."""

NUMBER_CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
    Pitfall.EXACT_COUNT: _exact_count,
    Pitfall.CLEAR_METRICS: lambda trainings: _clear(trainings, is_evaluation=False),
    Pitfall.CLEAR_EVALUATION: lambda trainings: _clear(trainings, is_evaluation=True),
}
"""The checks of the numbers that leave."""
