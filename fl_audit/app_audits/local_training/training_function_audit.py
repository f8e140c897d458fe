"""Audit a training function without a federation: call it as its users do, record its steps, and assess them."""

import copy
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fl_audit.app_audits.local_training.applied_gradients import GradientObserver, ObservationPlan, observed_gradients
from fl_audit.app_audits.local_training.assessment import Assessment, assess
from fl_audit.app_audits.local_training.edited_datasets import (
    is_sized,
    length_of,
    with_other_labels,
    with_other_records,
)
from fl_audit.app_audits.local_training.hand_written_training import learned_without_opacus, with_measured_steps
from fl_audit.app_audits.local_training.leave_one_out_replay import KEPT_STEPS, Edit, LeaveOneOutEffect, replays
from fl_audit.app_audits.local_training.output_tracing import (
    ObservedRun,
    OutputTrace,
    files_written,
    outputs_in,
    stamps_in,
    traced,
)
from fl_audit.app_audits.local_training.patches import recorded
from fl_audit.app_audits.local_training.recorded_trainings import MeasuredSteps, RecordedTrainings
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.step_measurement import measured_steps
from fl_audit.app_audits.local_training.training_facts import (
    NOT_REPEATABLE,
    NotRepeatableError,
    RecordedTraining,
    StopReplay,
)
from fl_audit.errors import InputError, in_a_line, require
from fl_audit.generator_states import GeneratorStates
from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class TrainingAuditOptions:
    """Claims and settings that a user gives for the audit of a training function."""

    rounds: int = 1  # number of rounds of the whole training; the function is called once per round
    calls: int = 2  # number of rounds that the audit runs
    epsilon: float | None = None  # epsilon claimed over all rounds; None to use the epsilon that its accountant reports
    delta: float | None = None  # claimed delta; None to use the delta for which its accountant is asked
    records_per_user: int = 1  # largest number of records of one person


def audit_training(
    function: Callable[..., Any],
    name: str,
    model: Any,
    dataset: Any,
    options: TrainingAuditOptions,
    directory: Path | None = None,
) -> Assessment:
    """Call a training function, record its DP-SGD steps, and assess them against the claim.

    Shapes: `function` (model, dataset).
    """
    require_number("rounds are", options.rounds, "whole numbers from 1")
    require_number("calls are", options.calls, "whole numbers from 1")
    names = arguments_of(function, name)
    arguments = {"model": model, "dataset": dataset}
    for argument in names:
        require(
            arguments[argument] is not None,
            f"{name} takes a {argument}, and none is named: accepted is --{_FLAG[argument]}",
        )
    runner = _Runner(function, name, model, dataset, names, directory)
    generator_states = GeneratorStates.current()
    calls = max(1, min(options.calls, max(options.rounds, 2)))
    # A function that is called once is called again all the same: only so is seen whether it repeats its noise.
    recorders = [Recorder() for _ in range(calls)]
    observed = [
        runner.observed(recorder, _unchanged, ObservationPlan(KEPT_STEPS), number)
        for number, recorder in enumerate(recorders, 1)
    ]
    called = [run.training for run in observed]
    trainings = RecordedTrainings(
        tuple(called[: options.rounds]),
        options.rounds,
        tuple(called),
        delta=options.delta,
        epsilon=options.epsilon,
        records_per_user=options.records_per_user,
    )
    if not trainings.is_private:
        return _audit_without_opacus(runner, trainings, observed, generator_states)
    if "dataset" not in names or not is_sized(dataset):
        why = "it takes no data set" if "dataset" not in names else "records of its data set cannot be taken out"
        return assess(name, trainings, [f"replays without a record, and with other records, since {why}"])
    try:
        again, unseen = _replayed(runner, recorders[0].dataset)
    except NotRepeatableError:
        return assess(name, trainings, [NOT_REPEATABLE])
    trace = runner.trace(generator_states)
    return assess(name, replace(trainings, replays=again, trace=trace), unseen)


def _audit_without_opacus(
    runner: "_Runner", trainings: RecordedTrainings, called: Sequence[ObservedRun], generator_states: GeneratorStates
) -> Assessment:
    """Measure the steps that optimizers of torch take without Opacus, and assess them against the claim.

    `called`: The runs of the function as it is.

    `generator_states`: The random states with which every measured run begins.
    """
    applied, name = called[0].applied, runner.name
    claims = [trainings.epsilon, *(answer.epsilon for run in called for answer in run.training.answers)]
    if all(claim is None for claim in claims):
        counts = Counter(step.optimizer for step in applied)
        return assess(name, trainings, [learned_without_opacus(counts)] if applied else [])
    takes_dataset = "dataset" in runner.argument_names
    if not takes_dataset or not is_sized(runner.dataset):
        why = "its data set has no records by position" if takes_dataset else "it takes no data set"
        unseen = f"its steps, which are taken without Opacus: records cannot be replaced, since {why}"
        return assess(name, replace(trainings, measured=MeasuredSteps()), [unseen])

    seed = int(generator_states.digests()["torch"][:15], 16)

    def run(edit: Edit, plan: ObservationPlan) -> ObservedRun:
        generator_states.restore()
        return runner.observed(Recorder(without=plan.without), edit, replace(plan, seed=seed))

    try:
        measurement = measured_steps(run, runner.dataset, applied, len(called))
    except NotRepeatableError:
        return assess(name, replace(trainings, measured=MeasuredSteps()), [NOT_REPEATABLE])
    return assess(name, *with_measured_steps(trainings, called, measurement))


def _replayed(runner: "_Runner", inner: Any) -> tuple[tuple[LeaveOneOutEffect, ...], list[str]]:
    """Return the effects of single records, and what the replays could not see.

    `inner` is the data set that the first engine was given; None if there was no engine.
    """
    if inner is not None and length_of(inner) != length_of(runner.dataset):
        # The choice of records for the engine may depend on their number: leaving one out then shows nothing.
        unseen = "which records the function chooses for its engine, since replays leave one out behind that"
        return replays(runner.train_at_engine, None), [unseen]
    return replays(runner.train, runner.dataset), []


def _unchanged(data: Any) -> Any:
    return data


_FLAG = {"model": "model", "dataset": "data"}


def arguments_of(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Return the arguments that a training function needs: ("model", "dataset"), ("dataset",) or ()."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [
        parameter
        for parameter in signature(function).parameters.values()
        if parameter.kind in kinds and parameter.default is Parameter.empty
    ]
    accepted = "accepted are train(model, dataset), train(dataset) and train(), and more arguments with defaults"
    require(len(parameters) < 3, f"{name} takes {len(parameters)} arguments: {accepted}")
    return (("model", "dataset")[-len(parameters) :]) if parameters else ()


@dataclass(frozen=True)
class _Runner:
    """Caller of a training function, which gives it fresh copies of its arguments."""

    function: Callable[..., Any]
    name: str
    model: Any
    dataset: Any
    argument_names: tuple[str, ...]  # arguments that the function takes
    directory: Path | None = None  # directory whose files are looked at; None for no files

    def train(self, recorder: Recorder, edit: Edit) -> RecordedTraining:
        """Call the function on the data set that `edit` returns; raises `InputError` if it fails."""
        return self.run(recorder, edit).training

    def train_at_engine(self, recorder: Recorder, edit: Edit) -> RecordedTraining:
        """Call the function with its own data; `edit` changes only the data set that Opacus's engine receives."""
        recorder.edit = edit
        return self.run(recorder, _unchanged).training

    def observed(self, recorder: Recorder, edit: Edit, plan: ObservationPlan, number: int = 1) -> ObservedRun:
        """Call the function on the data set that `edit` returns, and observe the gradients that it applies."""
        observer = GradientObserver(recorder, plan)
        with observed_gradients(observer):
            run = self.run(recorder, edit, number)
        return replace(
            run,
            applied=tuple(observer.applied),
            reads_numpy=observer.reads_numpy,
            own_optimizers=tuple(observer.own_optimizers),
            passes=observer.passes,
            moves_weights=observer.moves_weights,
        )

    def run(self, recorder: Recorder, edit: Edit, number: int = 1) -> ObservedRun:
        """Call the function on the data set that `edit` returns, and return its steps and its outputs."""
        arguments = {"model": copy.deepcopy(self.model), "dataset": edit(self.dataset)}
        before, printed = stamps_in(self.directory), io.StringIO()
        try:
            with recorded(recorder), redirect_stdout(printed):
                returned = self.function(*(arguments[argument] for argument in self.argument_names))
        except StopReplay:
            returned = None
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{self.name} raised {in_a_line(error)}") from error
        returned = arguments["model"] if returned is None else returned
        outputs = outputs_in(returned) | files_written(self.directory, before)
        numbers = {name: output.number for name, output in outputs.items() if output.number is not None}
        training = recorder.training(recorder.outputs_of(_weights_in(returned), numbers), 0, number)
        return ObservedRun(training, outputs, tuple(printed.getvalue().splitlines()))

    def trace(self, generator_states: GeneratorStates) -> OutputTrace | None:
        """Run the function with given releases on its own records, again, and on others; None if that fails.

        Each run begins with the random states `generator_states`.
        """

        def run(edit: Edit) -> ObservedRun:
            generator_states.restore()
            return self.run(Recorder(has_given_releases=True), edit)

        try:
            first_run, again = run(_unchanged), run(_unchanged)
            record = next((batch.indices[0] for batch in first_run.training.batches if batch.indices), 0)
            other_run = run(lambda data: with_other_records(data, record % length_of(self.dataset)))
        except (InputError, IndexError, TypeError, KeyError, ValueError):
            return None
        runs = [other_run]
        # Some functions do not accept a data set with a single label.
        with suppress(InputError, IndexError, TypeError, KeyError, ValueError):
            runs.append(run(lambda data: with_other_labels(data, is_one=True)))
        return traced(first_run, again, runs)


def _weights_in(returned: Any) -> dict[str, Tensor]:
    """Return the weights, by name, of the first module or state dict in the result of a training function."""
    match returned:
        case nn.Module():
            return {name: value for name, value in returned.state_dict().items() if isinstance(value, Tensor)}
        case Mapping() if returned and all(isinstance(value, Tensor) for value in returned.values()):
            return {str(name): value for name, value in returned.items()}
        case tuple() | list():
            return next((tensors for element in returned if (tensors := _weights_in(element))), {})
        case _:
            return {}
