"""Check the sampling of records, and the use of mini-batches."""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import chi2

from fl_audit.app_audits.local_training.pitfalls import LEVEL, Pitfall
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.training_facts import (
    Batch,
    BatchSamplingKind,
    MakePrivateCall,
    PrivateStep,
    RecordedTraining,
)
from fl_audit.privacy.events import batches_per_epoch

_MIN_DRAWN = 20  # fewest records that equal samples must contain together to count as evidence


def _fed(training: RecordedTraining) -> Iterator[tuple[PrivateStep, list[Batch]]]:
    for step in training.whole_steps:
        yield step, training.batches_of(step)


def _is_amplified(training: RecordedTraining) -> bool:
    """Return True if the accountant counted steps with a sampling rate below 1."""
    return any(rate < 1 for _, rate, _ in training.history)


def _is_claimed(trainings: RecordedTrainings) -> bool:
    """Return True if an epsilon was named that is kept, without a need for samples and batches to be what they seem.

    What records of fixed batches, of several batches and of several steps on a batch lose is in the composed epsilon.
    """
    return trainings.claimed is not None and trainings.excess is None


def _no_poisson(trainings: RecordedTrainings) -> str:
    excess = trainings.excess
    if excess is None:  # an epsilon that is kept without amplification claims none; nor does one that nobody names
        return ""
    text = _unamplified(trainings)
    return f"{text}; so nothing amplifies, and the steps give {excess.epsilon:.3g} at delta {excess.delta:g}" * bool(
        text
    )


def _unamplified(trainings: RecordedTrainings) -> str:
    """Describe a loader that does not draw by Poisson, in a training whose accountant amplifies; "" without one."""
    for training in trainings.private_trainings:
        if not _is_amplified(training):
            continue
        for engine in training.engines:
            if not engine.is_poisson_asked and engine.sampling is BatchSamplingKind.FIXED:
                draws = f"{engine.sampler} draws, and not every record by itself"
                return f"the engine was made with poisson_sampling=False: {draws}"
        for _, batches in _fed(training):
            other_batches = [batch for batch in batches if batch.sampling is BatchSamplingKind.OTHER]
            text = _fixed_sizes(training) if other_batches else ""
            if text:
                return f"{other_batches[0].sampler} draws {text}"
    return ""


def _fixed_sizes(training: RecordedTraining) -> str:
    """Return a phrase on mini-batches of unknown samplers whose sizes vary too little for Poisson sampling.

    The phrase is "" if the sizes vary enough.
    """
    sizes = [len(batch.indices) for batch in training.batches if batch.sampling is BatchSamplingKind.OTHER]
    records = [batch.records for batch in training.batches if batch.sampling is BatchSamplingKind.OTHER]
    mean = float(np.mean(sizes))
    variance = mean * (1 - mean / max(records[0], 1))
    if len(sizes) < 2 or variance <= 0:
        return ""
    spread = float(((np.array(sizes) - mean) ** 2).sum()) / variance
    small = float(chi2.cdf(spread, len(sizes) - 1))
    return (
        f"{len(sizes)} batches of {mean:.1f} records that vary too little for Poisson samples" if small < LEVEL else ""
    )


def _other_loader(trainings: RecordedTrainings) -> str:
    if _is_claimed(trainings):
        return ""
    for training in trainings.private_trainings:
        is_poisson = any(engine.sampling is BatchSamplingKind.POISSON for engine in training.engines)
        for _, batches in _fed(training):
            other_batches = [batch for batch in batches if batch.sampling is BatchSamplingKind.FIXED]
            if is_poisson and other_batches:
                return (
                    f"steps were fed by a loader with {other_batches[0].sampler}, and not by the one that "
                    "make_private returned"
                )
    return ""


def _fixed_sample(trainings: RecordedTrainings) -> str:
    for trainings_of_client in (*trainings.by_client.values(), trainings.repeated):
        samples = [_samples(training) for training in trainings_of_client if _is_amplified(training)]
        for index, sample in enumerate(samples):
            if sum(map(len, sample)) >= _MIN_DRAWN and any(
                sample == other_sample for other_sample in samples[index + 1 :]
            ):
                return "the same samples were drawn again when a client trained again"
    return ""


def _samples(training: RecordedTraining) -> list[tuple[int, ...]]:
    return [
        batch.indices
        for _, batches in _fed(training)
        for batch in batches
        if batch.sampling is not BatchSamplingKind.FIXED
    ]


def _repeated_batch(trainings: RecordedTrainings) -> str:
    if _is_claimed(trainings):
        return ""
    for training in trainings.private_trainings:
        again = sum(
            not step.is_fresh and step.has_gradient_of_each_record(fed)
            for step, fed in _fed(training)
            if step.is_noised
        )
        if again:
            return f"{again} of {len(training.noised)} steps were taken on a batch that a step was taken on before"
    return ""


def _accumulation(trainings: RecordedTrainings) -> str:
    if _is_claimed(trainings):
        return ""
    for training in trainings.private_trainings:
        waiting = list[Batch]()
        for step, batches in _fed(training):
            used = [batch for batch in batches if batch.indices] if _uses_all(step, batches) else batches[-1:]
            waiting += [batch for batch in used if batch.is_whole]
            if step.is_noised:
                if _may_share_record(waiting):
                    return f"{len(waiting)} batches went into one step, and a record may have been in several of them"
                waiting = []
    return ""


def _may_share_record(batches: list[Batch]) -> bool:
    """Return True if a record may be in several batches: they are no parts of one shuffled pass over the records."""
    is_one_pass = len({batch.loader for batch in batches}) == 1
    is_disjoint = is_one_pass and all(batch.sampling is BatchSamplingKind.FIXED for batch in batches)
    return len(batches) > 1 and not is_disjoint


def _uses_all(step: PrivateStep, batches: list[Batch]) -> bool:
    """Return True if a step has at least two non-empty mini-batches, and clipped the gradients of all their records."""
    sizes = [len(batch.indices) for batch in batches if batch.indices]
    return step.rows is not None and len(sizes) > 1 and step.rows == sum(sizes)


def _partial_batch(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        sizes = [
            len(batch.indices)
            for _, batches in _fed(training)
            for batch in batches
            if batch.sampling is BatchSamplingKind.FIXED
        ]
        if len(sizes) > 1 and min(sizes) < max(sizes):
            return f"batches have {max(sizes)} records, and the last one {min(sizes)}: that tells the number of records"
    return ""


def _empty_skipped(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        used = {number for step in training.steps for number in step.batches if _is_used(step, number, training)}
        last = max(used, default=-1)
        gone = [
            number
            for number, batch in enumerate(training.batches[:last])
            if not batch.indices and batch.sampling is BatchSamplingKind.POISSON and number not in used
        ]
        if gone:
            return f"{len(gone)} samples without a record got no step"
    return ""


def _is_used(step: PrivateStep, number: int, training: RecordedTraining) -> bool:
    is_read = _uses_all(step, training.batches_of(step)) and bool(training.batches[number].indices)
    return number == step.batches[-1] or is_read


def _rows(training: RecordedTraining) -> Iterator[tuple[int, int]]:
    """Yield the number of per-record gradients of each batch where it is known, and the number of records in it.

    A batch may be clipped in parts that are added up, of which the last one brings the noise.
    """
    for step, batches in _fed(training):
        if step.rows is not None and step.is_fresh and batches:
            size = (
                sum(len(batch.indices) for batch in batches) if _uses_all(step, batches) else len(batches[-1].indices)
            )
            yield step.rows, size


def _cut_batch(trainings: RecordedTrainings) -> str:
    for training in trainings.private_trainings:
        for rows, size in _rows(training) if training.engines else ():
            if 1 < rows < size and not _is_clipped_as_one(training):
                return f"{size} records were drawn for a step, and it used {rows}"
    return ""


def _is_clipped_as_one(training: RecordedTraining) -> bool:
    """Return True if gradients were clipped for groups of several records, instead of for each record."""
    rows_and_sizes = [(rows, size) for rows, size in _rows(training) if size > 1 and rows]
    if not rows_and_sizes or all(rows == size for rows, size in rows_and_sizes):
        return False
    if all(rows == 1 for rows, _ in rows_and_sizes):
        return True
    copies = max(round(size / rows) for rows, size in rows_and_sizes)
    return copies > 1 and all(rows == -(-size // copies) for rows, size in rows_and_sizes)


def batch_clipping(trainings: RecordedTrainings) -> str:
    """Describe gradients that were clipped for several records together; "" if there are none."""
    for training in trainings.private_trainings:
        rows_and_sizes = [(rows, size) for rows, size in _rows(training) if size > 1]
        if rows_and_sizes and _is_clipped_as_one(training):
            rows, first_size = rows_and_sizes[0]
            return f"{first_size} records were clipped as {rows} gradient{'' if rows == 1 else 's'}"
    return ""


def _private_size(trainings: RecordedTrainings) -> str:
    runs = trainings.trace.runs if trainings.trace else ()
    follows_values = len({len(training.noised) for training in runs}) > 1
    for replay in trainings.replays:
        schedule = [change for change in replay.schedule if change[0] != "steps" or not follows_values]
        if schedule:
            name, first_value, second_value = schedule[0]
            return f"{name} is {first_value:.6g}, and {second_value:.6g} without one record"
    for training in trainings.private_trainings:
        used = {step.expected_batch for step in training.noised}
        for engine in training.engines:
            # If a user sets another expected batch, it does not follow the rule of Opacus.
            text = _dependence_on_size(engine) if used <= {engine.expected_batch} else ""
            if text:
                return text
    return ""


def _dependence_on_size(call: MakePrivateCall) -> str:
    """Describe how Opacus's batch size or number of steps would change with one record more or less; "" if not."""
    batch, records = call.loader_batch, call.records
    if batch is None or call.expected_batch is None or _by_rule(records, batch, call) != _seen(call):
        return ""
    for other_size in (records - 1, records + 1):
        rule = _by_rule(other_size, batch, call) if other_size > 0 else None
        if rule is not None and rule != _seen(call):
            names = zip(("expected batch", "number of steps"), _seen(call), rule, strict=True)
            name, first_size, two = next(
                (name, first_value, second_value)
                for name, first_value, second_value in names
                if first_value != second_value
            )
            return f"{name} is {first_size} with {records} records, and would be {two} with {other_size}"
    return ""


def _seen(call: MakePrivateCall) -> tuple[int, int]:
    return int(call.expected_batch or 0), call.batches


def _by_rule(records: int, batch: int, call: MakePrivateCall) -> tuple[int, int]:
    """Return the expected batch size and the steps per epoch that Opacus derives from the number of records."""
    length = max(1, records // batch) if call.is_last_dropped else batches_per_epoch(records, batch)
    rate = 1 / length
    steps = int(1 / rate) if call.sampling is BatchSamplingKind.POISSON else length
    # Opacus takes the length of the loader that it returns.
    return int(records * (1 / steps)), steps


SAMPLING_CHECKS: dict[Pitfall, Callable[[RecordedTrainings], str]] = {
    Pitfall.NO_POISSON: _no_poisson,
    Pitfall.OTHER_LOADER: _other_loader,
    Pitfall.FIXED_SAMPLE: _fixed_sample,
    Pitfall.REPEATED_BATCH: _repeated_batch,
    Pitfall.ACCUMULATION: _accumulation,
    Pitfall.PARTIAL_BATCH: _partial_batch,
    Pitfall.EMPTY_SKIPPED: _empty_skipped,
    Pitfall.CUT_BATCH: _cut_batch,
    Pitfall.BATCH_CLIPPING: batch_clipping,
    Pitfall.PRIVATE_SIZE: _private_size,
}
"""The checks of this module."""
