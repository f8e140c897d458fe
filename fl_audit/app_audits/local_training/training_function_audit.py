"""Audit a training function without a federation: call it as its users do, record its steps, and assess them."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any

from torch import Tensor, nn

from fl_audit.app_audits.local_training.assessment import Assessment, assess
from fl_audit.app_audits.local_training.edited_datasets import is_sized, length_of, with_other_labels
from fl_audit.app_audits.local_training.leave_one_out_replay import Edit, replays
from fl_audit.app_audits.local_training.patches import recorded
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.replay_state import StopReplay, random_states, set_random_states
from fl_audit.app_audits.local_training.training_facts import RecordedTraining
from fl_audit.errors import InputError, in_a_line, require
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
    function: Callable[..., Any], name: str, model: Any, dataset: Any, options: TrainingAuditOptions
) -> Assessment:
    """Call a training function, record its DP-SGD steps, and assess them against the claim.

    Parameters
    ----------
    function
        Training function that is called as `train(model, dataset)`, `train(dataset)` or `train()`.
    name
        Name of the function, for messages.
    model
        Model that is passed to the function; None if it takes none.
    dataset
        Data set that is passed to the function; None if it takes none.
    options
        The user's claims and settings.

    Raises
    ------
    InputError
        If the function takes other arguments, or raises an exception.
    """
    require_number("rounds are", options.rounds, "whole numbers from 1")
    require_number("calls are", options.calls, "whole numbers from 1")
    places = arguments_of(function, name)
    given = {"model": model, "dataset": dataset}
    for what in places:
        require(given[what] is not None, f"{name} takes a {what}, and none is named: accepted is --{_FLAG[what]}")
    runner = _Runner(function, name, model, dataset, places)
    start = random_states()
    calls = max(1, min(options.calls, max(options.rounds, 2)))
    # A function that is called once is called again all the same: only so is seen whether it repeats its noise.
    recorders = [Recorder() for _ in range(calls)]
    called = [runner.run(recorder, lambda data: data, number) for number, recorder in enumerate(recorders, 1)]
    found = RecordedTrainings(
        tuple(called[: options.rounds]), options.rounds, tuple(called), delta=options.delta, epsilon=options.epsilon,
        records_per_user=options.records_per_user,
    )  # fmt: skip
    if not found.is_private:
        return assess(name, found)
    if "dataset" not in places or not is_sized(dataset):
        why = "it takes no data set" if "dataset" not in places else "records of its data set cannot be taken out"
        return assess(name, found, [f"replays without a record, since {why}"])
    inner, unseen = recorders[0].dataset, list[str]()
    if inner is not None and length_of(inner) != length_of(dataset):
        # The choice of records for the engine may depend on their number: leaving one out then shows nothing.
        again = replays(runner.run_at_engine, None)
        unseen.append("which records the function chooses for its engine, since replays leave one out behind that")
    else:
        again = replays(runner.run, dataset)
    return assess(name, replace(found, replays=again, values=runner.with_labels(start)), unseen)


_FLAG = {"model": "model", "dataset": "data"}


def arguments_of(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Return the arguments that a training function needs: ("model", "dataset"), ("dataset",) or ().

    Parameters
    ----------
    function
        The training function.
    name
        Name of the function, for error messages.

    Raises
    ------
    InputError
        If the function needs more than two arguments.
    """
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    places = [
        one for one in signature(function).parameters.values() if one.kind in kinds and one.default is Parameter.empty
    ]
    accepted = "accepted are train(model, dataset), train(dataset) and train(), and more arguments with defaults"
    require(len(places) < 3, f"{name} takes {len(places)} arguments: {accepted}")
    return (("model", "dataset")[-len(places) :]) if places else ()


@dataclass(frozen=True)
class _Runner:
    """Caller of a training function, which gives it fresh copies of its arguments."""

    function: Callable[..., Any]
    name: str
    model: Any
    dataset: Any
    places: tuple[str, ...]

    def run(self, recorder: Recorder, edit: Edit, number: int = 1) -> RecordedTraining:
        """Call the function on the data set that `edit` returns; raises `InputError` if it fails."""
        given = {"model": copy.deepcopy(self.model), "dataset": edit(self.dataset)}
        try:
            with recorded(recorder):
                made = self.function(*(given[what] for what in self.places))
        except StopReplay:
            made = None
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{self.name} raised {in_a_line(error)}") from error
        arrays = _weights_in(made if made is not None else given["model"])
        return recorder.training(recorder.outputs_of(arrays, {}, {}), 0, number)

    def run_at_engine(self, recorder: Recorder, edit: Edit) -> RecordedTraining:
        """Run the training function with its own data; `edit` changes only the data set that the engine receives.

        The engine is Opacus's `PrivacyEngine`.
        """
        recorder.edit = edit
        return self.run(recorder, lambda data: data)

    def with_labels(self, start: Mapping[str, Any]) -> tuple[RecordedTraining, ...]:
        """Call the training function once with its own labels and twice with other labels.

        Each call begins with the random states `start`. The result is empty if a call fails.
        """
        found = []
        for edit in (lambda data: data, with_other_labels, lambda data: with_other_labels(data, is_one=True)):
            set_random_states(start)
            try:
                found.append(self.run(Recorder(), edit))
            except (InputError, IndexError, TypeError, KeyError):
                return ()
        return tuple(found)


def _weights_in(made: Any) -> dict[str, Tensor]:
    """Return the weights, by name, of the first module or state dict in the result of a training function."""
    match made:
        case nn.Module():
            return {name: value for name, value in made.state_dict().items() if isinstance(value, Tensor)}
        case Mapping() if made and all(isinstance(value, Tensor) for value in made.values()):
            return {str(name): value for name, value in made.items()}
        case tuple() | list():
            return next((found for one in made if (found := _weights_in(one))), {})
        case _:
            return {}
