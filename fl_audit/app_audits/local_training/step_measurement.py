"""Measure what the steps of a training without Opacus release: their noise, and the effect of a record on them.

The training runs again with public numbers in the place of every gradient that is applied, and with the same random
numbers. Then the gradients of two runs differ by what is changed between them: the random numbers that are drawn after
the gradients of records are known (the noise), or the values of a record.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from fl_audit.app_audits.local_training.applied_gradients import AppliedGradient, ObservationPlan
from fl_audit.app_audits.local_training.edited_datasets import (
    length_of,
    with_other_labels,
    with_other_records,
    with_records,
)
from fl_audit.app_audits.local_training.gradient_statistics import (
    ROUNDING,
    NoiseScales,
    dependent_tensors,
    is_moved,
    is_normal,
    lengths,
    noise_samples,
    noise_scales,
    step_correlation,
    unit_noise,
)
from fl_audit.app_audits.local_training.leave_one_out_replay import KEPT_STEPS, Edit
from fl_audit.app_audits.local_training.output_tracing import ObservedRun
from fl_audit.app_audits.local_training.record_effect import RecordEffectSearch
from fl_audit.app_audits.local_training.recorded_trainings import MeasuredStep, MeasuredSteps, RecordEffect
from fl_audit.app_audits.local_training.training_facts import BatchSamplingKind, NotRepeatableError
from fl_audit.array_types import Floats, Floats32
from fl_audit.errors import InputError

_MOST_NUMBERS = 30_000_000  # numbers of gradients that are kept
_NOISE_NUMBERS = 20_000  # numbers of noise from which scales are estimated
_FEWEST_REDRAWS = 10  # so that noise in few directions is told from noise that is independent at the coordinates
_MOST_REDRAWS = 20
_COPIED = 0.999  # correlation from which on the noise of a step is a copy
_FAILURES = (InputError, IndexError, TypeError, KeyError, ValueError)


RunObserved = Callable[[Edit, ObservationPlan], ObservedRun]
"""A function that trains once on an edited data set, and observes its gradients."""


@dataclass(frozen=True)
class StepMeasurement:
    """Runs of a training with public numbers in the place of its gradients, and what they show."""

    first_run: ObservedRun  # with its own records
    again: ObservedRun  # the same once more
    with_other_records: tuple[ObservedRun, ...]
    redrawn: ObservedRun  # with its own records, and other noise
    steps: MeasuredSteps
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Trainings:
    """Caller of a training, with public numbers in the place of its gradients."""

    run: RunObserved
    kept_steps: int
    scales: tuple[float, ...]
    is_reset_at_draws: bool

    def whole(self, edit: Edit | None = None, redraw: int | None = None) -> ObservedRun:
        return self.first_steps(None, edit, redraw)

    def first_steps(
        self, count: int | None, edit: Edit | None = None, redraw: int | None = None, without: int | None = None
    ) -> ObservedRun:
        plan = ObservationPlan(self.kept_steps, self.scales, self.is_reset_at_draws, redraw, without, count)
        return self.run(edit or _unchanged, plan)

    def gradients_of(
        self, steps: Sequence[int], items: Mapping[int, Any], without: int | None = None, redraw: int | None = None
    ) -> dict[int, Floats32]:
        """Return the gradients of steps in a training with other records, by their numbers, if they are finite."""
        try:
            run = self.first_steps(max(steps) + 1, lambda data: with_records(data, items), redraw, without)
        except _FAILURES:  # records that the training does not accept
            return {}
        gradients = {step: values for step in steps for values in run.gradients([step])}
        return {step: values for step, values in gradients.items() if np.isfinite(values).all()}


def _unchanged(data: Any) -> Any:
    return data


def measured_steps(run: RunObserved, dataset: Any, first: Sequence[AppliedGradient], samples: int) -> StepMeasurement:
    """Measure the noise of a training's steps and the effect of a record on them.

    `first`: The gradients that the training applied when it ran without a change.

    `samples`: Number of samples of the noise of all steps, at least 1.

    Raises `NotRepeatableError` if the training, repeated from the same start, applies other gradients.
    """
    size = max((sum(map(math.prod, step.shapes)) for step in first), default=1)
    step_count = min(len(first), max(KEPT_STEPS, _MOST_NUMBERS // size))
    scales = tuple(step.scale if math.isfinite(step.scale) else 1.0 for step in first)
    # Mini-batches may be drawn at once before the first step: then what follows is not drawn for a step.
    is_drawn_for_steps = sum(step.is_fresh for step in first) > 1 or all(step.is_fresh for step in first)
    trainings = _Trainings(run, step_count, scales, is_drawn_for_steps)
    first_run, again = trainings.whole(), trainings.whole()
    if not _is_same(first_run, again):
        raise NotRepeatableError
    runs = _runs_with_other_records(trainings, dataset)
    redraws = [trainings.whole(redraw=number) for number in range(samples)]
    steps = [number for number in range(min(len(first_run.applied), step_count)) if _follows(number, first_run, runs)]
    steps_measured, unseen = list[MeasuredStep](), list[str]()
    effects, is_composable = list[RecordEffect](), True
    for group in _groups(first_run, steps):
        measured, effect, why, is_group_composable = _measured_group(
            trainings, dataset, group, [first_run, *redraws], runs
        )
        steps_measured += measured
        effects += [effect] if effect is not None else []
        unseen += why
        is_composable &= is_group_composable
    if step_count < len(first_run.applied):
        unseen.append(
            f"{len(first_run.applied) - step_count} of {len(first_run.applied)} steps, whose gradients are too "
            "many to be kept"
        )
    steps_measured.sort(key=lambda step: step.number)
    return StepMeasurement(
        first_run,
        again,
        runs,
        redraws[0],
        MeasuredSteps(tuple(steps_measured), tuple(effects), is_composable),
        tuple(unseen),
    )


def _is_same(run: ObservedRun, other_run: ObservedRun) -> bool:
    if [step.shapes for step in run.applied] != [step.shapes for step in other_run.applied]:
        return False
    everything = range(len(run.applied))
    pairs = zip(run.gradients(everything), other_run.gradients(everything), strict=True)
    return not any(is_moved(first, second) for first, second in pairs)


def _runs_with_other_records(trainings: _Trainings, dataset: Any) -> tuple[ObservedRun, ...]:
    """Return runs with other records, and with one label for all records unless the training does not accept that."""
    middle = length_of(dataset) // 2
    runs = [trainings.whole(lambda data: with_other_records(data, middle))]
    with suppress(*_FAILURES):
        runs.append(trainings.whole(lambda data: with_other_labels(data, is_one=True)))
    return tuple(runs)


def _follows(step: int, run: ObservedRun, other_runs: Sequence[ObservedRun]) -> bool:
    """Return True if a step applies another gradient with other records."""
    return any(
        step >= len(other_run.applied)
        or run.applied[step].shapes != other_run.applied[step].shapes
        or any(is_moved(*pair) for pair in zip(run.gradients([step]), other_run.gradients([step]), strict=True))
        for other_run in other_runs
    )


def _groups(run: ObservedRun, steps: Sequence[int]) -> list[list[int]]:
    """Return steps by their optimizer and the shapes of their tensors: each model of a training has its own group."""
    groups: dict[tuple[int, tuple[tuple[int, ...], ...]], list[int]] = {}
    for step in steps:
        groups.setdefault((run.applied[step].number, run.applied[step].shapes), []).append(step)
    return list(groups.values())


def _measured_group(
    trainings: _Trainings,
    dataset: Any,
    steps: Sequence[int],
    redraws: Sequence[ObservedRun],
    runs: Sequence[ObservedRun],
) -> tuple[list[MeasuredStep], RecordEffect | None, list[str], bool]:
    """Return the measured steps of one group, the effect of a record on them, and what could not be seen.

    The last of the result is whether epsilon follows from the multipliers of the steps.
    """
    first_run = redraws[0]
    noised_steps = [step for step in steps if first_run.applied[step].passes]
    unseen = list[str]()
    if len(noised_steps) < len(steps):
        unseen.append(
            f"the noise of {len(steps) - len(noised_steps)} steps, whose gradients torch.autograd did not compute"
        )
    if not noised_steps:
        return [], None, unseen, True
    sizes = [math.prod(shape) for shape in first_run.applied[noised_steps[0]].shapes]
    samples = noise_samples(
        [
            run.gradients(noised_steps)
            for run in [*redraws, *_short_redraws(trainings, noised_steps, sum(sizes), len(redraws) - 1)]
        ]
    )
    scales = noise_scales(samples, sizes, first_run.gradients(noised_steps))
    bare = _bare_tensors(scales, sizes, noised_steps, first_run, runs)
    if any(bare) and redraws[1].reads_numpy:
        unseen.append(
            "whether arrays of numpy that the steps use are noise, since drawing the generator numpy.random anew does "
            "not change them; draw noise by the generators of torch, numpy and Python that every module shares"
        )
        return [], None, unseen, True
    if any(bare) and first_run.moves_weights:
        unseen.append("the noise of weights that are changed beside the steps, which apply gradients without noise")
        return [], None, unseen, True
    shapes = first_run.applied[noised_steps[0]].shapes
    p_values = {
        tensor: p_value
        for tensor, p_value in dependent_tensors(samples, shapes).items()
        if (scales.scales[:, tensor] > 0).all()
    }
    unseen += [_dependence_words(tensor, p_value, shapes) for tensor, p_value in list(p_values.items())[:1]]
    effect = RecordEffectSearch(
        trainings.gradients_of,
        dataset,
        dict(zip(noised_steps, first_run.gradients(noised_steps), strict=True)),
        {step: np.repeat(row, sizes) for step, row in zip(noised_steps, scales.scales, strict=True)},
        _positions_by_step(first_run, noised_steps),
        trainings.is_reset_at_draws and _can_leave_out(first_run, noised_steps),
    ).effect()
    if effect is None:
        unseen.append("the effect of a record: none was found whose values move a step")
    if effect is not None and not effect.is_sum:
        unseen.append(
            f"noise and the effect of a record in {len(noised_steps)} steps: what is applied is no sum with noise, but "
            "follows both together, as a sign, a rounding or a clipping of a noised sum does; audit it with the noised "
            "sum itself in the gradients"
        )
        return [], None, unseen, True
    unseen += _coordinates_without_noise(samples, scales, sizes, noised_steps, first_run, runs)
    # Noise that is not independent at the coordinates looks correlated and not normal, and was named.
    doubts = [] if p_values else _composition_doubts(samples, scales.scales, sizes, effect)
    unseen += doubts
    measured = _steps(noised_steps, first_run, samples, scales, bare, effect, tuple(p_values))
    return measured, effect, unseen, not doubts


def _coordinates_without_noise(
    samples: Sequence[Sequence[Floats]],
    scales: NoiseScales,
    sizes: Sequence[int],
    steps: Sequence[int],
    run: ObservedRun,
    runs: Sequence[ObservedRun],
) -> list[str]:
    """Return a phrase on coordinates that follow the records and have no noise, in tensors that have some; or none."""
    counts = np.zeros(len(sizes), dtype=np.int64)
    for row, step in enumerate(steps):
        values = run.gradients([step])[0]
        rounding = ROUNDING * float(np.abs(values).max(initial=0.0))
        noise = np.max([np.abs(sample[row]) for sample in samples if row < len(sample)], axis=0, initial=0.0)
        moved = np.zeros(values.size)
        for other_run in runs:
            for changed in other_run.gradients([step]):
                moved = np.maximum(moved, np.abs(values - changed) if changed.shape == values.shape else 0.0)
        is_bare = (noise <= rounding) & (moved > rounding) & (np.repeat(scales.scales[row], sizes) > 0)
        counts += [int(coordinates.sum()) for coordinates in np.split(is_bare, np.cumsum(sizes)[:-1])]
    if not counts.any():
        return []
    tensor = int(counts.argmax())
    return [
        f"the noise of {counts[tensor]} numbers of tensor {tensor + 1} of {len(sizes)}: it is zero there in some step, "
        "and they follow the records; add noise to all rows of a tensor, whether a sample moves them or not"
    ]


def _composition_doubts(
    samples: Sequence[Sequence[Floats]], scales: Floats, sizes: Sequence[int], effect: RecordEffect | None
) -> list[str]:
    """Return why epsilon does not follow from the noise multipliers of steps, in the order of the reasons."""
    doubts = list[str]()
    if effect is not None and effect.is_noise_moved:
        return doubts
    noise = unit_noise(samples, scales, sizes)
    correlation = step_correlation(noise)
    if correlation is not None and abs(correlation[2]) < _COPIED:
        doubts.append(
            f"what steps spend together: their noise is not independent (correlation {correlation[2]:.2g} of steps "
            f"{correlation[0] + 1} and {correlation[1] + 1}), as where it is correlated on purpose, or where noised "
            "sums are averaged over steps before they are applied; audit it with the noised sum of each step in the "
            "gradients"
        )
    if not is_normal(noise) and not doubts:
        doubts.append(
            "which epsilon the noise gives: it is not normal with one scale for each tensor, as epsilon assumes"
        )
    if effect is not None and effect.is_later_noise_moved and not doubts:
        doubts.append(
            "whether the scale of the noise of later steps, which follows a record of earlier ones, is private, as a "
            "clipping norm that follows a noised count is"
        )
    return doubts


def _dependence_words(tensor: int, p_value: float, shapes: Sequence[tuple[int, ...]]) -> str:
    """Return what was seen of noise that is not independent at the coordinates, and why its size is not known."""
    size = " x ".join(map(str, shapes[tensor]))
    return (
        f"how large the noise is along the effect of a record, and with it epsilon: in tensor {tensor + 1} of "
        f"{len(shapes)} ({size}) the noise is not independent at the coordinates (p-value {p_value:.1g}), as where "
        "noise of few dimensions is multiplied out, and its size is measured at each coordinate; audit the step on "
        "what the noise is added to"
    )


def _positions_by_step(run: ObservedRun, steps: Sequence[int]) -> dict[int, list[int]]:
    """Return the positions of the records of each step, as a loader drew them."""
    training = run.training
    return {
        step: [index for number in run.applied[step].batches for index in training.batches[number].indices]
        for step in steps
    }


def _can_leave_out(run: ObservedRun, steps: Sequence[int]) -> bool:
    """Return True if a record can be left out of the mini-batches of steps, and all else stays the same.

    Poisson samples differ by a record where the data set does. Batches of a fixed size do not, and what draws between
    the mini-batch and its gradients (dropout) draws otherwise for a smaller one.
    """
    batches = [run.training.batches[number] for step in steps for number in run.applied[step].batches]
    is_poisson = all(batch.sampling is BatchSamplingKind.POISSON for batch in batches)
    return bool(batches) and is_poisson and not any(run.applied[step].is_random for step in steps)


def _short_redraws(trainings: _Trainings, steps: Sequence[int], size: int, redraws: int) -> list[ObservedRun]:
    """Return more runs of the first steps with other noise, as many as its scale needs to be known well."""
    needed = -(-_NOISE_NUMBERS // (size * min(len(steps), KEPT_STEPS)))
    count = min(_MOST_REDRAWS, max(_FEWEST_REDRAWS, needed)) - redraws
    last = steps[:KEPT_STEPS][-1] + 1
    return [trainings.first_steps(last, redraw=redraws + number) for number in range(max(0, count))]


def _bare_tensors(
    scales: NoiseScales, sizes: Sequence[int], steps: Sequence[int], run: ObservedRun, runs: Sequence[ObservedRun]
) -> list[tuple[int, ...]]:
    """Return, for each step, the numbers of the tensors that follow the records and have no noise."""
    bare_shapes = list[tuple[int, ...]]()
    for row, step in enumerate(steps):
        values = run.gradients([step])[0]
        moved = np.zeros(len(sizes))
        for other_run in runs:
            for changed in other_run.gradients([step]):
                moved = np.maximum(moved, lengths(values - changed, sizes) if values.shape == changed.shape else 0.0)
        rounding = ROUNDING * float(np.abs(values).max(initial=0.0)) * np.sqrt(sizes)
        bare_shapes.append(tuple(np.flatnonzero((scales.scales[row] <= 0) & (moved > rounding)).tolist()))
    return bare_shapes


def _steps(
    steps: Sequence[int],
    run: ObservedRun,
    samples: Sequence[Sequence[Floats]],
    scales: NoiseScales,
    bare: Sequence[tuple[int, ...]],
    effect: RecordEffect | None,
    dependent: tuple[int, ...],
) -> list[MeasuredStep]:
    steps_measured = list[MeasuredStep]()
    for row, step in enumerate(steps):
        mu = math.inf if bare[row] else (0.0 if effect is None else effect.over_noise[row])
        smallest = mu if effect is None or bare[row] else effect.least_over_noise[row]
        multiplier, largest = (1 / value if value > 0 else math.inf for value in (mu, smallest))
        length = 1.0 if effect is None else effect.length
        # Samples are given the width that the multiplier and the length name, in every tensor.
        shapes = run.applied[step].shapes
        widths = np.repeat(scales.scales[row], [math.prod(shape) for shape in shapes])
        unit = [
            np.divide(sample[row], widths, out=np.zeros_like(widths), where=widths > 0)
            for sample in samples
            if row < len(sample)
        ]
        steps_measured.append(
            MeasuredStep(
                step, multiplier, largest * scales.largest_factor, length, bare[row], shapes, tuple(unit), dependent
            )
        )
    return steps_measured
