"""Evidence on a training without Opacus: its steps, as measured, in the form of those that Opacus takes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fl_audit.app_audits.local_training.applied_gradients import AppliedGradient
from fl_audit.app_audits.local_training.leave_one_out_replay import LeaveOneOutEffect
from fl_audit.app_audits.local_training.opacus_introspection import HEAD, SAMPLE, statistics_of
from fl_audit.app_audits.local_training.output_tracing import ObservedRun, OutputTrace, traced
from fl_audit.app_audits.local_training.recorded_trainings import (
    MeasuredStep,
    MeasuredSteps,
    RecordedTrainings,
    RecordEffect,
)
from fl_audit.app_audits.local_training.step_measurement import StepMeasurement
from fl_audit.app_audits.local_training.training_facts import Noise, PrivateStep, RecordedTraining
from fl_audit.array_types import Floats
from fl_audit.verdict.noise_statistics import NoiseStatistics


def with_measured_steps(
    evidence: RecordedTrainings, called: Sequence[ObservedRun], measurement: StepMeasurement
) -> tuple[RecordedTrainings, list[str]]:
    """Return evidence with the measured steps of its trainings, and what the measurement could not see.

    `called`: The runs of the trainings as they are, in the order of `evidence.repeated`.
    """
    repeats = len(called) > 1 and _draws_again(called[0], called[1])
    trainings = tuple(
        _with_steps(run, measurement.steps, 0 if repeats else number) for number, run in enumerate(called)
    )
    trace, in_doubt = _trace(measurement)
    unseen = [*measurement.unseen, *in_doubt]
    if not measurement.first_run.applied:
        unseen.append("its steps: no optimizer of torch took one")
    optimizers = dict.fromkeys(name for run in (*called, measurement.first_run) for name in run.own_optimizers)
    unseen += [f"the steps of {name}, which changes weights by code of its own" for name in optimizers]
    measured_trainings = replace(
        evidence,
        trainings=trainings[: len(evidence.trainings)],
        repeated=trainings,
        trace=trace,
        measured=measurement.steps,
        replays=tuple(_replay(effect) for effect in measurement.steps.effects),
    )
    return measured_trainings, [*unseen, *_doubts(measured_trainings, measurement.steps)]


def _doubts(trainings: RecordedTrainings, measured: MeasuredSteps) -> list[str]:
    """Return what stays unknown of the effect of a record, where it decides on the claim."""
    doubts = list[str]()
    if any(effect.is_growing and not effect.is_unbounded for effect in measured.effects):
        doubts.append("what bounds the effect of a record: it grows with its values, and is small beside the noise")
    if all(effect.has_absence for effect in measured.effects) or trainings.claimed is None:
        return doubts
    privacy = trainings.composed_of(trainings.claimed_rounds, factor=2.0)
    if privacy is not None and privacy.epsilon > trainings.claimed:
        doubts.append(
            "the whole effect of a record: values of it were compared, of which one has at least the effect that is "
            "counted, and no value without an effect was found"
        )
    return doubts


def _draws_again(run: ObservedRun, second_run: ObservedRun) -> bool:
    """Return True if two trainings applied the same gradients, with their own noise."""
    pairs = [
        (gradient.values, right.values)
        for gradient, right in zip(run.applied, second_run.applied, strict=False)
        if gradient.values is not None and right.values is not None
    ]
    return bool(pairs) and all(np.array_equal(first, second) and bool(first.any()) for first, second in pairs)


def _with_steps(run: ObservedRun, measured: MeasuredSteps, sample: int) -> RecordedTraining:
    steps = [step for step in measured.steps if step.number < len(run.applied)]
    # Where mini-batches were drawn at once before the first step, it is not known which of them a step takes.
    first = next((number for number, gradient in enumerate(run.applied) if gradient.batches), 0)
    is_drawn_at_once = any(not gradient.batches for gradient in run.applied[first:])
    applied = [replace(gradient, batches=()) if is_drawn_at_once else gradient for gradient in run.applied]
    is_unbounded = any(effect.is_unbounded for effect in measured.effects)
    is_predictable = any(gradient.is_predictable for gradient in run.applied)
    private_steps = (_private_step(applied[step.number], step, sample, is_unbounded, is_predictable) for step in steps)
    answers = (
        replace(answer, after=sum(step.number < answer.after for step in steps)) for answer in run.training.answers
    )
    return replace(run.training, steps=tuple(private_steps), answers=tuple(answers))


def _private_step(
    applied: AppliedGradient, step: MeasuredStep, sample: int, is_unbounded: bool, is_predictable: bool
) -> PrivateStep:
    # A multiplier of zero is a step that no noise covers.
    multiplier, largest = (0.0, 0.0) if is_unbounded else (step.multiplier, step.largest_multiplier)
    scale = step.effect * (multiplier or float(not step.bare_tensors))
    unit = step.samples[sample % len(step.samples)]
    noise = Noise(
        unit.size,
        float((unit**2).sum()) * scale**2,
        tuple(np.round(unit[:HEAD], 5).tolist()),
        scale * unit[:SAMPLE],
        applied.seed,
        is_predictable,
        step.shapes,
        _statistics(scale * unit, step),
    )
    return PrivateStep(
        applied.optimizer,
        applied.batches,
        applied.is_fresh,
        None,
        True,
        True,
        multiplier,
        step.effect,
        applied.learning_rate,
        noise,
        sizes=tuple(int(np.prod(shape)) for shape in step.shapes),
        largest_multiplier=largest,
    )


def _statistics(noise: Floats, step: MeasuredStep) -> NoiseStatistics | None:
    return None if step.bare_tensors else statistics_of(noise, np.zeros_like(noise), step.shapes)


def _replay(effect: RecordEffect) -> LeaveOneOutEffect:
    """Return the effect of a record in units of itself: no clipping norm is stated that it could exceed."""
    return LeaveOneOutEffect(
        "a crafted record",
        effect.index,
        not effect.has_absence,
        effect.compared,
        effect.taking,
        1.0,
        1.0,
        0.0 if effect.is_later_noise_moved else effect.undrawn,
        effect.coupling if effect.is_coupled else None,
        (),
        effect.compared,
        effect.compared,
        (),
        effect.noise_moved,
    )


def _trace(measurement: StepMeasurement) -> tuple[OutputTrace, list[str]]:
    """Return what follows the records otherwise than by steps, without noise; and a word on what has noise."""
    first_run = measurement.first_run
    trace = traced(first_run, measurement.again, measurement.with_other_records)
    before, after = first_run.outputs, measurement.redrawn.outputs
    # Noise is drawn anew by the generators of torch, numpy and Python, once gradients were computed.
    is_drawn_anew = first_run.passes > 0 and not measurement.redrawn.reads_numpy
    noised = [
        name
        for name in trace.arrays
        if not is_drawn_anew or name not in after or after[name].digest != before[name].digest
    ]
    runs = tuple(_with_rates(run) for run in (first_run, *measurement.with_other_records))
    bare = tuple(name for name in trace.arrays if name not in noised)
    unseen = (
        f"the noise of {', '.join(noised[:3])}: what leaves there follows the records and random numbers otherwise "
        "than by steps of torch's optimizers"
    )
    return replace(trace, arrays=bare, runs=runs), [unseen] if noised else []


def _with_rates(run: ObservedRun) -> RecordedTraining:
    """Return a training with steps that have the learning rates of the run."""
    steps = (
        PrivateStep(
            gradient.optimizer,
            gradient.batches,
            gradient.is_fresh,
            None,
            True,
            True,
            0.0,
            1.0,
            gradient.learning_rate,
            None,
        )
        for gradient in run.applied
    )
    return replace(run.training, steps=tuple(steps))


def learned_without_opacus(applied: Mapping[str, int]) -> str:
    """Return a sentence on steps without Opacus for which no claim is named."""
    counts = ", ".join(f"{count} of {name}" for name, count in applied.items())
    return (
        f"steps without Opacus ({counts}), since no epsilon is named; with --claim-epsilon and --claim-delta their "
        "noise and clipping are measured"
    )
