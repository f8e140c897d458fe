"""Record and replay: repeat training steps with and without one record, under the same recorded randomness.

A replay starts every step from the weights and the random state of the recorded training, and uses the recorded
mini-batch without the record. Then the sums of clipped gradients may differ by at most the clipping norm, and the
gradients of all other records must be equal. So no statistical test is needed. (The idea is from dp-recorder.)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fl_audit.app_audits.local_training.edited_datasets import (
    crafted_record,
    most_dissimilar,
    record_at,
    with_record,
    without_record,
)
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.training_facts import (
    NotRepeatableError,
    PrivateStep,
    RecordedTraining,
    ReplayInputs,
)
from fl_audit.array_types import Floats
from fl_audit.generator_states import GeneratorStates

Edit = Callable[[Any], Any]
Run = Callable[[Recorder, Edit], RecordedTraining]
"""A function that trains once with a recorder, on an edited data set, and returns the recorded training."""

KEPT_STEPS = 6
"""Steps of a training that are compared."""
_LONG = 60  # steps beyond which replays end when enough steps are compared
NOISE_TOLERANCE = 1e-3
"""Difference of the noise of two replays, over its claimed scale, that rounding explains."""
_SEARCHED_DIRECTIONS = 16  # random directions in which nearest gradients are looked for
_TOLERANCE = 1e-4  # of the clipping norm, and of the largest gradient: sums of float32 in another order


@dataclass(frozen=True)
class LeaveOneOutEffect:
    """Effect of one record on a training's sums of clipped gradients, when it is left out or replaced.

    Steps of the training are compared with the same steps of a replay without the record.
    """

    record: str  # description of the record
    index: int  # position of the record in the data set, from 0
    is_replaced: bool  # True if another record took its place, False if it was left out
    steps: int  # number of steps that were compared
    taking: int  # number of compared steps whose mini-batch contained the record
    claimed: float  # largest difference of the sums that the claim allows, in units of the clipping norm
    moved: float  # largest observed difference of the sums, in units of the clipping norm
    moved_absent: float  # the same over steps whose mini-batch did not contain the record
    # Largest difference of a gradient of another record, over the largest gradient; None if it is not known.
    gradient_change_of_others: float | None
    tensors: tuple[float, ...]  # largest difference of each tensor of the sums, in units of the clipping norm
    larger_steps: int  # number of steps of the training with the record
    smaller_steps: int  # number of steps of the training without the record
    schedule: tuple[tuple[str, float, float], ...] = ()  # settings that changed: name, value with and without it
    # Largest difference of a coordinate of the noise, over its claimed scale; None if the noise differs by itself.
    noise_moved: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the sums of clipped gradients differ by no more than the claim allows.

        In steps whose mini-batch does not contain the record, the sums must be equal up to rounding.
        """
        return self.moved <= self.claimed + _TOLERANCE and self.moved_absent <= _TOLERANCE

    @property
    def is_coupled(self) -> bool:
        """Whether the record influences the gradients of other records."""
        if self.gradient_change_of_others is None:
            return self.moved_absent > _TOLERANCE
        return self.gradient_change_of_others > _TOLERANCE or self.moved_absent > _TOLERANCE

    @property
    def acts_undrawn(self) -> bool:
        """Whether the record acts on sums for which it was not drawn, as far as is known."""
        return self.moved_absent > _TOLERANCE or (self.is_coupled and self.taking == self.steps)


def replays(run: Run, dataset: Any) -> tuple[LeaveOneOutEffect, ...]:
    """Measure the effect of three records on a training, by replaying it without each of them.

    The records are a typical one, the most dissimilar one and a crafted one with large values. If a replay without a
    record cannot be compared, another record takes its place. Effects that could not be compared are left out. The
    result is empty if the training drew no record or added no noise.
    """
    generator_states = GeneratorStates.current()
    first = _recorded(run, lambda data: data, generator_states)
    dataset, track = first[0].dataset if dataset is None else dataset, first[0].track
    # Draws from other data sets, such as public ones, do not change.
    private = [batch for number, batch in enumerate(track.batches) if track.is_private(number)]
    counter = Counter(record for batch in private[: 2 * KEPT_STEPS] for record in batch)
    if not counter or not first[1].noised:
        return ()
    again = _repeated(run, first, generator_states, len(first[1].noised) > _LONG)
    if again is None or again.moved > _TOLERANCE:
        raise NotRepeatableError
    has_same_noise = again.noise_moved is not None and again.noise_moved <= NOISE_TOLERANCE
    usual = counter.most_common(1)[0][0]
    odd = most_dissimilar(dataset, sorted(counter))
    large, is_long = crafted_record(record_at(dataset, odd)), len(first[1].noised) > _LONG

    def with_large(data: Any) -> Any:
        return with_record(data, odd, large)

    crafted = _recorded(run, with_large, generator_states, None, is_long)

    def compared(changed_dataset: Any) -> tuple[LeaveOneOutEffect, ...]:
        replayed = [
            _replayed(run, "a record", usual, lambda data: data, first, generator_states, changed_dataset, is_long),
            _replayed(
                run,
                "the most dissimilar record",
                odd,
                lambda data: data,
                first,
                generator_states,
                changed_dataset,
                is_long,
            ),
            _replayed(run, "a crafted record", odd, with_large, crafted, generator_states, changed_dataset, is_long),
        ]
        effects = tuple(effect for effect in replayed if effect is not None)
        return effects if has_same_noise else tuple(replace(effect, noise_moved=None) for effect in effects)

    another = record_at(dataset, 0 if usual else 1)
    # Layers that draw would draw otherwise for a smaller batch: there another record takes the place. So it does where
    # no step without the record can be compared, as where a loader draws fewer parts of a batch without it.
    return compared(another) if first[0].is_random else compared(None) or compared(another)


def _repeated(
    run: Run, led: tuple[Recorder, RecordedTraining], generator_states: GeneratorStates, is_short: bool
) -> LeaveOneOutEffect | None:
    """Return how a replay with the same records differs from the training that it follows; None if in its steps."""
    leader, longer = led
    _, again = _recorded(run, lambda data: data, generator_states, leader.track, is_short)
    pairs = [pair for pair in _pairs(longer, again) if all(step.total is not None for step in pair)]
    fresh_sums = sum(step.total is not None for step in longer.whole_steps if step.is_fresh)
    if not pairs or len(pairs) < fresh_sums:
        return None
    return _compared("nothing", -1, True, pairs, longer, again, is_short)


def _recorded(
    run: Run,
    edit: Edit,
    generator_states: GeneratorStates,
    followed: ReplayInputs | None = None,
    is_short: bool = False,
) -> tuple[Recorder, RecordedTraining]:
    generator_states.restore()
    recorder = Recorder(KEPT_STEPS, followed, is_short)
    return recorder, run(recorder, edit)


def _replayed(
    run: Run,
    name: str,
    index: int,
    edit: Edit,
    led: tuple[Recorder, RecordedTraining],
    generator_states: GeneratorStates,
    changed_dataset: Any,
    is_short: bool,
) -> LeaveOneOutEffect | None:
    """Repeat a training without record `index`, or with `changed_dataset` in its place, and return the record's effect.

    `led` holds the recorder of the first training and what it recorded. The result is None if no step of the two
    trainings can be compared.
    """
    leader, longer = led

    def changed(data: Any) -> Any:
        return (
            without_record(edit(data), index)
            if changed_dataset is None
            else with_record(edit(data), index, changed_dataset)
        )

    track = leader.track.without(index) if changed_dataset is None else leader.track
    _, shorter = _recorded(run, changed, generator_states, track, is_short)
    pairs = list(_pairs(longer, shorter))
    last = max((index for index, pair in enumerate(pairs) if all(step.total is not None for step in pair)), default=-1)
    pairs = pairs[: last + 1]
    # Of a training that was ended early only what its engine was made with says something of its schedule.
    return _compared(name, index, changed_dataset is not None, pairs, longer, shorter, is_short) if pairs else None


def _pairs(training: RecordedTraining, shorter: RecordedTraining) -> Iterator[tuple[PrivateStep, PrivateStep]]:
    """Yield pairs of steps that the trainings with and without a record took on the same mini-batch.

    Of several steps on a mini-batch only the first is used, because only it starts from the recorded weights.
    """
    steps_by_batches = {step.batches[-1:]: step for step in shorter.whole_steps if step.is_fresh}
    for step in training.whole_steps:
        if step.is_fresh and step.batches[-1:] in steps_by_batches:
            yield step, steps_by_batches[step.batches[-1:]]


def _compared(
    name: str,
    index: int,
    is_replaced: bool,
    pairs: list[tuple[PrivateStep, PrivateStep]],
    training: RecordedTraining,
    shorter: RecordedTraining,
    is_short: bool,
) -> LeaveOneOutEffect:
    moved, absent, other_gaps, taking, compared = 0.0, 0.0, list[float](), 0, 0
    tensors, is_in = np.zeros(len(pairs[-1][0].sizes)), False
    for step, two in pairs:
        positions = [index for batch in training.batches_of(step) for index in batch.indices]
        # The record may have been in an earlier part of the sample that ends here.
        is_in |= index in positions
        gap = _gap(step.gradients, two.gradients, positions, index, is_replaced)
        other_gaps += [] if gap is None else [gap]
        if step.total is None or two.total is None:
            continue
        gaps = np.split(step.total - two.total, np.cumsum(step.sizes)[:-1])
        lengths = np.array([float(np.linalg.norm(gap)) / step.norm for gap in gaps])
        tensors, differs = np.maximum(tensors, lengths), float(np.linalg.norm(lengths))
        moved, absent = max(moved, differs), absent if is_in else max(absent, differs)
        taking, compared, is_in = taking + is_in, compared + 1, False
    claimed = 2.0 if is_replaced else 1.0
    return LeaveOneOutEffect(
        name,
        index,
        is_replaced,
        compared,
        taking,
        claimed,
        moved,
        absent,
        max(other_gaps, default=None),
        tuple(tensors.tolist()),
        len(training.noised),
        len(shorter.noised),
        () if is_replaced else tuple(_schedule(training, shorter, is_short)),
        max((gap for pair in pairs if (gap := _noise_gap(*pair)) is not None), default=None),
    )


def _noise_gap(step: PrivateStep, two: PrivateStep) -> float | None:
    """Return the largest difference of the noise of two steps, over its claimed scale; None without noise."""
    scale = step.gradient_multiplier * step.norm
    if step.total is None or step.noise is None or two.noise is None or scale <= 0:
        return None
    if step.noise.sample.shape != two.noise.sample.shape:
        return None
    # What float32 rounds off a sum is no noise.
    rounding = 1e-5 * float(np.abs(step.total).max(initial=0.0))
    return max(0.0, float(np.abs(step.noise.sample - two.noise.sample).max()) - rounding) / scale


def _gap(
    first_rows: Floats | None, two: Floats | None, positions: list[int], index: int, is_replaced: bool
) -> float | None:
    """Return the largest difference between the gradients of a step's records with and without the record at `index`.

    With `is_replaced`, the second step may have another record in its place. Row i of `first_rows` is the gradient of
    the record at position `positions[i]`. The difference is divided by the largest gradient. None if gradients are
    missing or their shapes differ.
    """
    if first_rows is None or two is None or len(first_rows) != len(positions):
        return None
    keep = [row for row, position in enumerate(positions) if position != index]
    first_kept, second_kept = first_rows[keep], two[keep] if is_replaced and len(two) == len(positions) else two
    if first_kept.shape != second_kept.shape:
        return None
    scale = max(float(np.abs(first_kept).max(initial=0.0)), 1e-12)
    gap = float(np.abs(first_kept - second_kept).max(initial=0.0)) / scale
    # A training may put the records of its mini-batch in an order of its own.
    return gap if gap <= _TOLERANCE else min(gap, _gap_in_any_order(first_rows, two, is_replaced) / scale)


def _gap_in_any_order(first_rows: Floats, second_rows: Floats, is_replaced: bool) -> float:
    """Return the largest distance of a gradient of the second step from the nearest one of the first step.

    With `is_replaced`, the gradient that is farthest is that of the record that took another's place, and is left out.
    """
    directions = np.random.default_rng(0).standard_normal((first_rows.shape[1], _SEARCHED_DIRECTIONS))
    first_marks, second_marks = first_rows @ directions, second_rows @ directions
    nearest = [int(((first_marks - mark) ** 2).sum(axis=1).argmin()) for mark in second_marks]
    distances = np.sort(np.abs(second_rows - first_rows[nearest]).max(axis=1, initial=0.0))
    compared = distances[:-1] if is_replaced else distances
    return float(compared.max(initial=0.0))


def _schedule(
    training: RecordedTraining, shorter: RecordedTraining, is_short: bool
) -> Iterable[tuple[str, float, float]]:
    """Yield the settings of DP-SGD that depend on the left-out record: name, value with it, value without it.

    The number of steps is not compared if the replay ended early (`is_short`).
    """
    for step, right in zip(training.noised[:1], shorter.noised[:1], strict=False):
        if step.expected_batch != right.expected_batch:
            yield "expected batch", float(step.expected_batch or 0), float(right.expected_batch or 0)
    for engine, two in zip(training.engines[:1], shorter.engines[:1], strict=False):
        if engine.rate != two.rate:
            yield "sampling rate", engine.rate, two.rate
        if engine.noise_multiplier != two.noise_multiplier:
            yield "noise multiplier", engine.noise_multiplier, two.noise_multiplier
    if not is_short and len(training.noised) != len(shorter.noised) and len(training.batches) != len(shorter.batches):
        yield "steps", len(training.noised), len(shorter.noised)
